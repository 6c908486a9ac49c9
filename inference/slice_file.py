"""Reads a slice back: what it says of itself, and its weights as read-only views of the mapped file."""

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference.errors import FileUnreadable, NotASlice
from inference.gguf_header import Header, TensorInfo, read_header
from inference.gguf_index import EXPERT_TENSOR, Role

FORMAT_VERSION = 1
ROLE_SETS = (frozenset({"gate", "up", "down"}), frozenset({"gate_up", "down"}), frozenset({"up", "down"}))


class SliceTensor(NamedTuple):
    """One role's weights; `ne` is (n_in, n_out, experts), `data` (experts, expert_bytes) uint8, 32-byte aligned."""

    ggml_type: int
    ne: tuple[int, int, int]
    data: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class SliceFile:
    """Experts `first` to `last` (exclusive) of one layer, mapped. The views stay valid while anybody holds them."""

    path: Path
    build: str
    layer: int
    first: int
    last: int
    architecture: str
    activation: str
    n_embd: int
    n_ff: int
    merged: bool
    tensors: dict[Role, SliceTensor]

    @classmethod
    def open(cls, path: Path) -> "SliceFile":
        """Map a slice. Raises NotASlice for any other GGUF, and what `read_header` does."""
        header = read_header(path)
        if header.metadata.get("expertswarm.format") != FORMAT_VERSION:
            raise NotASlice(f"{path}: not a slice of format {FORMAT_VERSION}; make it with `manage.py slice`")
        layer, first, last = (_number(path, header, key) for key in ("layer", "first", "last"))
        try:
            data = np.memmap(path, np.uint8, "r")
        except OSError as error:
            raise FileUnreadable(f"{path}: cannot be mapped: {error.strerror or error}") from error
        tensors = {
            _role(path, info, layer): _tensor(path, info, data, last - first) for info in header.tensors.values()
        }
        if set(tensors) not in ROLE_SETS:
            raise NotASlice(f"{path}: holds {sorted(tensors)}, not the expert tensors of one layer")
        return cls(
            path=path,
            build=_text(path, header, "expertswarm.build"),
            layer=layer,
            first=first,
            last=last,
            architecture=_text(path, header, "general.architecture"),
            activation=_text(path, header, "expertswarm.activation"),
            n_embd=_number(path, header, "n_embd"),
            n_ff=_number(path, header, "n_ff"),
            merged="gate_up" in tensors,
            tensors=tensors,
        )

    def __enter__(self) -> "SliceFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the mapping; it ends when the last view of it is dropped."""
        self.tensors.clear()


def _number(path: Path, header: Header, key: str) -> int:
    value = header.metadata.get(f"expertswarm.{key}")
    if type(value) is not int:
        raise NotASlice(f"{path}: expertswarm.{key} is {value!r}")
    return value


def _text(path: Path, header: Header, key: str) -> str:
    value = header.metadata.get(key)
    if not isinstance(value, str):
        raise NotASlice(f"{path}: {key} is {value!r}")
    return value


def _role(path: Path, info: TensorInfo, layer: int) -> Role:
    match = EXPERT_TENSOR.fullmatch(info.name)
    if match is None or int(match[1]) != layer or match[3] != "weight":
        raise NotASlice(f"{path}: tensor {info.name} does not belong in a slice of layer {layer}")
    return match[2]  # type: ignore[return-value]  # the pattern admits exactly the four roles


def _tensor(path: Path, info: TensorInfo, data: npt.NDArray[np.uint8], experts: int) -> SliceTensor:
    if len(info.shape) != 3 or info.shape[2] != experts or experts < 1 or info.offset % 32:
        raise NotASlice(f"{path}: tensor {info.name} has shape {list(info.shape)} for {experts} experts")
    n_in, n_out, _ = info.shape
    view = data[info.offset : info.offset + info.size].reshape(experts, -1)
    return SliceTensor(info.ggml_type, (n_in, n_out, experts), view.view(np.ndarray))
