"""config/supervisor/child.py: real small processes, and the restart rule without any."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from config.supervisor.child import FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, STEADY_SECONDS, Child, Restarts
from config.supervisor.plan import ChildSpec, Stage


def spec(program: str, name: str = "child", stop_seconds: float = 5.0) -> ChildSpec:
    return ChildSpec(name, Stage.SERVER, (sys.executable, "-u", "-c", program), dict(os.environ), stop_seconds)


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_delays_double_up_to_a_bound() -> None:
    restarts = Restarts()
    delays = []
    for now in range(10):
        restarts.started(float(now))
        delays.append(restarts.ended(float(now)))

    assert delays[:4] == [FIRST_DELAY_SECONDS, 1.0, 2.0, 4.0]
    assert delays[-1] == LONGEST_DELAY_SECONDS


def test_a_child_that_lived_steadily_starts_again_soon() -> None:
    restarts = Restarts()
    for now in (0.0, 1.0, 2.0):
        restarts.started(now)
        restarts.ended(now)
    restarts.started(10.0)

    delay = restarts.ended(10.0 + STEADY_SECONDS)

    assert delay == FIRST_DELAY_SECONDS
    assert not restarts.is_due(10.0 + STEADY_SECONDS)
    assert restarts.is_due(10.0 + STEADY_SECONDS + delay)


def test_a_running_child_is_not_due() -> None:
    restarts = Restarts()
    restarts.started(1.0)

    assert not restarts.is_due(1000.0)


def test_it_keeps_what_the_child_writes_and_reports_its_end_once(tmp_path: Path) -> None:
    child = Child(spec("import sys; print('hello'); print('oh', file=sys.stderr); sys.exit(3)"), tmp_path, tmp_path)
    child.start(0.0)
    codes: list[int] = []
    while not codes:
        codes = [code for code in [child.poll()] if code is not None]
        time.sleep(0.02)

    assert codes == [3]
    assert child.poll() is None
    assert child.log_tail().splitlines() == ["hello", "oh"]


def test_ctrl_c_in_the_terminal_does_not_reach_the_child(tmp_path: Path) -> None:
    child = Child(spec("import time; time.sleep(60)"), tmp_path, tmp_path)
    child.start(0.0)
    assert child.pid is not None

    assert os.getpgid(child.pid) == child.pid
    assert os.getsid(child.pid) == os.getsid(0)

    child.kill()


def test_killing_takes_the_grandchildren_along(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys, time; "
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid); time.sleep(60)"
    )
    child = Child(spec(program), tmp_path, tmp_path)
    child.start(0.0)
    assert eventually(lambda: bool(child.log_tail()))
    grandchild = int(child.log_tail())

    child.kill()

    assert child.pid is None
    assert eventually(lambda: not is_alive(grandchild))


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_child_dies_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    )
    program = f"""if True:
        import sys, time
        from pathlib import Path
        from config.supervisor.child import Child
        from config.supervisor.plan import ChildSpec, Stage
        folder = Path(sys.argv[1])
        child = Child(ChildSpec("c", Stage.SERVER, (sys.executable, "-c", {stubborn!r}), {{}}, 1.0), folder, folder)
        child.start(0.0)
        print(child.pid, flush=True)
        time.sleep(60)
    """
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert eventually(lambda: (tmp_path / "c.log").read_text() == "1\n")

    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()

    assert eventually(lambda: not is_alive(pid))


def test_a_log_beyond_its_limit_is_cut_while_the_child_goes_on_writing(tmp_path: Path) -> None:
    child = Child(spec("import sys\nfor line in sys.stdin: pass"), tmp_path, tmp_path)
    child.log_path.write_text("old line\n" * 1000 + "last line\n")

    with child.log_path.open("a") as writer:
        child.bound_log(limit_bytes=100)
        writer.write("new line\n")

    assert child.log_path.read_text() == "new line\n"
    kept = child.log_path.with_suffix(".log.1").read_text()
    assert len(kept) == 100
    assert kept.endswith("last line\n")
    child.bound_log(limit_bytes=100)
    assert child.log_path.read_text() == "new line\n"
