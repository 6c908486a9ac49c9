"""The credit spool: written before sent, kept until acknowledged."""

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


def test_rows_are_listed_by_node_with_one_key_each() -> None:
    assert window().by_node() == {"alice": [(1, 0, 4)], "bob": [(7, 1, 6), (7, 2, 5)]}
    assert window().key("bob") == "build/b/3/bob"
