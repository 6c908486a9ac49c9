"""Which kernel computes: the choice is made once, at start, with a reason that a person can read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inference.errors import InferenceError
from inference.kernel import CpuRuntime, ExpertKernel, GgmlKernel, kernel_class_name
from inference.numpy_kernel import KERNEL_CLASS as NUMPY_CLASS
from inference.numpy_kernel import NumpyKernel, computable_types
from inference.worker.errors import KernelUnavailable

INSTALL_HINT = "with `pip install llama-cpp-python==0.3.36` this machine computes several times faster"


@dataclass(frozen=True)
class KernelChoice:
    """How slices are opened here.

    `types`: names of the ggml types that it computes, None: all; `hint`: what the owner could do better, or empty.
    """

    kernel_class: str
    open: Callable[[Path], ExpertKernel]
    types: frozenset[str] | None = None
    hint: str = ""


def choose_kernel(name: str, threads: int) -> KernelChoice:
    """`name`: ggml, numpy or auto. Raises KernelUnavailable when ggml was asked for and cannot run here."""
    if name == "numpy":
        return _numpy()
    try:
        return _ggml(threads)
    except KernelUnavailable as error:
        if name == "ggml":
            raise
        return _numpy(hint=f"computing with numpy: {error}")


def _ggml(threads: int) -> KernelChoice:
    try:
        kernel_class = kernel_class_name()
        # One runtime for all slices: one thread computes, one request after another (`serve.py`).
        runtime = CpuRuntime(threads)
    except InferenceError as error:
        raise KernelUnavailable(f"{error} ({INSTALL_HINT})") from error
    return KernelChoice(kernel_class, lambda path: GgmlKernel.open(path, runtime))


def _numpy(hint: str = "") -> KernelChoice:
    return KernelChoice(NUMPY_CLASS, NumpyKernel.open, computable_types(), hint)
