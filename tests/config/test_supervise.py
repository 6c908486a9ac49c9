"""config/supervisor/supervise.py with real small processes."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from config.supervisor.plan import ChildSpec, Stage
from config.supervisor.supervise import StartFailed, StopRequested, Supervisor
from tests.config.test_child import eventually, is_alive

SLEEP = "import time; time.sleep(60)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
)


def spec(name: str, program: str, stage: Stage = Stage.SERVER, stop_seconds: float = 5.0) -> ChildSpec:
    return ChildSpec(name, stage, (sys.executable, "-u", "-c", program), dict(os.environ), stop_seconds)


class Told:
    """Collects what the supervisor says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)


def supervisor(folder: Path, told: Told | None = None) -> Supervisor:
    return Supervisor(folder, folder, told or Told())


def test_a_killed_child_is_started_again_and_the_user_is_told(tmp_path: Path) -> None:
    told = Told()
    alice = supervisor(tmp_path, told)
    changes: list[dict[str, int]] = []
    alice.on_change = lambda: changes.append(alice.pids)
    alice.start([spec("web", SLEEP)])
    first = alice.pids["web"]

    os.kill(first, signal.SIGKILL)
    while alice.pids.get("web", first) == first:
        alice.step()
        time.sleep(0.02)

    second = alice.pids["web"]
    assert is_alive(second)
    assert "web ended (signal SIGKILL), starts again in 0.5 s" in told.lines[0]
    assert changes == [{}, {"web": second}]
    alice.stop()
    assert not is_alive(second)


def test_a_child_that_keeps_ending_while_the_server_starts_fails_it_with_its_last_words(tmp_path: Path) -> None:
    alice = supervisor(tmp_path)
    alice.start([spec("backbone", "import sys; sys.exit('no such model')")])

    with pytest.raises(StartFailed, match=r"ended 3 times \(exit status 1\)(.|\n)*no such model"):
        alice.wait_until(lambda: False, "The backbone", 30, "backbone")

    alice.stop()


def test_a_time_out_shows_the_log_of_the_suspect(tmp_path: Path) -> None:
    alice = supervisor(tmp_path)
    alice.start([spec("web", "print('thinking', flush=True); import time; time.sleep(60)")])
    assert eventually(lambda: "thinking" in alice.children[0].log_tail())

    with pytest.raises(StartFailed, match=r"not ready within 0.2 s(.|\n)*thinking"):
        alice.wait_until(lambda: False, "The web server", 0.2, "web")

    alice.stop()


def test_stages_stop_in_reverse_order(tmp_path: Path) -> None:
    note = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        "    with open('ends', 'a') as file: file.write(sys.argv[1] + ' ')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end); print('ready', flush=True); time.sleep(60)"
    )
    alice = supervisor(tmp_path)
    for stage in Stage:
        base = spec(stage.name.lower(), note, stage)
        alice.start([ChildSpec(base.name, stage, (*base.command, base.name), base.environment, 5.0)])
    assert eventually(lambda: all("ready" in child.log_tail() for child in alice.children))

    alice.stop()

    assert (tmp_path / "ends").read_text() == "workers backbone server store "


def test_a_child_that_does_not_end_in_time_is_killed(tmp_path: Path) -> None:
    told = Told()
    alice = supervisor(tmp_path, told)
    alice.start([spec("web", STUBBORN, stop_seconds=0.3)])
    pid = alice.pids["web"]
    assert eventually(lambda: "deaf" in alice.children[0].log_tail())

    alice.stop()

    assert not is_alive(pid)
    assert told.lines == ["web did not end in time and was killed"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_loop(tmp_path: Path, number: signal.Signals) -> None:
    alice = supervisor(tmp_path)
    before = signal.getsignal(number)

    with alice.signals_handled():
        threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
        alice.run()

    assert signal.getsignal(number) == before


def test_a_signal_during_the_start_stops_it(tmp_path: Path) -> None:
    alice = supervisor(tmp_path)

    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))

    timer.start()
    with alice.signals_handled(), pytest.raises(StopRequested):
        alice.wait_until(lambda: False, "The web server", 30, "web")


def test_a_second_signal_stops_without_waiting(tmp_path: Path) -> None:
    alice = supervisor(tmp_path)
    alice.start([spec("web", STUBBORN, stop_seconds=60)])
    assert eventually(lambda: "deaf" in alice.children[0].log_tail())

    with alice.signals_handled():
        os.kill(os.getpid(), signal.SIGINT)
        alice.run()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        alice.stop()

    assert time.monotonic() - began < 5
