"""The program as a process: exit codes, signals, one readable line for expected trouble, no Django."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from inference.worker.identity import locked_folder, server_folder
from tests.inference.worker.town import Town, open_town

ROOT = Path(__file__).parents[3]
STARTED_SECONDS = 30.0

# Runs the module named by argv[1] while every web framework is as good as not installed, then lists what was imported.
WITHOUT_DJANGO = """
import runpy, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"django", "channels", "celery", "daphne", "ninja", "redis"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Absent())
module = sys.argv.pop(1)
try:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
finally:
    print("imported:", " ".join(sorted({name.split(".")[0] for name in sys.modules})), flush=True)
"""


class Process:
    """The worker, with its output."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + STARTED_SECONDS
        while not condition():
            assert self.process.poll() is None, f"ended before: {what}\n{self.output}"
            assert time.monotonic() < deadline, f"too late: {what}\n{self.output}"
            time.sleep(0.02)

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(10)


@contextmanager
def started(tmp_path: Path, server: str, *arguments: str) -> Iterator[Process]:
    """The worker with the numpy kernel and a state folder below tmp_path, killed at the end."""
    log = tmp_path / "worker.log"
    options = ["--server", server, "--state", str(tmp_path / "state"), "--kernel", "numpy", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", WITHOUT_DJANGO, "inference.worker", *options],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith("DJANGO_")},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Process(process, log)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def town() -> Iterator[Town]:
    with open_town(Town(offer=[(3, 8, 15)])) as town:
        yield town


def imported(output: str) -> set[str]:
    return set(output.split("imported:")[1].split())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_gives_the_claims_back_and_ends_with_0(tmp_path: Path, town: Town, number: signal.Signals) -> None:
    with started(tmp_path, town.url, "--budget", "2MB") as worker:
        worker.wait_for(lambda: "serving layer 3, experts 8-14" in worker.output, "serving")

        code = worker.end(number)

    assert code == 0, worker.output
    assert town.released == [1]
    assert "gave back layer 3, experts 8-14" in worker.output
    assert "Traceback" not in worker.output


def test_it_runs_where_no_web_framework_is_installed(tmp_path: Path, town: Town) -> None:
    with started(tmp_path, town.url, "--budget", "2MB") as worker:
        worker.wait_for(lambda: "serving layer 3, experts 8-14" in worker.output, "serving")
        worker.end(signal.SIGTERM)

    modules = imported(worker.output)
    assert "inference" in modules
    assert not modules & {"django", "channels", "celery", "daphne", "ninja", "redis", "market", "config"}


def test_a_server_that_is_down_is_tried_again_until_a_signal_comes(tmp_path: Path) -> None:
    with started(tmp_path, "http://127.0.0.1:9", "--budget", "2MB") as worker:
        worker.wait_for(lambda: "trying again in" in worker.output, "a retry")

        code = worker.end(signal.SIGTERM)

    assert code == 0
    assert "cannot reach http://127.0.0.1:9" in worker.output
    assert "Traceback" not in worker.output


def test_a_second_signal_ends_it_at_once(tmp_path: Path, town: Town) -> None:
    with started(tmp_path, town.url, "--budget", "2MB") as worker:
        worker.wait_for(lambda: "serving layer 3" in worker.output, "serving")
        town.stuck.clear()  # the server answers nothing any more, so the release waits

        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for(lambda: "stopping (again: at once)" in worker.output, "the first signal")
        code = worker.end(signal.SIGTERM)
        town.stuck.set()

    assert code == 130
    assert "Traceback" not in worker.output


def test_a_budget_below_one_expert_ends_with_1_and_a_line(tmp_path: Path, town: Town) -> None:
    town.offer.clear()
    town.reason = ("budget_too_small", "one expert takes 110592 bytes")
    with started(tmp_path, town.url, "--budget", "1kB") as worker:
        code = worker.process.wait(STARTED_SECONDS)

    assert code == 1
    assert "one expert takes 110592 bytes (see --budget and --experts)" in worker.output
    assert "Traceback" not in worker.output


def test_a_state_folder_in_use_ends_with_1_and_a_line(tmp_path: Path, town: Town) -> None:
    with (
        locked_folder(server_folder(tmp_path / "state", town.url)),
        started(tmp_path, town.url, "--budget", "2MB") as worker,
    ):
        code = worker.process.wait(STARTED_SECONDS)

    assert code == 1
    assert "another worker already uses" in worker.output
    assert "Traceback" not in worker.output
    assert town.registered == []


def test_a_wrong_option_ends_with_2_and_usage(tmp_path: Path, town: Town) -> None:
    with started(tmp_path, town.url, "--budget", "much") as worker:
        code = worker.process.wait(STARTED_SECONDS)

    assert code == 2
    assert "'much' is not a size" in worker.output
    assert "Traceback" not in worker.output


def test_what_was_downloaded_before_a_kill_is_used_again(tmp_path: Path, town: Town) -> None:
    with started(tmp_path, town.url, "--budget", "2MB") as worker:
        worker.wait_for(lambda: "serving layer 3" in worker.output, "serving")
        worker.end(signal.SIGKILL)

    with started(tmp_path, town.url, "--budget", "2MB") as worker:
        worker.wait_for(lambda: "serving layer 3" in worker.output, "serving again")
        worker.end(signal.SIGTERM)

    assert len(town.registered) == 1
    assert ", 0 bytes received" in worker.output
