"""Stage files: a run of layers as a GGUF of its own that unpatched llama.cpp loads, made of byte ranges of the model.

`blk.a..b` become `blk.0..`, `block_count` and every per-layer array are cut alike, and the vocabulary is left out: the
coordinator holds the tokenizer. llama.cpp wants an embedding table in every stage, and of some architectures a head: in
the first and last stage what is not used is a hole of its size; one between has a single row of each, so that its
vocabulary of one token makes the head free. A hole reads as zeros, takes no room on disk and travels as nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

from inference.errors import NoStages
from inference.gguf_header import (
    DEFAULT_ALIGNMENT,
    Header,
    TensorInfo,
    align,
    encode_array,
    encode_header,
    encode_uint32,
    row_bytes,
)
from inference.gguf_index import EXPERT_TENSOR, ModelIndex
from inference.gguf_split import read_parts
from inference.slices import SlicePlan, read_span, segment
from inference.stages import GRAPHS, STAGE_LAYER, StageCuts, stage_cuts

FORMAT_VERSION = 1
BLOCK_TENSOR = re.compile(r"blk\.(0|[1-9]\d{0,4})\.(.+)")
EMBEDDING, HEAD = "token_embd.weight", "output.weight"
# Arrays with an element per layer, by the loaders of the architectures in `stages.GRAPHS`; and those without.
PER_LAYER = frozenset({
    "attention.head_count",
    "attention.head_count_kv",
    "attention.recurrent_layers",
    "expert_feed_forward_length",
    "expert_used_count",
    "feed_forward_length",
    "swiglu_clamp_exp",
    "swiglu_clamp_shexp",
})  # fmt: skip
WHOLE_ARRAYS = frozenset({"rope.dimension_sections"})
LEFT_OUT = re.compile(r"split\..*|tokenizer\..*|general\.alignment|expertswarm\..*|[^.]+\.nextn_predict_layers")


@dataclass(frozen=True)
class StageTensor:
    """One tensor of a stage: its bytes are the first `size` of `source` in `file`, or a hole of zeros."""

    name: str
    shape: tuple[int, ...]
    size: int
    source: TensorInfo
    file: Path
    is_hole: bool = False


@dataclass(frozen=True)
class StageSource:
    """A model that stages are cut from. parts: (file, header) of every file, the first with the metadata."""

    index: ModelIndex
    cuts: StageCuts
    parts: tuple[tuple[Path, Header], ...]

    @property
    def vocabulary_size(self) -> int:
        return self._tensors[EMBEDDING][1].shape[1]

    @property
    def is_tied(self) -> bool:
        """Whether the head is the embedding table."""
        return HEAD not in self._tensors

    @cached_property
    def unit_bytes(self) -> tuple[int, ...]:
        """Bytes of each unit with its experts; the first counts the embeddings too, the last the head, holes are full:
        a stage file of several units is never larger than their sum and a header."""
        units = range(self.cuts.units)
        return tuple(
            sum(align(tensor.size, DEFAULT_ALIGNMENT) for tensor in self._stage(unit, unit + 1, without_experts=False))
            for unit in units
        )

    @cached_property
    def unit_flops(self) -> tuple[int, ...]:
        """Floating point operations of one token in each unit's matrices: two per weight; of the experts only those
        that a token uses."""
        share = self.index.experts_used / self.index.experts_per_layer
        return tuple(
            round(sum(2 * prod(tensor.shape) * (share if _is_expert(tensor.name) else 1) for tensor in tensors))
            for tensors in (
                self._layers(*self.cuts.layers_of(unit, unit + 1), without_experts=False)
                for unit in range(self.cuts.units)
            )
        )

    def plan(self, first_unit: int, last_unit: int, *, without_experts: bool = False) -> SlicePlan:
        """The stage of the units [first_unit, last_unit). Raises CutRefused; without_experts: holes in their place."""
        tensors = list(self._stage(first_unit, last_unit, without_experts=without_experts))
        header = encode_header(
            self._metadata(*self.cuts.layers_of(first_unit, last_unit), without_experts=without_experts),
            [(tensor.name, tensor.shape, tensor.source.ggml_type, tensor.size) for tensor in tensors],
        )
        segments = tuple(
            segment(None if tensor.is_hole else tensor.file, tensor.source.offset, tensor.size) for tensor in tensors
        )
        return SlicePlan(self.cuts.build, STAGE_LAYER, first_unit, last_unit, header, segments, without_experts)

    # --- tensors ------------------------------------------------------------------------------------------------------
    def _stage(self, first_unit: int, last_unit: int, *, without_experts: bool) -> Iterator[StageTensor]:
        first, last = self.cuts.layers_of(first_unit, last_unit)
        is_last, graph = last == self.cuts.trunk_layers, GRAPHS[self.index.architecture]
        for name, (file, info) in sorted(self._tensors.items()):
            if BLOCK_TENSOR.fullmatch(name) or (name == HEAD and not is_last and not graph.needs_head):
                continue
            is_used = {EMBEDDING: first == 0 or (is_last and self.is_tied), HEAD: is_last}.get(name, True)
            if is_used or first == 0 or is_last:
                yield StageTensor(name, info.shape, info.size, info, file, is_hole=not is_used)
            else:
                width = info.shape[0]
                yield StageTensor(name, (width, 1), row_bytes(info.ggml_type, width), info, file)
        yield from self._layers(first, last, without_experts=without_experts)

    def _layers(self, first: int, last: int, *, without_experts: bool) -> Iterator[StageTensor]:
        for layer in range(first, last):
            for rest, file, info in self._blocks[layer]:
                name = f"blk.{layer - first}.{rest}"
                yield StageTensor(name, info.shape, info.size, info, file, without_experts and _is_expert(name))

    @cached_property
    def _tensors(self) -> dict[str, tuple[Path, TensorInfo]]:
        return {name: (file, info) for file, header in self.parts for name, info in header.tensors.items()}

    @cached_property
    def _blocks(self) -> dict[int, list[tuple[str, Path, TensorInfo]]]:
        blocks: dict[int, list[tuple[str, Path, TensorInfo]]] = {}
        for name, (file, info) in sorted(self._tensors.items()):
            if match := BLOCK_TENSOR.fullmatch(name):
                blocks.setdefault(int(match[1]), []).append((match[2], file, info))
        return blocks

    # --- metadata -----------------------------------------------------------------------------------------------------
    def _metadata(self, first: int, last: int, *, without_experts: bool) -> dict[str, int | str | bytes]:
        """Keys in a fixed order, so that equal builds give equal stages whatever their files are called."""
        architecture = self.index.architecture
        is_middle = first > 0 and last < self.cuts.trunk_layers
        copied = self._copied(first, last)
        return copied | {
            "general.architecture": architecture,
            "general.type": "stage",
            "general.name": f"{self.index.name}, layers {first}:{last}",
            "tokenizer.ggml.model": "no_vocab",
            f"{architecture}.vocab_size": encode_uint32(1 if is_middle else self.vocabulary_size),
            f"{architecture}.block_count": encode_uint32(last - first),
            "expertswarm.stage_format": FORMAT_VERSION,
            "expertswarm.build": self.cuts.build,
            "expertswarm.model": self.index.fingerprint,
            "expertswarm.first_layer": first,
            "expertswarm.last_layer": last,
            "expertswarm.trunk_layers": self.cuts.trunk_layers,
            "expertswarm.experts": int(not without_experts),
        }

    def _copied(self, first: int, last: int) -> dict[str, int | str | bytes]:
        """The model's own keys as they stand in its file, arrays with an element per layer cut."""
        file, header = self.parts[0]
        found: dict[str, int | str | bytes] = {}
        for key in sorted(header.metadata):
            if LEFT_OUT.fullmatch(key):
                continue
            start, stop = header.spans[key]
            raw, value = read_span(file, start, stop - start), header.metadata[key]
            if isinstance(value, tuple) and self._is_per_layer(key, len(value)):
                raw = encode_array(int.from_bytes(raw[4:8], "little"), value[first:last])
            found[key] = raw
        return found

    def _is_per_layer(self, key: str, length: int) -> bool:
        """Raises NoStages for an array that has as many elements as there are layers and is not known."""
        name = key.removeprefix(f"{self.index.architecture}.")
        if name in PER_LAYER:
            return length >= self.cuts.trunk_layers
        if length in (self.cuts.trunk_layers, self.cuts.trunk_layers + self.index.nextn_layers) and (
            name not in WHOLE_ARRAYS and name != key
        ):
            raise NoStages(f"{self.index.path}: {key} has an element per layer and is not known, so it cannot be cut")
        return False


def open_stages(index: ModelIndex) -> StageSource:
    """Reads the headers again, with where their values stand. Raises NoStages, and what `read_parts` raises."""
    parts = tuple(read_parts(index.path))
    tables = [header.tensors[EMBEDDING] for _, header in parts if EMBEDDING in header.tensors]
    if len(tables) != 1 or len(tables[0].shape) != 2:
        raise NoStages(f"{index.path}: no embedding table {EMBEDDING} of two dimensions; every stage needs one")
    return StageSource(index, stage_cuts(index), parts)


def _is_expert(name: str) -> bool:
    match = EXPERT_TENSOR.fullmatch(name)
    return match is not None and match[3] == "weight"
