"""config/json_log.py and config/log_context.py: one object a line, ids in it, secrets out of it."""

import asyncio
import json
import logging
from typing import Any

import pytest

from config import log_context
from config.json_log import JsonFormatter, without_secrets


def written(message: str, *values: object, **record: Any) -> dict[str, Any]:
    """What a log call becomes."""
    made = logging.getLogger("somewhere").makeRecord(
        "somewhere", logging.WARNING, "file.py", 1, message, values, record.pop("exc_info", None), extra=record
    )
    text = JsonFormatter().format(made)
    assert "\n" not in text
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def test_a_line_is_one_object_with_time_level_and_place() -> None:
    line = written("hello %s", "world\nagain")

    assert line["message"] == "hello world\nagain"
    assert (line["level"], line["logger"]) == ("WARNING", "somewhere")
    assert line["at"].endswith("Z")


def test_ids_come_from_the_context_the_call_and_the_words_of_the_message() -> None:
    with log_context.bound(request_id="r1"):
        line = written("claim %d: the verdict of node %s came too late", 7, "0123456789abcdef", layer=3)

    assert (line["request_id"], line["claim_id"], line["node_id"], line["layer"]) == ("r1", 7, "0123456789abcdef", 3)
    assert written("closing worker 19 0123456789abcdef")["node_id"] == "0123456789abcdef"
    assert "request_id" not in written("afterwards")


async def test_tasks_keep_the_ids_that_were_bound_when_they_were_made() -> None:
    async def inside() -> dict[str, Any]:
        await asyncio.sleep(0)
        return written("in a task")

    with log_context.bound(request_id="r1"):
        task = asyncio.create_task(inside())
    with log_context.bound(request_id="r2"):
        line = await task

    assert line["request_id"] == "r1"


def test_hooks_that_come_in_pairs_bind_and_forget() -> None:
    log_context.bind(task="inference.generate", generation_id="g")
    inside = written("within")
    log_context.forget("task", "generation_id")

    assert inside["generation_id"] == "g"
    assert "generation_id" not in written("after")


def test_an_exception_is_told_with_its_stack() -> None:
    try:
        raise ValueError("password=hunter2hunter2")
    except ValueError as error:
        line = written("failed", exc_info=(ValueError, error, error.__traceback__))

    assert line["error"] == "ValueError"
    assert "Traceback" in line["stack"]
    assert "hunter2" not in line["stack"]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("cannot reach redis://:s3cr3tpassword@10.0.0.1:6379/0", "s3cr3tpassword"),
        ("postgresql://swarm:s3cr3tpassword@db/swarm refused", "s3cr3tpassword"),
        ("Authorization: Bearer abcdef0123456789", "abcdef0123456789"),
        ("key sk-es-abcdef0123456789 is unknown", "abcdef0123456789"),
        ("{'token': 'abcdef0123456789'}", "abcdef0123456789"),
        ("GET /x?token=abcdef0123456789&y=1", "abcdef0123456789"),
    ],
)
def test_secrets_are_blotted_out(text: str, secret: str) -> None:
    assert secret not in without_secrets(text)
    assert secret not in json.dumps(written("%s", text))
    assert secret not in json.dumps(written("x", detail=text))


def test_the_rest_of_a_line_stays() -> None:
    text = "node 0123456789abcdef: claim 7 of layer 3 was 0.4 s late at https://swarm.example/relay/1/"

    assert without_secrets(text) == text
