"""Repeats a trace in plain llama.cpp and compares every logits row: `python -m inference.verify.replay TRACE`.

It must run in a process without our expert backend (ggml cannot take a device back), which is why it is a program of
its own. Prints one JSON object and exits 0 when every row has the same bits, 1 when not, 2 when the trace is unusable.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inference.errors import BadTrace, DenseModel, InferenceError
from inference.gguf_index import open_index
from inference.llama import Batch, Context, Model
from inference.trace import Clear, Copy, Decode, Move, Remove, TraceReader
from inference.verify.divergence import divergence, same_choices


@dataclass(frozen=True)
class Replay:
    """positions: logits rows compared; tokens: decoded, prompts included; largest_batch: most rows of one decode.

    max_abs_diff: over all logits, infinite where only one side is finite. equal_bits: all bits of all rows are equal.
    kl_max, kl_mean: KL(plain || recorded) in nats; top1_agreement: share of positions with the same likeliest token.
    """

    positions: int
    tokens: int
    decodes: int
    largest_batch: int
    max_abs_diff: float
    equal_bits: bool
    kl_max: float = 0.0
    kl_mean: float = 0.0
    top1_agreement: float = 1.0


def replay(path: Path, progress: Callable[[int], None] = lambda rows: None, *, gpu_layers: int = 0) -> Replay:
    """Replays one trace; progress(rows) is called after each decode. Raises BadTrace, ModelNotLoaded, GGUFError.

    gpu_layers: as when it was recorded; a GPU computes the dense path in other bits.
    """
    reader = TraceReader(path)
    header, recorded = reader.header, reader.logits
    try:
        fingerprint = open_index(header.model).fingerprint
    except DenseModel:
        fingerprint = ""
    if fingerprint != header.fingerprint:
        raise BadTrace(f"{header.model} is not the model that the trace was made with (its fingerprint differs)")
    tokens = decodes = row = largest = 0
    worst, equal, same = 0.0, True, 0
    kl_max, kl_sum = 0.0, 0.0
    with Model(header.model, gpu_layers=gpu_layers) as model, Context(model, header.settings) as context:
        batch = Batch(header.settings.batch_tokens)
        for record in reader.records():
            match record:
                case Remove(sequence):
                    context.remove(sequence)
                case Move(source, target):
                    context.move(source, target)
                case Copy(source, target):
                    context.copy(source, target)
                case Clear():
                    context.clear()
                case Decode() if record.code == 0:
                    rows = _decode(context, batch, record)
                    expected = recorded[row : row + record.rows]
                    if len(expected) < record.rows:
                        raise BadTrace(f"{path}: the logits beside it end after {len(recorded)} rows")
                    if np.array_equal(rows.view(np.uint32), expected.view(np.uint32)):
                        same += record.rows
                    else:
                        equal, worst = False, max(worst, max_abs_diff(rows, expected))
                        kl = divergence(rows, expected)
                        kl_max, kl_sum = max(kl_max, float(kl.max())), kl_sum + float(kl.sum())
                        same += same_choices(rows, expected)
                    row, tokens, decodes = row + record.rows, tokens + len(record.tokens), decodes + 1
                    largest = max(largest, record.rows)
                    progress(row)
    count = max(1, row)
    return Replay(row, tokens, decodes, largest, worst, equal, kl_max, kl_sum / count, same / count if row else 1.0)


def _decode(context: Context, batch: Batch, record: Decode) -> npt.NDArray[np.float32]:
    """Repeats one decode; (rows, n_vocab) float32, a view."""
    size = len(record.tokens)
    if size > batch.capacity:
        raise BadTrace(f"a decode of {size} tokens in a context that takes {batch.capacity}")
    batch.size = size
    batch.tokens[:size], batch.positions[:size] = record.tokens, record.positions
    batch.sequences[:size], batch.wants_logits[:size] = record.sequences, record.wants_logits
    code = context.decode(batch)
    if code != 0:
        raise BadTrace(f"plain llama.cpp fails (code {code}) at a decode that succeeded when it was recorded")
    if record.rows == 0:
        return np.zeros((0, context.vocabulary_size), np.float32)
    return context.logits(record.rows)


def max_abs_diff(ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32]) -> float:
    """The largest |difference|; values that are equal as they stand (infinities too) do not differ."""
    if ours.size == 0:
        return 0.0
    with np.errstate(invalid="ignore"):
        difference = np.where(ours == theirs, np.float32(0), np.abs(ours - theirs))
    return float("inf") if np.isnan(difference).any() else float(difference.max())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Replay traces through plain llama.cpp and compare the logits.")
    parser.add_argument("trace", type=Path, nargs="+")
    parser.add_argument("--gpu-layers", type=int, default=0, help="as the backbone's that recorded them (default: 0)")
    options = parser.parse_args(arguments)
    paths: list[Path] = options.trace
    try:
        results = [replay(path, gpu_layers=options.gpu_layers) for path in paths]
    except InferenceError as error:
        print(json.dumps({"error": {"code": error.code, "message": str(error)}}))
        return 2
    print(json.dumps({"traces": [asdict(result) for result in results]}))
    return 0 if all(result.equal_bits for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
