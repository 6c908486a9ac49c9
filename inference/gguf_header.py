"""Bytes of a GGUF header, both directions: a bounded reader that trusts no count or length, and a small writer.

Source: the layout in llama.cpp's `ggml/src/gguf.cpp` (versions 2 and 3, little-endian). The reader never maps the file
and never reads tensor data, so a file of 70 GB costs its header only, and one that shrinks meanwhile cannot kill the
process with SIGBUS as a mapping would.
"""

import hashlib
import math
import os
import stat
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from gguf.constants import GGML_QUANT_SIZES

from inference.errors import FileUnreadable, NotGGUF, Truncated, UnknownType

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
# The largest header seen in the wild (250,000 tokens and as many merges) has about 12 MB.
MAX_HEADER_BYTES = 128 << 20
MAX_KEPT_ELEMENTS = 4096
MAX_DIMENSIONS = 4
MAX_TENSOR_BYTES = 1 << 48
FIRST_READ_BYTES = 1 << 20

TYPE_UINT32, TYPE_STRING, TYPE_ARRAY, TYPE_UINT64 = 4, 8, 9, 10
SCALAR_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
GGML_TYPES = {int(kind): (kind.name, block, size) for kind, (block, size) in GGML_QUANT_SIZES.items()}

Scalar = int | float | bool | str


@dataclass(frozen=True)
class LongArray:
    """An array that was walked but not kept: strings (a vocabulary), or more than MAX_KEPT_ELEMENTS numbers."""

    element_type: int
    count: int


MetadataValue = Scalar | tuple[int | float | bool, ...] | LongArray


@dataclass(frozen=True)
class TensorInfo:
    """One tensor: `shape` in ggml order (innermost first); `offset` (from the file's start) and `size` in bytes."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int
    size: int


@dataclass(frozen=True)
class Header:
    """A parsed header. `digests` holds, per key, a digest of the value's type and bytes as they stand in the file;
    `spans` where they stand: [start, end) from the file's start.
    """

    version: int
    alignment: int
    metadata: dict[str, MetadataValue]
    digests: dict[str, bytes]
    spans: dict[str, tuple[int, int]]
    tensors: dict[str, TensorInfo]
    data_start: int


class _MoreNeeded(Exception):
    """The header goes on behind the bytes at hand; `wanted` is the least number of bytes that gets further."""

    def __init__(self, wanted: int) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def type_name(ggml_type: int) -> str:
    """The name of a known ggml type, such as `Q4_K`; `type 99` for one that is not known."""
    return GGML_TYPES[ggml_type][0] if ggml_type in GGML_TYPES else f"type {ggml_type}"


def type_number(name: str) -> int:
    """The number of a ggml type; raises UnknownType for a name that is not one."""
    for number, (known, _, _) in GGML_TYPES.items():
        if known == name:
            return number
    raise UnknownType(f"{name!r} is not a ggml type; known are {', '.join(entry[0] for entry in GGML_TYPES.values())}")


def row_bytes(ggml_type: int, n_in: int) -> int:
    """Bytes of one row of `n_in` values; raises UnknownType for a type not known, NotGGUF where blocks do not fit."""
    if ggml_type not in GGML_TYPES:
        raise UnknownType(f"ggml type {ggml_type} is not known to this version; a newer `gguf` package may know it")
    name, block, size = GGML_TYPES[ggml_type]
    if n_in % block:
        raise NotGGUF(f"a row of {n_in} values cannot be made of {name} blocks of {block}")
    return n_in // block * size


def align(offset: int, alignment: int) -> int:
    """The least multiple of `alignment` that is not below `offset`."""
    return -(-offset // alignment) * alignment


def read_header(path: Path) -> Header:
    """Read and check the header of one file, and that the file holds every tensor that it announces.

    Raises FileUnreadable, NotGGUF, Truncated or UnknownType; nothing else, for any content.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            header = _read_growing(path, file.fileno(), size)
    except OSError as error:
        raise FileUnreadable(f"{path}: cannot be read: {error.strerror or error}") from error
    for tensor in header.tensors.values():
        if tensor.offset + tensor.size > size:
            raise Truncated(
                f"{path}: truncated: tensor {tensor.name} ends at byte {tensor.offset + tensor.size}, "
                f"the file has {size}; fetch it again"
            )
    return header


def open_regular(path: Path) -> FileIO:
    """Open a regular file for reading, unbuffered; raises FileUnreadable for folders, pipes and devices."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise FileUnreadable(f"{path}: not a file")
        return open(path, "rb", buffering=0)
    except ValueError as error:  # a NUL byte in the name
        raise FileUnreadable(f"{path!r}: not a file name") from error


def _read_growing(path: Path, descriptor: int, size: int) -> Header:
    limit = min(size, MAX_HEADER_BYTES)
    data = b""
    wanted = FIRST_READ_BYTES
    while True:
        wanted = min(max(wanted, 4 * len(data)), limit)
        while len(data) < wanted and (piece := os.pread(descriptor, wanted - len(data), len(data))):
            data += piece
        try:
            return parse_header(data, str(path))
        except _MoreNeeded as more:
            if len(data) < wanted or (more.wanted > limit and limit == size):
                raise Truncated(f"{path}: truncated: the file ends inside its header; fetch it again") from None
            if more.wanted > limit:
                raise NotGGUF(f"{path}: not a usable GGUF: its header exceeds {MAX_HEADER_BYTES >> 20} MiB") from None
            wanted = more.wanted


class _Reader:
    """A cursor over the bytes at hand; every read is checked first and asks for more bytes where they end."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        self.where = where
        self.position = 0

    def fail(self, why: str) -> NotGGUF:
        return NotGGUF(f"{self.where}: broken GGUF header: {why}")

    def need(self, count: int) -> None:
        if self.position + count > len(self.data):
            raise _MoreNeeded(self.position + count)

    def take(self, count: int) -> bytes:
        self.need(count)
        self.position += count
        return self.data[self.position - count : self.position]

    def scalar(self, value_type: int) -> int | float | bool:
        form = "<" + SCALAR_FORMATS[value_type]
        value: int | float | bool = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def uint32(self) -> int:
        return int(self.scalar(TYPE_UINT32))

    def uint64(self) -> int:
        return int(self.scalar(TYPE_UINT64))

    def text(self, what: str) -> str:
        length = self.uint64()
        if length > MAX_HEADER_BYTES:
            raise self.fail(f"{what} of {length} bytes")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise self.fail(f"{what} is not UTF-8") from None

    def skip_strings(self, count: int) -> None:
        """Walk over `count` strings; the tight loop matters, a vocabulary and its merges are half a million."""
        unpack, data, position, end = struct.Struct("<Q").unpack_from, self.data, self.position, len(self.data)
        for _ in range(count):
            if position + 8 > end:
                raise _MoreNeeded(position + 8)
            length: int = unpack(data, position)[0]
            if length > MAX_HEADER_BYTES:
                raise self.fail(f"a string of {length} bytes")
            position += 8 + length
        self.position = position
        self.need(0)


def parse_header(data: bytes, where: str) -> Header:
    """Parse a header that begins at `data[0]`; `where` names it in errors. Raises as `read_header`, and _MoreNeeded."""
    reader = _Reader(data, where)
    version = _preamble(reader)
    tensor_count, key_count = reader.uint64(), reader.uint64()
    # A tensor takes at least 32 bytes of header and a key 13: larger counts cannot be true.
    if tensor_count > MAX_HEADER_BYTES // 32 or key_count > MAX_HEADER_BYTES // 13:
        raise reader.fail(f"{tensor_count} tensors and {key_count} keys")
    metadata: dict[str, MetadataValue] = {}
    digests: dict[str, bytes] = {}
    spans: dict[str, tuple[int, int]] = {}
    for _ in range(key_count):
        key = reader.text("a key")
        if key in metadata:
            raise reader.fail(f"key {key!r} appears twice")
        start = reader.position
        metadata[key] = _value(reader, key)
        digests[key] = hashlib.sha256(memoryview(data)[start : reader.position]).digest()
        spans[key] = start, reader.position
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise reader.fail(f"general.alignment is {alignment!r}, not a power of two")
    infos = [_tensor(reader, alignment) for _ in range(tensor_count)]
    data_start = align(reader.position, alignment)
    tensors = {
        info.name: TensorInfo(info.name, info.shape, info.ggml_type, data_start + info.offset, info.size)
        for info in infos
    }
    if len(tensors) != len(infos):
        raise reader.fail("a tensor name appears twice")
    return Header(version, alignment, metadata, digests, spans, tensors, data_start)


def _preamble(reader: _Reader) -> int:
    magic = reader.data[:4]
    if not MAGIC.startswith(magic):
        raise NotGGUF(f"{reader.where}: not a GGUF file (it begins with {magic!r})")
    reader.take(4)
    version = reader.uint32()
    if version & 0xFFFF == 0:
        raise NotGGUF(f"{reader.where}: a big-endian GGUF; only little-endian files can be used, convert it again")
    if version not in (2, 3):
        raise NotGGUF(f"{reader.where}: GGUF version {version}; versions 2 and 3 can be read, convert it again")
    return version


def _value(reader: _Reader, key: str) -> MetadataValue:
    value_type = reader.uint32()
    if value_type == TYPE_STRING:
        return reader.text(f"the value of {key}")
    if value_type in SCALAR_FORMATS:
        return reader.scalar(value_type)
    if value_type != TYPE_ARRAY:
        raise reader.fail(f"key {key!r} has value type {value_type}")
    element_type, count = reader.uint32(), reader.uint64()
    if count > MAX_HEADER_BYTES:
        raise reader.fail(f"key {key!r} has {count} elements")
    if element_type == TYPE_STRING:
        reader.skip_strings(count)
        return LongArray(element_type, count)
    if element_type not in SCALAR_FORMATS:
        raise reader.fail(f"key {key!r} has elements of type {element_type}")
    form = f"<{count}{SCALAR_FORMATS[element_type]}"
    raw = reader.take(struct.calcsize(form))
    return struct.unpack(form, raw) if count <= MAX_KEPT_ELEMENTS else LongArray(element_type, count)


def _tensor(reader: _Reader, alignment: int) -> TensorInfo:
    """One tensor record; its offset is still relative to the data section."""
    name = reader.text("a tensor name")
    dimensions = reader.uint32()
    if dimensions > MAX_DIMENSIONS:
        raise reader.fail(f"tensor {name!r} has {dimensions} dimensions")
    shape = tuple(reader.uint64() for _ in range(dimensions))
    ggml_type, offset = reader.uint32(), reader.uint64()
    try:
        size = row_bytes(ggml_type, shape[0] if shape else 1) * math.prod(shape[1:])
    except UnknownType as error:
        raise UnknownType(f"{reader.where}: tensor {name}: {error}") from None
    except NotGGUF as error:
        raise reader.fail(f"tensor {name!r}: {error}") from None
    if offset % alignment or offset > MAX_TENSOR_BYTES or size > MAX_TENSOR_BYTES:
        raise reader.fail(f"tensor {name!r} has offset {offset} and {size} bytes")
    return TensorInfo(name, shape, ggml_type, offset, size)


# --- writing ----------------------------------------------------------------------------------------------------------
def encode_header(
    metadata: Mapping[str, int | str | bytes], tensors: Iterable[tuple[str, tuple[int, ...], int, int]]
) -> bytes:
    """A GGUF version 3 header, padded to the default alignment.

    `metadata` values: str is stored as a string, int as uint64 (uint32 where the key begins with `general.`, as its
    readers demand), bytes as they are: a value's type and bytes. `tensors`: (name, shape in ggml order, ggml type,
    size in bytes), laid out in this order, each padded to the alignment.
    """
    records = list(tensors)
    parts = [MAGIC, struct.pack("<IQQ", 3, len(records), len(metadata))]
    for key, value in metadata.items():
        parts.append(_text(key))
        if isinstance(value, bytes):
            parts.append(value)
        elif isinstance(value, str):
            parts.append(struct.pack("<I", TYPE_STRING) + _text(value))
        elif key.startswith("general."):
            parts.append(encode_uint32(value))
        else:
            parts.append(struct.pack("<IQ", TYPE_UINT64, value))
    offset = 0
    for name, shape, ggml_type, size in records:
        parts.append(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, ggml_type, offset))
        offset = align(offset + size, DEFAULT_ALIGNMENT)
    header = b"".join(parts)
    return header.ljust(align(len(header), DEFAULT_ALIGNMENT), b"\0")


def encode_uint32(value: int) -> bytes:
    """A number as `encode_header` takes it, for keys whose readers demand this type."""
    return struct.pack("<II", TYPE_UINT32, value)


def encode_array(element_type: int, values: Sequence[int | float | bool]) -> bytes:
    """An array as `encode_header` takes it: the value's type, then the elements."""
    elements = struct.pack(f"<{len(values)}{SCALAR_FORMATS[element_type]}", *values)
    return struct.pack("<IIQ", TYPE_ARRAY, element_type, len(values)) + elements


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded
