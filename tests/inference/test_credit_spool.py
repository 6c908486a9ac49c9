"""The credit spool: written before sent, kept until acknowledged."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from inference.credit_spool import CreditSpool, CreditWindow
from inference.work_report import WorkKey


def window(number: int = 3, boot: str = "b") -> CreditWindow:
    rows = Counter({WorkKey("bob", 7, 2): 5, WorkKey("alice", 1, 0): 4, WorkKey("bob", 7, 1): 6})
    return CreditWindow("build", boot, number, 10.0, 70.0, rows)


def test_a_written_window_comes_back_as_it_was(tmp_path: Path) -> None:
    CreditSpool(tmp_path).write(window())

    assert list(CreditSpool(tmp_path).pending()) == [window()]


def test_a_later_write_of_the_same_window_replaces_the_earlier(tmp_path: Path) -> None:
    spool = CreditSpool(tmp_path)
    spool.write(window())
    grown = window()
    grown.rows[WorkKey("alice", 1, 0)] = 9

    spool.write(grown)

    assert list(spool.pending()) == [grown]


def test_an_acknowledged_window_is_forgotten(tmp_path: Path) -> None:
    spool = CreditSpool(tmp_path)
    spool.write(window(1))
    spool.write(window(2))

    spool.acknowledge(window(1))
    spool.acknowledge(window(1))

    assert [entry.number for entry in spool.pending()] == [2]


def test_a_file_that_cannot_be_read_is_set_aside_and_hides_nothing(tmp_path: Path) -> None:
    spool = CreditSpool(tmp_path)
    spool.write(window(1))
    (tmp_path / "a-00000000.json").write_text('{"rows": [[1]')

    assert [entry.number for entry in spool.pending()] == [1]
    assert (tmp_path / "a-00000000.bad").exists()


def test_windows_that_another_backbone_acknowledges_meanwhile_are_passed_over(tmp_path: Path) -> None:
    spool = CreditSpool(tmp_path)
    for number in (1, 2, 3):
        spool.write(window(number))
    (tmp_path / "b-00000004.json").symlink_to("acknowledged")  # listed, and gone when it is looked at

    windows = spool.pending()
    first = next(windows)
    CreditSpool(tmp_path).acknowledge(window(2))

    assert [entry.number for entry in (first, *windows)] == [1, 3]
    assert not list(tmp_path.glob("*.bad"))


def test_rows_are_listed_by_node_with_one_key_each() -> None:
    assert window().by_node() == {"alice": [(1, 0, 4)], "bob": [(7, 1, 6), (7, 2, 5)]}
    assert window().key("bob") == "build/b/3/bob"


def test_windows_of_another_living_backbone_are_left_alone(tmp_path: Path) -> None:
    alive, mine = CreditSpool(tmp_path), CreditSpool(tmp_path)
    alive.hold("alive")
    mine.hold("mine")
    for spool, boot in ((alive, "alive"), (mine, "mine"), (mine, "dead")):
        spool.write(window(boot=boot))

    seen = {entry.boot for entry in mine.pending()}
    alive.release()

    assert seen == {"mine", "dead"}
    assert {entry.boot for entry in mine.pending()} == {"alive", "mine", "dead"}


def test_a_killed_backbone_s_windows_are_taken_over(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from inference.credit_spool import CreditSpool\n"
        "CreditSpool(Path(sys.argv[1])).hold('killed'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=Path(__file__).resolve().parents[2], check=False)
    spool = CreditSpool(tmp_path)
    spool.write(window(boot="killed"))

    assert (tmp_path / "killed.lock").exists()
    assert [entry.boot for entry in spool.pending()] == ["killed"]
    assert not (tmp_path / "killed.lock").exists()
