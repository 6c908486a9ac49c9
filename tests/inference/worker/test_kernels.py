"""The choice of the kernel."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from inference import kernel as ggml_kernel
from inference.ggml import IncompatibleGgml
from inference.gguf_index import open_index
from inference.slices import plan_slice, write_slice
from inference.worker import kernels
from inference.worker.errors import KernelUnavailable
from inference.worker.kernels import choose_kernel

DEMO_MODEL = Path(__file__).parents[3] / "models" / "qwen35moe-demo-q4_k_m.gguf"


@pytest.mark.parametrize("name", ["ggml", "numpy", "auto"])
def test_every_choice_opens_slices_and_computes(tmp_path: Path, name: str) -> None:
    write_slice(plan_slice(open_index(DEMO_MODEL), 3, 8, 11), tmp_path / "slice.gguf")
    choice = choose_kernel(name, threads=1)

    kernel = choice.open(tmp_path / "slice.gguf")
    outputs = kernel.compute(np.ones((2, 256), np.float32), np.array([8, 10], np.int32))
    kernel.close()

    assert outputs.shape == (2, 256)
    assert kernel.kernel_class == choice.kernel_class
    assert choice.hint == ""


def test_without_llama_cpp_numpy_computes_and_says_what_would_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    choice = choose_kernel("auto", threads=1)

    assert choice.kernel_class == "numpy"
    assert "pip install llama-cpp-python" in choice.hint


def test_ggml_that_was_asked_for_and_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(KernelUnavailable, match="pip install llama-cpp-python"):
        choose_kernel("ggml", threads=1)


@pytest.mark.parametrize("trouble", [IncompatibleGgml("version 9"), OSError("libgomp.so.1: no such file")])
def test_a_llama_cpp_that_does_not_work_is_told_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    def broken() -> str:
        raise trouble

    monkeypatch.setattr(kernels, "kernel_class_name", broken)

    with pytest.raises(KernelUnavailable, match=str(trouble)):
        choose_kernel("ggml", threads=1)
    assert choose_kernel("auto", threads=1).kernel_class == "numpy"


def test_ggml_and_numpy_are_classes_of_their_own() -> None:
    assert choose_kernel("ggml", threads=1).kernel_class == ggml_kernel.kernel_class_name()
    assert choose_kernel("numpy", threads=1).kernel_class == "numpy"


def test_numpy_says_which_types_it_computes() -> None:
    types = choose_kernel("numpy", threads=1).types

    assert types is not None
    assert "Q4_K" in types
    assert "Q8_K" not in types
    assert choose_kernel("ggml", threads=1).types is None
