"""Model files from recipes: written tensor by tensor, written sparse, split into parts, parts of the demo copied.

A recipe is metadata plus tensors whose data are made only when they are written, so a file may exceed the memory.
"""

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from inference.errors import GGUFError
from inference.gguf_header import DEFAULT_ALIGNMENT, align, parse_header, read_header, row_bytes
from inference.synthetic_weights import F32, Q4_K, generator, random_matrix

__all__ = ["F32", "Q4_K", "Kind", "Quant", "Recipe", "Tensor", "copied_metadata", "split", "write", "write_sparse"]

RECIPE_KEY = "expertswarm.recipe"
# Raise it when the same recipe begins to write other bytes: files in callers' caches are then made again.
RECIPE_VERSION = 1
Kind = gguf.GGUFValueType
# The writer announces every file at INFO.
logging.getLogger("gguf.gguf_writer").setLevel(logging.WARNING)
Quant = gguf.GGMLQuantizationType


@dataclass(frozen=True)
class Tensor:
    """`shape` outermost dimension first (numpy's order), `make` returns the data in any shape of the right size."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    make: Callable[[], npt.NDArray[Any]]

    @property
    def size(self) -> int:
        return row_bytes(self.ggml_type, self.shape[-1]) * int(np.prod(self.shape[:-1], dtype=np.int64))


@dataclass
class Recipe:
    """A model to be written. `title` tells one recipe from another: a file that carries it is not written again."""

    title: str
    architecture: str
    seed: int = 0
    metadata: dict[str, tuple[Any, Kind, Kind | None]] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)

    @property
    def stamp(self) -> str:
        return f"{RECIPE_VERSION}: {self.title}"

    def number(self, key: str, value: int | float) -> None:
        """Metadata `<architecture>.<key>`: uint32 for int, float32 for float."""
        kind = Kind.FLOAT32 if isinstance(value, float) else Kind.UINT32
        self.metadata[f"{self.architecture}.{key}"] = (value, kind, None)

    def numbers(self, key: str, values: Sequence[int]) -> None:
        self.metadata[f"{self.architecture}.{key}"] = (list(values), Kind.ARRAY, Kind.INT32)

    def matrix(self, name: str, shape: tuple[int, ...], ggml_type: int) -> None:
        """A tensor of random weights, deviation 1/sqrt(n_in)."""
        self.tensors.append(
            Tensor(name, shape, ggml_type, lambda: random_matrix(generator(self.seed, name), shape, ggml_type))
        )

    def vector(self, name: str, length: int, low: float, high: float) -> None:
        """A float32 vector, uniform in [low, high)."""
        self.tensors.append(
            Tensor(
                name,
                (length,),
                F32,
                lambda: generator(self.seed, name).uniform(low, high, length).astype(np.float32),
            )
        )

    def norm(self, name: str, length: int) -> None:
        """Scales of a norm, around 1."""
        self.vector(name, length, 0.9, 1.1)


def write(
    recipe: Recipe, path: Path, *, processes: int = 1, progress: Callable[[float], None] = lambda share: None
) -> Path:
    """Write the model (a temporary neighbour is renamed), unless `path` holds the same recipe already.

    processes: forked ones, each with a tensor at a time, for files that one core would write for minutes.
    """
    if _holds(path, recipe):
        return path
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write_sparse(recipe, temporary, ())
        total, done = sum(tensor.size for tensor in recipe.tensors), 0
        for size in _filled(recipe, temporary, processes):
            done += size
            progress(done / total)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _filled(recipe: Recipe, path: Path, processes: int) -> Iterator[int]:
    """Writes the data of every tensor, the largest first; yields the bytes of each when it is there."""
    places = read_header(path).tensors

    def fill(number: int) -> int:
        tensor = recipe.tensors[number]
        with open(path, "r+b") as file:
            file.seek(places[tensor.name].offset)
            file.write(np.ascontiguousarray(tensor.make()).view(np.uint8).data)
        return tensor.size

    order = sorted(range(len(recipe.tensors)), key=lambda number: -recipe.tensors[number].size)
    if processes == 1:
        yield from map(fill, order)
        return
    # Forked children inherit the recipe, whose closures cannot be pickled.
    with multiprocessing.get_context("fork").Pool(processes, _inherit, [fill]) as pool:
        yield from pool.imap_unordered(_call_inherited, order)


_inherited: Callable[[int], int]


def _inherit(function: Callable[[int], int]) -> None:
    global _inherited
    _inherited = function


def _call_inherited(number: int) -> int:
    return _inherited(number)


def write_sparse(recipe: Recipe, path: Path, filled: Iterable[tuple[str, int, int]]) -> Path:
    """Write the header, then a hole of the data's size; `filled` spans (tensor name, offset, size) get random bytes."""
    _write_header(recipe, path).close()
    tensors = parse_header(path.read_bytes(), str(path)).tensors
    with open(path, "r+b") as file:
        file.truncate(max(align(tensor.offset + tensor.size, DEFAULT_ALIGNMENT) for tensor in tensors.values()))
        for name, offset, size in filled:
            file.seek(tensors[name].offset + offset)
            file.write(generator(recipe.seed, f"{name} {offset}").bytes(size))
    return path


def split(path: Path, folder: Path, parts: int) -> list[Path]:
    """Split a GGUF into `folder/NAME-00001-of-000NN.gguf` as llama.cpp's gguf-split does: all metadata in the first."""
    reader = gguf.GGUFReader(path)
    groups = [list(group) for group in np.array_split(np.arange(len(reader.tensors)), parts)]
    paths = [folder / f"{path.stem}-{number + 1:05}-of-{parts:05}.gguf" for number in range(parts)]
    for number, (target, group) in enumerate(zip(paths, groups, strict=True)):
        writer = gguf.GGUFWriter(str(target), _text(reader, "general.architecture"))
        if number == 0:
            for key, value in copied_metadata(reader, "").items():
                writer.add_key_value(key, *value)
        writer.add_key_value("split.no", number, Kind.UINT16)
        writer.add_key_value("split.count", parts, Kind.UINT16)
        writer.add_key_value("split.tensors.count", len(reader.tensors), Kind.INT32)
        for tensor in (reader.tensors[index] for index in group):
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


def copied_metadata(reader: gguf.GGUFReader, prefix: str) -> dict[str, tuple[Any, Kind, Kind | None]]:
    """The entries of a file whose key begins with `prefix`, ready for a Recipe; the architecture is left out."""
    return {
        name: (entry.contents(), entry.types[0], entry.types[-1] if entry.types[0] == Kind.ARRAY else None)
        for name, entry in reader.fields.items()
        if name.startswith(prefix) and not name.startswith("GGUF.") and name != "general.architecture"
    }


def _text(reader: gguf.GGUFReader, key: str) -> str:
    return str(reader.fields[key].contents())


def _holds(path: Path, recipe: Recipe) -> bool:
    try:
        return read_header(path).metadata.get(RECIPE_KEY) == recipe.stamp
    except GGUFError:
        return False


def _write_header(recipe: Recipe, path: Path) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(str(path), recipe.architecture)
    for key, (value, kind, element_kind) in recipe.metadata.items():
        writer.add_key_value(key, value, kind, element_kind)
    writer.add_string(RECIPE_KEY, recipe.stamp)
    for tensor in recipe.tensors:
        writer.add_tensor_info(
            tensor.name, tensor.shape, np.dtype(np.float32), tensor.size, raw_dtype=Quant(tensor.ggml_type)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    return writer
