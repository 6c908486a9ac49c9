"""Row encodings: sizes, the sums that stay off the wire, and the values of q8 rows."""

import numpy as np
import pytest

from inference import rows
from inference.kernel import quantize_rows
from inference.rows import TYPE_Q8_0, TYPE_Q8_K, RowsError, RowType


def random_rows(count: int, width: int = 512) -> rows.Float32Array:
    return np.random.default_rng(3).standard_normal((count, width), dtype=np.float32)


def test_it_states_the_bytes_of_a_row() -> None:
    assert rows.wire_row_bytes(RowType.F32, 3072, None) == 12_288
    assert rows.wire_row_bytes(RowType.Q8, 3072, TYPE_Q8_K) == 3_120
    assert rows.wire_row_bytes(RowType.Q8_0, 3072, TYPE_Q8_0) == 3_264


@pytest.mark.parametrize(
    ("row_type", "width", "block_type"),
    [
        (RowType.Q8, 3000, TYPE_Q8_K),
        (RowType.Q8, 3072, None),
        (RowType.Q8, 3072, TYPE_Q8_0),
        (RowType.Q8_0, 48, TYPE_Q8_0),
        (RowType.Q8_0, 3072, TYPE_Q8_K),
        (RowType.Q8_0, 3072, None),
    ],
)
def test_it_refuses_rows_without_an_exact_form(row_type: RowType, width: int, block_type: int | None) -> None:
    with pytest.raises(RowsError, match="send float32 rows"):
        rows.wire_row_bytes(row_type, width, block_type)


def test_it_restores_the_sums_that_the_kernel_computed() -> None:
    hidden = random_rows(5)
    from inference import ggml

    library = ggml.load()
    blocks = np.empty((5, library.row_size(TYPE_Q8_K, 512)), np.uint8)
    library.type_traits_cpu(TYPE_Q8_K).contents.from_float(hidden.ctypes.data, blocks.ctypes.data, hidden.size)
    restored = np.zeros_like(blocks)

    rows.restore_sums(rows.strip_sums(blocks), restored)

    assert np.array_equal(restored, blocks)


@pytest.mark.parametrize("block_type", [TYPE_Q8_K, TYPE_Q8_0])
def test_quantised_rows_are_close_to_what_they_were_made_from(block_type: int) -> None:
    hidden = random_rows(4)

    back = rows.dequantize_wire(quantize_rows(hidden, block_type), block_type)

    assert back.shape == hidden.shape
    assert np.abs(back - hidden).max() <= np.abs(hidden).max() / 127


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_one_value_that_is_no_number_makes_an_answer_unusable_and_large_ones_do_not(kind: type[np.generic]) -> None:
    values = np.zeros((4, 8), kind)
    large = np.full((400, 8), np.finfo(np.float32 if kind is np.float32 else np.float16).max, kind)

    assert rows.is_finite(values)
    assert rows.is_finite(large)
    for wrong in (np.nan, np.inf, -np.inf):
        values[2, 3] = wrong
        assert not rows.is_finite(values)
    values[1, 1] = np.inf  # together with -inf their sum is NaN
    assert not rows.is_finite(values)
