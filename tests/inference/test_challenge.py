"""Challenges: honest answers pass, wrong ones do not."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from inference.challenge import ExpertOracle, challenge_rows, passes, row_errors
from inference.gguf_index import open_index
from inference.kernel import CpuRuntime, GgmlKernel
from inference.slices import plan_slice, write_slice
from tests.inference.models import DEMO_MODEL


@pytest.fixture
def oracle() -> Iterator[ExpertOracle]:
    oracle = ExpertOracle(open_index(DEMO_MODEL), CpuRuntime(1))
    yield oracle
    oracle.close()


def test_the_oracle_computes_what_an_honest_worker_computes(oracle: ExpertOracle, tmp_path: Path) -> None:
    write_slice(plan_slice(open_index(DEMO_MODEL), 2, 8, 16), tmp_path / "slice.gguf")
    rows, pairs = challenge_rows(8, 16, 256)
    runtime = CpuRuntime(1)
    with GgmlKernel.open(tmp_path / "slice.gguf", runtime) as kernel:
        answer = kernel.compute(rows[pairs[:, 0]], pairs[:, 1].astype(np.int32))
    runtime.close()

    expected = oracle.compute(2, rows, pairs[:, 1].astype(np.int32))

    assert pairs[:, 1].tolist() == list(range(8, 16))
    assert passes(answer, expected, same_class=True)


def test_challenges_cannot_be_foreseen() -> None:
    assert not np.array_equal(challenge_rows(0, 4, 256)[0], challenge_rows(0, 4, 256)[0])


def test_one_wrong_bit_fails_in_the_same_kernel_class_only(oracle: ExpertOracle) -> None:
    rows, pairs = challenge_rows(0, 4, 256)
    expected = oracle.compute(1, rows, pairs[:, 1].astype(np.int32))
    answer = expected.copy()
    answer[2, 5] = np.nextafter(answer[2, 5], np.float32(np.inf))

    assert not passes(answer, expected, same_class=True)
    assert passes(answer, expected, same_class=False)


@pytest.mark.parametrize("spoil", ["zeros", "swapped", "nan", "shifted", "short"])
def test_wrong_answers_fail_in_any_class(oracle: ExpertOracle, spoil: str) -> None:
    rows, pairs = challenge_rows(0, 4, 256)
    expected = oracle.compute(1, rows, pairs[:, 1].astype(np.int32))
    answer = {
        "zeros": np.zeros_like(expected),
        "swapped": expected[[1, 0, 2, 3]],
        "nan": np.where(np.arange(256) == 9, np.float32(np.nan), expected),
        "shifted": expected + np.float32(0.3) * np.abs(expected).max(),
        "short": expected[:3],
    }[spoil]

    assert not passes(answer, expected, same_class=False)


def test_row_errors_are_relative_to_the_row() -> None:
    expected = np.array([[3.0, 4.0], [30.0, 40.0]], np.float32)
    answer = expected + np.array([[5.0, 0.0], [5.0, 0.0]], np.float32)

    assert row_errors(answer, expected).tolist() == [1.0, 0.01]
