"""inference/api_client.py and `manage.py generate` against scripted answers; tests/e2e has the real server."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import CommandError, call_command

from config.supervisor import run_file
from config.supervisor.run_file import RunFile
from inference import api_client
from inference.api_client import ApiClient, ApiRefused, ApiUnreachable
from inference.management.commands import generate

Handler = Callable[[httpx.Request], httpx.Response]


def sse(*events: tuple[str, Any], end: bool = True) -> bytes:
    lines = [f"id: {event_id}\ndata: {json.dumps(body)}\n\n" for event_id, body in events]
    return "".join([": waiting\n\n", *lines, "data: [DONE]\n\n" if end else ""]).encode()


def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"text": text, "index": 0, "finish_reason": finish}]}


def token(index: int, text: str, finish: str | None = None) -> dict[str, Any]:
    return {"object": "generation.token", "index": index, "text": text, "finish_reason": finish}


USAGE = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}


def client_of(handler: Handler) -> ApiClient:
    return ApiClient("http://server.test", "sk-es-x", transport=httpx.MockTransport(handler))


def always(status: int, body: bytes) -> Handler:
    return lambda request: httpx.Response(status, content=body)


def test_it_reads_text_finish_and_usage_and_says_who_asks() -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, content=sse(("g:0", chunk("Hel")), ("g:1", chunk("lo", "stop")), ("", USAGE)))

    shown: list[str] = []
    with client_of(answer) as client:
        progress = client.stream({"model": "m", "prompt": "In"}, shown.append)

    assert shown == ["Hel", "lo"]
    assert (progress.text, progress.finish, progress.last_id, progress.resumed) == ("Hello", "stop", "g:1", 0)
    assert progress.usage == USAGE["usage"]
    assert requests[0].headers["Authorization"] == "Bearer sk-es-x"
    assert json.loads(requests[0].content)["stream"] is True


def test_it_goes_on_after_a_lost_connection_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_client, "RESUME_DELAY_SECONDS", 0.0)
    paths: list[str] = []

    def flaky(request: httpx.Request) -> httpx.Response:
        paths.append(str(request.url.raw_path, "ascii"))
        if len(paths) == 1:
            return httpx.Response(200, content=sse(("g:0", chunk("In ")), end=False))
        if len(paths) == 2:
            raise httpx.ConnectError("refused")
        if len(paths) == 3:
            return httpx.Response(200, content=sse(("g:1", token(1, "the ")), end=False))
        return httpx.Response(200, content=sse(("g:2", token(2, "end", "stop"))))

    with client_of(flaky) as client:
        progress = client.stream({"model": "m", "prompt": "x"}, lambda _: None)

    assert progress.text == "In the end"
    assert progress.finish == "stop"
    assert paths[1:] == ["/v1/generations/g/stream?after=0"] * 2 + ["/v1/generations/g/stream?after=1"]


def test_a_server_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_client, "RESUME_DELAY_SECONDS", 0.0)
    calls = iter([httpx.Response(200, content=sse(("g:0", chunk("In ")), end=False))])

    def gone(request: httpx.Request) -> httpx.Response:
        for response in calls:
            return response
        raise httpx.ConnectError("refused")

    with client_of(gone) as client, pytest.raises(ApiUnreachable, match="generation g may go on"):
        client.stream({"model": "m", "prompt": "x"}, lambda _: None)


def test_it_goes_on_at_a_server_that_is_busy_but_not_at_one_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_client, "RESUME_DELAY_SECONDS", 0.0)
    begun = httpx.Response(200, content=sse(("g:0", chunk("In ")), end=False))
    ended = httpx.Response(200, content=sse(("g:1", token(1, "the end", "stop"))))

    def one_after_another(*responses: httpx.Response) -> Handler:
        waiting = list(responses)
        return lambda request: waiting.pop(0)

    busy = one_after_another(begun, httpx.Response(503, content=b"{}"), httpx.Response(502, content=b"<html>"), ended)
    with client_of(busy) as client:
        assert client.stream({"model": "m", "prompt": "x"}, lambda _: None).text == "In the end"
    gone = one_after_another(httpx.Response(200, content=sse(("g:0", chunk("In ")), end=False)), httpx.Response(404))
    with client_of(gone) as client, pytest.raises(ApiRefused, match="404"):
        client.stream({"model": "m", "prompt": "x"}, lambda _: None)


def test_refusals_are_the_servers_words() -> None:
    body = json.dumps({"error": {"message": "Too long.", "code": "context_length_exceeded"}}).encode()

    with client_of(always(400, body)) as client, pytest.raises(ApiRefused, match=r"Too long. \(context_length"):
        client.stream({"model": "m", "prompt": "x"}, lambda _: None)
    with client_of(always(502, b"<html>")) as client, pytest.raises(ApiRefused, match="502"):
        client.model()
    failing = sse(("", {"error": {"message": "The generation failed."}}))
    with client_of(always(200, failing)) as client, pytest.raises(ApiRefused, match="failed"):
        client.stream({"model": "m", "prompt": "x"}, lambda _: None)


def test_a_server_that_does_not_answer_is_unreachable() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with client_of(refuse) as client:
        with pytest.raises(ApiUnreachable, match="does not answer"):
            client.model()
        with pytest.raises(ApiUnreachable, match="does not answer"):
            client.stream({"model": "m", "prompt": "x"}, lambda _: None)


# --- the command ------------------------------------------------------------------------------------------------------
@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A running server that continues everything with "Hello"; returns what it was asked."""
    asked: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "demo"}]})
        asked.append(json.loads(request.content))
        return httpx.Response(200, content=sse(("g:0", chunk("Hel")), ("g:1", chunk("lo", "stop")), ("", USAGE)))

    run = RunFile(1, "http://server.test", 80, "", "", "sk-es-x", "demo.gguf", "now")
    monkeypatch.setattr(run_file, "read", lambda var_dir: run)
    monkeypatch.setattr(generate, "ApiClient", lambda url, key: client_of(answer))
    return asked


def test_the_command_prints_the_text_as_it_comes(server: list[dict[str, Any]]) -> None:
    output = io.StringIO()

    call_command(
        "generate", "Well, ", "--max-tokens", "7", "--temperature", "0", "--seed", "3", "--stop", "x", stdout=output
    )

    assert output.getvalue() == "Well, Hello\n"
    wanted = {"model": "demo", "prompt": "Well, ", "max_tokens": 7, "temperature": 0.0, "seed": 3, "stop": ["x"]}
    assert wanted.items() <= server[0].items()


def test_the_command_prints_one_object_with_json(server: list[dict[str, Any]]) -> None:
    output = io.StringIO()

    call_command("generate", "Well, ", "--json", stdout=output)

    found = json.loads(output.getvalue())
    assert (found["text"], found["finish_reason"], found["generation"]) == ("Hello", "stop", "g")
    assert found["usage"]["completion_tokens"] == 2


def test_the_command_reads_a_prompt_from_standard_input(
    server: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a long text"))

    call_command("generate", "-", stdout=io.StringIO())

    assert server[0]["prompt"] == "a long text"


def test_without_a_server_the_command_says_how_to_start_one(var_dir: Path) -> None:
    with pytest.raises(CommandError, match="make run"):
        call_command("generate", "In")


def test_an_interrupted_command_hangs_up_and_exits_as_shells_expect(
    server: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ApiClient, "stream", interrupt)

    with pytest.raises(SystemExit) as caught:
        call_command("generate", "In", stdout=io.StringIO(), stderr=io.StringIO())

    assert caught.value.code == 130
