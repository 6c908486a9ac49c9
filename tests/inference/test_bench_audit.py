"""`bench audit`: every liar is caught, nobody honest is accused."""

from pathlib import Path

from inference.benchmarks.audit import LIES, MOST_ROWS, audit


def test_every_liar_is_caught_and_no_honest_worker_is_accused(tmp_path: Path) -> None:
    results = {
        result.case: result for result in audit(tmp_path, quick=True, threads=1, progress=lambda share, text: None)
    }

    liars = [result for case, result in results.items() if case.startswith((*LIES, "requantised"))]
    assert len(liars) == 2 * 2 * (len(LIES) + 1)
    assert all(max(result.samples) < MOST_ROWS for result in liars)
    assert results["zeros, same class, honest only on challenges"].value == 32
    assert results["zeros, same class, honest only on challenges"].extra["rows_used_before"] == 0
    assert results["honest, same class"].value == results["honest, other class"].value == 0
    assert results["honest, same class"].extra["worst_error"] == 0
    assert results["one honest node, 100000 answers"].value < 1.2
