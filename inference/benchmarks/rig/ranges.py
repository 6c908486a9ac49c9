"""Ranges of experts as the slices that they would be, mapped where they lie in the model's own file.

A slice is a byte-range copy, so its views and these hold the same bytes. Here no copy is made: workers of one machine
share the pages of one file with the backbone, any placement is there at once, and experts of 65 GB take no more.
"""

from pathlib import Path

import numpy as np

from inference.gguf_index import ExpertTensor, ModelIndex
from inference.slice_file import SliceFile, SliceTensor
from inference.verify.local_swarm import Range


class MappedRanges:
    """Slices of one model; each of its files is mapped once. Raises OSError where a file cannot be mapped."""

    def __init__(self, index: ModelIndex) -> None:
        self._index = index
        self._files: dict[Path, np.memmap[tuple[int], np.dtype[np.uint8]]] = {}

    def slice_of(self, held: Range) -> SliceFile:
        experts = self._index.layers[held.layer]
        return SliceFile(
            path=self._index.path,
            build=self._index.fingerprint,
            layer=held.layer,
            first=held.first,
            last=held.last,
            architecture=self._index.architecture,
            activation=self._index.activation,
            n_embd=self._index.n_embd,
            n_ff=experts.tensors[-1].n_in,
            merged=experts.merged,
            tensors={tensor.role: self._tensor(tensor, held) for tensor in experts.tensors},
        )

    def _tensor(self, tensor: ExpertTensor, held: Range) -> SliceTensor:
        if tensor.file not in self._files:
            self._files[tensor.file] = np.memmap(tensor.file, np.uint8, "r")
        count = held.last - held.first
        start = tensor.offset + held.first * tensor.expert_bytes
        view = self._files[tensor.file][start : start + count * tensor.expert_bytes].reshape(count, -1)
        return SliceTensor(tensor.ggml_type, (tensor.n_in, tensor.n_out, count), view.view(np.ndarray))
