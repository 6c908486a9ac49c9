"""What stages should answer: plain llama.cpp with the whole model, fed the same batch, in a process of its own.

A process, because a backbone's own llama.cpp hands experts to the swarm; this one asks nobody. The hidden states at
every place where the model can be cut are read on the way (`cb_eval`), so one decode checks any stage of any ring.
The process answers batches on its standard input; both ends are ours, so they speak pickles.
"""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import llama_cpp
import numpy as np
import numpy.typing as npt

from inference import ggml
from inference.errors import InferenceError
from inference.llama import Batch, Context, ContextSettings, Model
from inference.stage_context import NAME_OFFSET
from inference.ubatches import passes

logger = logging.getLogger(__name__)

LENGTH = struct.Struct("<Q")
STOP_SECONDS = 5.0
NAME_BYTES = 64
# Not `-m`: what it sends must be of this module's classes, not of those of `__main__`.
PROGRAM = "from inference.stage_oracle import main; main()"
Float32s = npt.NDArray[np.float32]


class OracleFailed(InferenceError):
    """The process that recomputes stages ended, or llama.cpp refused the batch."""

    code = "oracle_failed"


@dataclass(frozen=True)
class FreshBatch:
    """A batch whose sequences all begin in it, with the settings of the context that it was decoded in: what it gives
    depends on nothing else. Arrays as in a `Step`: (rows,)."""

    settings: ContextSettings
    tokens: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]
    sequences: npt.NDArray[np.int32]
    wants_logits: npt.NDArray[np.int8]


@dataclass(frozen=True)
class Expected:
    """hidden: by layer, the rows (rows, n_embd) that enter it; logits: (wanted rows, n_vocab)."""

    hidden: Mapping[int, Float32s]
    logits: Float32s


class StageOracle:
    """Starts the process with the first batch. boundaries: layers at which a stage may begin, but 0 and the end.
    Methods from any thread, one at a time."""

    def __init__(self, model: Path, boundaries: Sequence[int]) -> None:
        self._command = [sys.executable, "-c", PROGRAM, str(model), *map(str, boundaries)]
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def compute(self, batch: FreshBatch) -> Expected:
        """Raises OracleFailed."""
        with self._lock:
            process = self._process = self._process or subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            try:
                _send(process.stdin, batch)
                answer = _receive(process.stdout)
            except OSError as error:
                logger.warning("the process that recomputes stages cannot be asked: %s", error)
                answer = None
            if answer is None:
                self._end(kill=True)
        if isinstance(answer, Expected):
            return answer
        raise OracleFailed(str(answer or "the process that recomputes stages ended; the next question starts another"))

    def close(self) -> None:
        with self._lock:
            self._end()

    def _end(self, *, kill: bool = False) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        try:
            process.communicate(timeout=STOP_SECONDS)  # closes its input, which ends it, and both pipes
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        except OSError as error:
            logger.debug("the process had ended: %s", error)


class BoundaryContext(Context):
    """A context of the whole model that shows the hidden states between its layers."""

    def __init__(self, model: Model, settings: ContextSettings, boundaries: Sequence[int]) -> None:
        self._names = {f"l_out-{layer - 1}".encode(): layer for layer in boundaries}
        self._ggml = ggml.load()
        self._seen: dict[int, list[Float32s]] = {}
        self._on_eval = llama_cpp.ggml_backend_sched_eval_callback(self._evaluate)
        super().__init__(model, settings)

    def _parameters(self, settings: ContextSettings) -> Any:
        parameters = super()._parameters(settings)
        parameters.cb_eval = self._on_eval
        return parameters

    def expected(self, batch: Batch) -> Expected:
        """Raises OracleFailed."""
        self._seen.clear()
        code = self.decode(batch)
        if code != 0:
            raise OracleFailed(f"llama_decode gave {code}")
        size = batch.size
        order = np.concatenate(list(passes(batch.sequences[:size], self.settings.batch_tokens)))
        hidden = {}
        for layer, parts in self._seen.items():
            rows = np.concatenate(parts)
            hidden[layer] = np.empty_like(rows)
            hidden[layer][order] = rows
        return Expected(hidden, self.logits(int(np.count_nonzero(batch.wants_logits[:size]))).copy())

    def _evaluate(self, tensor: int, is_question: bool, _: int | None) -> bool:
        """True at the question: we want to see it; True when shown: go on."""
        layer = self._names.get(ctypes.string_at(tensor + NAME_OFFSET, NAME_BYTES).split(b"\0")[0])
        if is_question or layer is None:
            return layer is not None
        shape = ggml.Tensor.from_address(tensor).ne
        rows = np.empty((shape[1], shape[0]), np.float32)
        self._ggml.tensor_get(tensor, rows.ctypes.data, 0, rows.nbytes)
        self._seen.setdefault(layer, []).append(rows)
        return True


def serve(model_path: Path, boundaries: Sequence[int], source: BinaryIO, sink: BinaryIO) -> None:
    """Answers batches until the source ends; a batch that cannot be computed is answered with the reason."""
    with Model(model_path) as model:
        while (asked := _receive(source)) is not None:
            try:
                _send(sink, computed(model, boundaries, asked))
            except InferenceError as error:
                _send(sink, f"{error.code}: {error}")


def computed(model: Model, boundaries: Sequence[int], asked: FreshBatch) -> Expected:
    """Raises OracleFailed, ContextNotMade."""
    with BoundaryContext(model, asked.settings, boundaries) as context:
        batch, size = Batch(asked.settings.batch_tokens), len(asked.tokens)
        batch.size = size
        batch.tokens[:size], batch.positions[:size] = asked.tokens, asked.positions
        batch.sequences[:size], batch.wants_logits[:size] = asked.sequences, asked.wants_logits
        return context.expected(batch)


def _send(sink: Any, value: object) -> None:
    data = pickle.dumps(value)
    sink.write(LENGTH.pack(len(data)) + data)
    sink.flush()


def _receive(source: Any) -> Any:
    """None at the end of the stream."""
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    data = source.read(size)
    return pickle.loads(data) if len(data) == size else None


def main() -> None:
    """`MODEL BOUNDARY ...` on the command line."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # llama.cpp prints; nothing of that may get between the answers
    serve(Path(sys.argv[1]), [int(layer) for layer in sys.argv[2:]], sys.stdin.buffer, answers)
