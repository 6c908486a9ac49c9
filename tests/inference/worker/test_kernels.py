"""The choice of the kernel."""

import sys
from pathlib import Path

import numpy as np
import pytest

from inference import ggml
from inference import kernel as ggml_kernel
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


@pytest.fixture
def _no_llama_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where llama-cpp-python is not installed: importing it fails, and nothing is left from an earlier import."""
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    monkeypatch.setattr(ggml, "load", ggml.load.__wrapped__)
    monkeypatch.setattr(kernels, "kernel_class_name", ggml_kernel.kernel_class_name.__wrapped__)


@pytest.mark.usefixtures("_no_llama_cpp")
def test_without_llama_cpp_numpy_computes_and_says_what_would_be_faster() -> None:
    choice = choose_kernel("auto", threads=1)

    assert choice.kernel_class == "numpy"
    assert "pip install llama-cpp-python" in choice.hint


@pytest.mark.usefixtures("_no_llama_cpp")
def test_ggml_that_was_asked_for_and_is_not_there_is_an_error() -> None:
    with pytest.raises(KernelUnavailable, match=r"cannot be loaded.*pip install llama-cpp-python"):
        choose_kernel("ggml", threads=1)


def test_a_llama_cpp_of_another_version_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise ggml.IncompatibleGgml("llama-cpp-python brought ggml 9")

    monkeypatch.setattr(kernels, "kernel_class_name", broken)

    with pytest.raises(KernelUnavailable, match="brought ggml 9"):
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
