"""Slices (mini-GGUF): a contiguous run of one layer's experts as a GGUF of its own, made of byte ranges of the source.

The expert index is the outermost dimension of every MoE tensor, so nothing is dequantised or repacked: a slice is a
header of ours, then one range of the source per tensor, each padded to 32 bytes. A plan knows where every byte of the
slice lies, so that any part can be read from the source files at any time and no second copy is kept.
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from inference.errors import BadManifest, FileUnreadable, FileUnwritable, RangeOutside, Truncated
from inference.gguf_header import DEFAULT_ALIGNMENT, align, encode_header, open_regular
from inference.gguf_index import ModelIndex
from inference.slice_file import FORMAT_VERSION, SliceFile

__all__ = ["SliceFile", "SliceManifest", "SlicePlan", "plan_slice", "slice_manifest", "write_slice"]

# What one HTTP answer carries at most, so what a stalled reader can hold; 1 MiB still gave 110 MB/s on two cores.
PIECE_BYTES = 1 << 20
BLOCK_BYTES = 4096  # of a file system: what a hole is made of
HEX_DIGEST = re.compile("[0-9a-f]{64}")
Progress = Callable[[int], object]


class Segment(NamedTuple):
    """`size` bytes of `file` from `offset`, followed by `padding` zero bytes. Without a file: a hole of zeros."""

    file: Path | None
    offset: int
    size: int
    padding: int


@dataclass(frozen=True)
class SlicePlan:
    """Experts `first` to `last` (exclusive) of `layer` as a GGUF of `size` bytes: `header`, then the segments.

    Of a stage build (`inference.stage_file`): its units `first` to `last`, and perhaps holes in the place of experts.
    """

    build: str
    layer: int
    first: int
    last: int
    header: bytes
    segments: tuple[Segment, ...]
    without_experts: bool = False

    @cached_property
    def size(self) -> int:
        return len(self.header) + sum(segment.size + segment.padding for segment in self.segments)

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of the slice, cut at its end. Raises FileUnreadable or Truncated."""
        return b"".join(self._spans(start, min(stop, self.size)))

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        """The whole slice in chunks of `chunk_bytes` (the last may be shorter)."""
        for start in range(0, self.size, chunk_bytes):
            yield self.read(start, start + chunk_bytes)

    def _spans(self, start: int, stop: int) -> Iterator[bytes]:
        if start < len(self.header):
            yield self.header[max(start, 0) : stop]
        position = len(self.header)
        for segment in self.segments:
            begin, end = max(start - position, 0), min(stop - position, segment.size)
            if begin < end and segment.file is None:
                yield bytes(end - begin)
            elif begin < end and segment.file is not None:
                yield read_span(segment.file, segment.offset + begin, end - begin)
            padding_end = min(stop - position, segment.size + segment.padding)
            yield bytes(max(padding_end - max(begin, segment.size), 0))
            position += segment.size + segment.padding


def read_span(file: Path, offset: int, size: int) -> bytes:
    """Exactly `size` bytes; pread, so threads may share nothing and a shrunken file is an error and not a signal."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    done = 0
    try:
        with open_regular(file) as source:
            while done < size and (count := os.preadv(source.fileno(), [view[done:]], offset + done)):
                done += count
    except OSError as error:
        raise FileUnreadable(f"{file}: cannot be read: {error.strerror or error}") from error
    if done < size:
        raise Truncated(f"{file}: ends at byte {offset + done} of {offset + size}; it changed after it was opened")
    return bytes(buffer)


def plan_slice(index: ModelIndex, layer: int, first: int, last: int) -> SlicePlan:
    """Plan the slice of experts `first` to `last` (exclusive). Raises RangeOutside for what the model does not have."""
    experts = index.layers.get(layer)
    if experts is None:
        numbers = sorted(index.layers)
        raise RangeOutside(f"layer {layer} has no routed experts; they are in layers {numbers[0]} to {numbers[-1]}")
    if not 0 <= first < last <= experts.experts:
        raise RangeOutside(f"experts {first}:{last} of layer {layer}; choose A < B within 0:{experts.experts}")
    count = last - first
    records = [
        (tensor.name, (tensor.n_in, tensor.n_out, count), tensor.ggml_type, count * tensor.expert_bytes)
        for tensor in experts.tensors
    ]
    header = encode_header(_metadata(index, layer, first, last), records)
    segments = tuple(
        segment(tensor.file, tensor.offset + first * tensor.expert_bytes, count * tensor.expert_bytes)
        for tensor in experts.tensors
    )
    return SlicePlan(index.fingerprint, layer, first, last, header, segments)


def segment(file: Path | None, offset: int, size: int) -> Segment:
    """One tensor's bytes, padded as `encode_header` lays tensors out."""
    return Segment(file, offset, size, align(size, DEFAULT_ALIGNMENT) - size)


def _metadata(index: ModelIndex, layer: int, first: int, last: int) -> dict[str, int | str]:
    """Only what the fingerprint stands for, so that equal builds give equal slices whatever their files are called."""
    return {
        "general.architecture": index.architecture,
        "general.type": "expert-slice",
        "general.name": f"experts {first}:{last} of layer {layer}",
        "expertswarm.format": FORMAT_VERSION,
        "expertswarm.build": index.fingerprint,
        "expertswarm.layer": layer,
        "expertswarm.first": first,
        "expertswarm.last": last,
        "expertswarm.n_embd": index.n_embd,
        "expertswarm.n_ff": index.layers[layer].tensors[-1].n_in,
        "expertswarm.activation": index.activation,
    }


@dataclass(frozen=True)
class SliceManifest:
    """What a receiver checks a slice by: its size, its digest, and the digest of every piece of `piece_bytes`."""

    build: str
    layer: int
    first: int
    last: int
    size: int
    piece_bytes: int
    sha256: str
    pieces: tuple[str, ...]

    def is_hole(self, number: int) -> bool:
        """Whether a piece is nothing but zeros, so that nobody need send it."""
        return self.pieces[number] == zeros_digest(self.piece_size(number))

    def piece_size(self, number: int) -> int:
        return min(self.piece_bytes, self.size - number * self.piece_bytes)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> "SliceManifest":
        """Parse and check a manifest that a server sent. Raises BadManifest."""
        try:
            body = json.loads(text)
            numbers = {key: body[key] for key in ("layer", "first", "last", "size", "piece_bytes")}
            manifest = cls(build=body["build"], sha256=body["sha256"], pieces=tuple(body["pieces"]), **numbers)
            manifest._check()
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadManifest(f"the server's slice manifest cannot be used: {error!r}") from error
        return manifest

    def _check(self) -> None:
        for key in ("layer", "first", "last", "size", "piece_bytes"):
            if type(getattr(self, key)) is not int or getattr(self, key) < 0:
                raise ValueError(key)
        if not self.size or not self.piece_bytes or len(self.pieces) != -(-self.size // self.piece_bytes):
            raise ValueError("pieces do not add up to the size")
        if not isinstance(self.build, str) or not all(HEX_DIGEST.fullmatch(digest) for digest in self.digests):
            raise ValueError("digests")

    @property
    def digests(self) -> tuple[str, ...]:
        return (self.sha256, *self.pieces)


@lru_cache(maxsize=8)
def zeros_digest(size: int) -> str:
    """SHA-256 of so many zero bytes, in hex."""
    return hashlib.sha256(bytes(size)).hexdigest()


def slice_manifest(plan: SlicePlan, piece_bytes: int = PIECE_BYTES) -> SliceManifest:
    """Read the whole slice once, a piece at a time, and digest it."""
    whole = hashlib.sha256()
    pieces = []
    for piece in plan.chunks(piece_bytes):
        whole.update(piece)
        pieces.append(hashlib.sha256(piece).hexdigest())
    return SliceManifest(
        plan.build, plan.layer, plan.first, plan.last, plan.size, piece_bytes, whole.hexdigest(), tuple(pieces)
    )


def write_slice(plan: SlicePlan, path: Path, progress: Progress | None = None) -> str:
    """Write the slice to `path` all at once (a temporary neighbour is renamed over it); returns its SHA-256 in hex.

    `progress` gets the byte count of every piece. Raises FileUnwritable for the target, and what `read` raises.
    """
    if any(part.file is not None and _same_file(path, part.file) for part in plan.segments):
        raise FileUnwritable(f"{path}: is a file of the model itself; choose another name for the slice")
    digest = hashlib.sha256()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file:
            for piece in plan.chunks(PIECE_BYTES):
                write_sparsely(file, piece)
                digest.update(piece)
                if progress is not None:
                    progress(len(piece))
            file.truncate(plan.size)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise FileUnwritable(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return digest.hexdigest()


def write_sparsely(file: BinaryIO, piece: bytes) -> None:
    """Writes at the file's end; blocks of zeros leave a hole, which `truncate` must close where it comes last."""
    whole = len(piece) // BLOCK_BYTES
    blocks = np.frombuffer(piece, np.uint8, whole * BLOCK_BYTES).reshape(whole, BLOCK_BYTES)
    is_data = np.append(blocks.view(np.uint64).any(axis=1), True)
    start = 0
    for end in (at for at in range(1, whole + 2) if at == whole + 1 or is_data[at] != is_data[at - 1]):
        if is_data[start]:
            file.write(piece[start * BLOCK_BYTES : end * BLOCK_BYTES])
        else:
            file.seek((end - start) * BLOCK_BYTES, os.SEEK_CUR)
        start = end


def _same_file(path: Path, source: Path) -> bool:
    return path.exists() and path.samefile(source)
