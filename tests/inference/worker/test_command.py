"""`manage.py worker`: the same program, with the running server as its default."""

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from config.supervisor import run_file
from inference.management.commands import worker
from inference.worker.options import Options

RUN = run_file.RunFile(
    pid=1,
    url="http://127.0.0.1:8123",
    port=8123,
    redis_url="",
    database_url="",
    api_key="key",
    model="model.gguf",
    started="2030-01-01T00:00:00Z",
)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The options with which the program was run."""
    seen: list[Options] = []

    def run(options: Options) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(worker, "run", run)
    return seen


def test_it_uses_the_server_that_runs_here(var_dir: Path, ran: list[Options]) -> None:
    with run_file.owned(var_dir):
        run_file.write(var_dir, RUN)

        with pytest.raises(SystemExit) as raised:
            call_command("worker", "--budget", "42MB", "--kernel", "numpy")

    assert raised.value.code == 0
    (options,) = ran
    assert (options.server, options.budget_bytes, options.kernel) == ("http://127.0.0.1:8123", 42_000_000, "numpy")
    assert options.state_dir == var_dir / "workers" / "by-hand"


def test_another_server_can_be_named(var_dir: Path, ran: list[Options]) -> None:
    with pytest.raises(SystemExit):
        call_command("worker", "--server", "https://swarm.example")

    assert ran[0].server == "https://swarm.example"


def test_without_a_server_it_says_how_to_start_one(var_dir: Path, ran: list[Options]) -> None:
    with pytest.raises(CommandError, match=r"make run.*--server URL"):
        call_command("worker")

    assert ran == []
