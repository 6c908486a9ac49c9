"""inference/benchmarks/rig/ranges.py: a range in the model's own file is the slice that would be cut from it."""

from pathlib import Path

import numpy as np
import pytest

from inference.benchmarks.rig.ranges import MappedRanges
from inference.gguf_index import open_index
from inference.kernel import CpuRuntime, GgmlKernel
from inference.slice_file import SliceFile
from inference.slices import plan_slice, write_slice
from inference.synthetic import demo_variant, split
from inference.verify.local_swarm import Range
from tests.model_files import DEMO_MODEL

HELD = Range(3, 5, 21)


@pytest.mark.parametrize("kind", ["plain", "merged", "split"])
def test_it_has_the_bytes_and_the_results_of_a_slice(kind: str, tmp_path: Path) -> None:
    path = DEMO_MODEL
    if kind == "merged":
        path = demo_variant(tmp_path / "merged.gguf", merged=True)
    elif kind == "split":
        path = split(DEMO_MODEL, tmp_path, 3)[0]
    index = open_index(path)
    write_slice(plan_slice(index, *HELD), tmp_path / "slice.gguf")
    cut, mapped = SliceFile.open(tmp_path / "slice.gguf"), MappedRanges(index).slice_of(HELD)
    rows = np.random.default_rng(1).standard_normal((4, index.n_embd), np.float32)
    ids = np.array([5, 7, 7, 20], np.int32)

    with GgmlKernel(cut, CpuRuntime(1)) as one, GgmlKernel(mapped, CpuRuntime(1)) as other:
        expected, found = one.compute(rows, ids), other.compute(rows, ids)

    assert found.tobytes() == expected.tobytes()
    assert (mapped.build, mapped.layer, mapped.first, mapped.last) == (cut.build, 3, 5, 21)
    assert (mapped.n_embd, mapped.n_ff, mapped.merged) == (cut.n_embd, cut.n_ff, cut.merged)
