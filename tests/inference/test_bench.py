"""`bench overhead` and what benchmarks print."""

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from inference.benchmarks.overhead import Child, SideFailed
from inference.benchmarks.progress import ProgressBar
from inference.benchmarks.report import Result, as_object, as_table, commit, machine, pair_ratio
from tests.inference.models import DEMO_MODEL

ROOT = DEMO_MODEL.parents[1]


def test_the_ratio_is_the_median_over_pairs_not_of_medians() -> None:
    assert pair_ratio([10.0, 1.0, 10.0], [10.0, 2.0, 8.0]) == 1.0
    assert pair_ratio([1.0], []) is None


def test_a_goal_is_met_missed_or_absent() -> None:
    result = Result("x", "tokens/s", [97.0], peer="p", peer_samples=[100.0], goal=0.97)

    assert result.met is True
    assert Result("x", "tokens/s", [96.0], peer="p", peer_samples=[100.0], goal=0.97).met is False
    assert Result("x", "tokens/s", [96.0], peer="p", peer_samples=[100.0]).met is None


def test_the_object_has_the_agreed_shape() -> None:
    result = Result("batch=8", "tokens/s", [1.0, 3.0, 2.0], peer="llama.cpp", peer_samples=[2.0, 2.0, 2.0], goal=0.97)

    body = json.loads(json.dumps(as_object("overhead", [result], ROOT)))

    assert body["bench"] == "overhead"
    assert body["machine"].keys() == {"cpu", "cores", "memory_bytes", "python", "llama_cpp_python"}
    assert body["results"][0] == {
        "case": "batch=8",
        "value": 2.0,
        "unit": "tokens/s",
        "samples": [1.0, 3.0, 2.0],
        "peer": "llama.cpp",
        "peer_value": 2.0,
        "ratio": 1.0,
        "limit": None,
        "limit_what": None,
        "goal": 0.97,
        "met": True,
    }


def test_the_table_says_which_goal_was_missed() -> None:
    lines = as_table(
        [
            Result("a", "tokens/s", [1.0], peer="p", peer_samples=[2.0], goal=0.97, extra={"note": "a remark"}),
            Result("b", "tokens/s", [2.0]),
        ]
    )

    assert "0.500" in lines[1]
    assert lines[1].endswith("MISSED")
    assert lines[-1] == "  a: a remark"


def test_the_machine_and_the_commit_are_known(tmp_path: Path) -> None:
    assert machine()["cores"] >= 1
    assert commit(tmp_path) is None


def test_a_side_that_dies_by_a_signal_is_named() -> None:
    with Child("plain", DEMO_MODEL, sequences=1, threads=1) as child:
        assert child.answer() == {"loaded": "plain"}
        child.process.kill()

        with pytest.raises(SideFailed, match=r"crashed \(SIGKILL\)"):
            child.ask(prepare=1)


def test_a_side_that_cannot_load_says_why(tmp_path: Path) -> None:
    with (
        Child("plain", tmp_path / "nothing.gguf", sequences=1, threads=1) as child,
        pytest.raises(SideFailed, match=r"nothing\.gguf"),
    ):
        child.answer()


@pytest.mark.parametrize("side", ["ours", "plain"])
def test_a_side_generates_batches_of_any_prepared_size(side: str) -> None:
    with Child(side, DEMO_MODEL, sequences=3, threads=1) as child:
        child.answer()
        for batch in (2, 3, 1):
            child.ask(prepare=batch)
            assert child.ask(round=3)["tokens"] == 3 * batch


def test_the_quick_benchmark_measures_every_case(var_dir: Path) -> None:
    out = StringIO()

    call_command("bench", "overhead", "--quick", "--json", "--threads", "1", stdout=out)

    body = json.loads(out.getvalue())
    assert [result["case"] for result in body["results"]] == [
        "small batch=1",
        "small batch=4",
        "demo batch=1",
        "demo batch=4",
    ]
    for result in body["results"]:
        assert result["ratio"] > 0
        assert (result["defaults_ratio"] is None) == (result["defaults_crash"] is not None)


def test_an_unknown_benchmark_is_refused() -> None:
    with pytest.raises(CommandError, match="invalid choice"):
        call_command("bench", "nonsense")


def test_a_negative_number_of_threads_is_refused() -> None:
    with pytest.raises(CommandError, match="--threads"):
        call_command("bench", "overhead", threads=-1)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_bar_shows_only_on_a_terminal() -> None:
    terminal, file = Terminal(), StringIO()

    for stream in (terminal, file):
        with ProgressBar(stream) as bar:
            bar(0.5, "half")

    assert "50% half" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert file.getvalue() == ""
