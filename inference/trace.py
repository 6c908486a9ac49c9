"""The trace of a lane: every change of one llama.cpp context, so that plain llama.cpp can repeat it bit for bit.

A trace is a file of JSON lines. The first is the header (model, fingerprint, context settings). Then one line for each
`decode` (tokens, positions, sequences, logits flags, result code), `remove`, `move`, `copy` and `clear`, in order.
Beside it, same name with `.f32`, lie the logits rows as raw float32, (rows, n_vocab): only rows whose logits flag was
set, in the order of the decodes. A trace must begin with its context and is never rotated; it is written for
verification only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TextIO

import numpy as np
import numpy.typing as npt

from inference.errors import BadTrace
from inference.llama import Batch, ContextSettings

logger = logging.getLogger(__name__)

TRACE_VERSION = 2


@dataclass(frozen=True)
class TraceHeader:
    """fingerprint: of the model build, empty for a model without routed experts; lane: its number."""

    model: Path
    fingerprint: str
    vocabulary_size: int
    settings: ContextSettings
    lane: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "trace": TRACE_VERSION,
            "model": str(self.model),
            "fingerprint": self.fingerprint,
            "vocabulary_size": self.vocabulary_size,
            "settings": self.settings.to_json(),
            "lane": self.lane,
        }


@dataclass(frozen=True)
class Decode:
    """One llama_decode: arrays (tokens,) each; code is what it returned."""

    tokens: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]
    sequences: npt.NDArray[np.int32]
    wants_logits: npt.NDArray[np.int8]
    code: int

    @property
    def rows(self) -> int:
        return int(np.count_nonzero(self.wants_logits)) if self.code == 0 else 0


@dataclass(frozen=True)
class Remove:
    sequence: int


@dataclass(frozen=True)
class Move:
    source: int
    target: int


@dataclass(frozen=True)
class Copy:
    source: int
    target: int


@dataclass(frozen=True)
class Clear:
    pass


Record = Decode | Remove | Move | Copy | Clear


def logits_path(path: Path) -> Path:
    return path.with_suffix(".f32")


class TraceWriter:
    """Writes a trace while a lane runs. Each line is flushed, so a killed process leaves a readable trace.

    most_bytes: lines and logits together; what comes after is not written: the trace then proves the lane's beginning.
    """

    def __init__(self, path: Path, header: TraceHeader, most_bytes: float = float("inf")) -> None:
        self._left_bytes = most_bytes
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lines: TextIO = path.open("w", encoding="utf-8")
        self._rows = logits_path(path).open("wb")
        self._write(header.to_json())

    def decode(self, batch: Batch, code: int, logits: npt.NDArray[np.float32] | None) -> None:
        """Notes a decode; logits: (rows, n_vocab) float32 of the flagged tokens, None when it failed."""
        size = batch.size
        if self._is_full(0 if logits is None else logits.nbytes):
            return
        if logits is not None:
            self._rows.write(np.ascontiguousarray(logits, np.float32).data)
            self._rows.flush()
        self._write(
            {
                "decode": batch.tokens[:size].tolist(),
                "positions": batch.positions[:size].tolist(),
                "sequences": batch.sequences[:size].tolist(),
                "logits": batch.wants_logits[:size].tolist(),
                "code": code,
            }
        )

    def remove(self, sequence: int) -> None:
        self._write({"remove": sequence})

    def move(self, source: int, target: int) -> None:
        self._write({"move": [source, target]})

    def copy(self, source: int, target: int) -> None:
        self._write({"copy": [source, target]})

    def clear(self) -> None:
        self._write({"clear": True})

    def close(self) -> None:
        self._lines.close()
        self._rows.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_full(self, size: int) -> bool:
        """Takes the bytes from what is left; once they are too many, nothing is written any more."""
        if self._left_bytes < size:
            if self._left_bytes > 0:
                logger.warning("the trace %s has reached its size and ends here", self._path)
            self._left_bytes = 0
            return True
        self._left_bytes -= size
        return False

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, separators=(",", ":")) + "\n"
        if self._is_full(len(text)):
            return
        self._lines.write(text)
        self._lines.flush()


class TraceReader:
    """Reads a trace back: `header`, `records()` and `logits` (rows, n_vocab). Raises BadTrace, naming the line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open(encoding="utf-8") as lines:
                first = lines.readline()
        except (OSError, UnicodeDecodeError) as error:
            raise BadTrace(f"cannot read the trace {path}: {error}") from error
        self.header = _header(path, first)

    @property
    def logits(self) -> npt.NDArray[np.float32]:
        """(rows, n_vocab) float32, mapped from the file beside the trace; whole rows only."""
        path, columns = logits_path(self.path), self.header.vocabulary_size
        try:
            rows = path.stat().st_size // (4 * columns)
            if rows == 0:
                return np.zeros((0, columns), np.float32)
            return np.memmap(path, np.float32, "r", shape=(rows, columns))
        except OSError as error:
            raise BadTrace(f"cannot read the logits beside the trace: {error}") from error

    def records(self) -> Iterator[Record]:
        with self.path.open(encoding="utf-8") as lines:
            next(lines)
            for number, line in enumerate(lines, start=2):
                if not line.endswith("\n"):
                    return  # the writer was killed in the middle of this line
                yield _record(self.path, number, line)


def _header(path: Path, line: str) -> TraceHeader:
    try:
        body = json.loads(line)
        if body["trace"] != TRACE_VERSION:
            raise BadTrace(f"{path} has trace version {body['trace']}, this program reads {TRACE_VERSION}")
        return TraceHeader(
            Path(body["model"]),
            str(body["fingerprint"]),
            int(body["vocabulary_size"]),
            ContextSettings(**body["settings"]),
            int(body["lane"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BadTrace(f"{path} does not begin with a trace header") from error


def _record(path: Path, number: int, line: str) -> Record:
    try:
        body = json.loads(line)
        match body:
            case {"decode": tokens, "positions": positions, "sequences": sequences, "logits": flags, "code": code}:
                arrays = [np.array(values, np.int32) for values in (tokens, positions, sequences)]
                if len({len(tokens), len(positions), len(sequences), len(flags)}) != 1:
                    raise BadTrace(f"{path}, line {number}: lists of different lengths")
                return Decode(arrays[0], arrays[1], arrays[2], np.array(flags, np.int8), int(code))
            case {"remove": sequence}:
                return Remove(int(sequence))
            case {"move": [source, target]}:
                return Move(int(source), int(target))
            case {"copy": [source, target]}:
                return Copy(int(source), int(target))
            case {"clear": _}:
                return Clear()
    except (ValueError, TypeError) as error:
        raise BadTrace(f"{path}, line {number}: {error}") from error
    raise BadTrace(f"{path}, line {number}: unknown record")
