"""`manage.py bench mixed`: what is told of answers, and a smoke run with a whole engine."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from inference.benchmarks.mixed import as_results
from inference.benchmarks.rig.serving import Answer, settled
from inference.generation import TokenEvent

KINDS = (("short", 0.5, 16, 2), ("long", 0.5, 600, 2))


def an_answer(kind: str, wait: float, finish: str = "length") -> dict[str, Any]:
    return {"kind": kind, "wait": wait, "took": wait + 1, "finish": finish, "tokens": 2, "gaps": [0.2]}


def test_an_answer_counts_tokens_and_the_time_between_them() -> None:
    answer = Answer("short", arrived=10.0)

    for index, now in enumerate((10.5, 10.7, 11.0)):
        answer.take(TokenEvent(index, 5, "x", finish="length" if index == 2 else None), now)

    body = answer.to_json()
    assert (body["wait"], body["took"], body["tokens"], body["finish"]) == (0.5, 1.0, 3, "length")
    assert body["gaps"] == pytest.approx([0.2, 0.3])


def test_goodput_leaves_out_answers_that_began_too_late() -> None:
    answers = [an_answer("short", 0.1), an_answer("short", 0.3), an_answer("long", 5.0), an_answer("long", 0.5)]
    body = {"answers": answers, "seconds": 4.0, "places": {"remote": 1}}

    results = {result.case: result for result in as_results(body, 0.7, 1.4, KINDS, floor=0.16)}

    assert results["load0.7/goodput"].ratio == 0.75
    assert results["load0.7/goodput"].met is False
    assert results["load0.7/goodput"].extra["worst_wait_seconds"] == {"short": 0.3, "long": 5.0}
    assert results["load0.7/long/first token"].extra["worst"] == 5.0
    assert results["load0.7/short/between tokens"].limit == 160.0


def test_above_the_capacity_the_goodput_has_no_goal() -> None:
    body = {"answers": [an_answer("short", 9.0)], "seconds": 4.0, "places": {}}

    results = {result.case: result for result in as_results(body, 1.5, 3.0, KINDS, floor=0.16)}

    assert (results["load1.5/goodput"].ratio, results["load1.5/goodput"].met) == (0.0, None)


def test_the_capacity_is_what_ends_in_the_second_half() -> None:
    answers = [Answer("short", 0.0, ended=100.0 + second) for second in (1.0, 4.9, 5.0, 7.0, 9.9, 10.0)]

    assert settled(answers, began=100.0, seconds=10.0) == 3 / 5.0


def test_the_quick_run_starves_nobody(var_dir: Path) -> None:
    out = StringIO()

    call_command("bench", "mixed", "--quick", "--json", stdout=out)

    results = {result["case"]: result for result in json.loads(out.getvalue())["results"]}
    assert results["capacity"]["value"] > 0
    assert results["load0.7/goodput"]["requests"] > 0
    assert results["load0.7/goodput"]["failed"] == results["load1.5/goodput"]["failed"] == []
