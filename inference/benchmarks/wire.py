"""`manage.py bench wire`: bytes per token and layer between a backbone and its workers, at the 122B's shape.

The dispatcher's own step (`LayerStep`) groups and encodes 64 random tokens, top 8 of 256 experts, 3,072 wide. A
transport that only counts writes every request and a right-sized answer as the real frames, in the chunks that the real
clients send. Counted are whole WebSocket messages on the backbone's line, both directions. With eight owners every
token has one expert at each of them: the dearest case. The limit is the formula: rows out, results back, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from inference.backend import ExpertCall
from inference.benchmarks.progress import Progress
from inference.benchmarks.report import Result
from inference.dispatch_book import Book
from inference.dispatch_policy import DispatchPolicy
from inference.layer_step import LayerStep
from inference.replica_table import Replica, ReplicaTable
from inference.rows import TYPE_Q8_K, RowType, wire_row_bytes
from relay.frames import CHUNK_BYTES, HEADER_BYTES, Frame, ResultDtype
from relay.messages import Lease, dispatch_frame, result_frame, result_shape
from relay.work import Dispatch, OnDone
from relay.work import Result as Answer

TOKENS, USED, EXPERTS, WIDTH = 64, 8, 256, 3072
OVERHEAD_LIMIT = 0.03
EXACT_GOAL_BYTES, COMPACT_GOAL_BYTES = 103_000, 9_600
MASK_BYTES = 4  # what a WebSocket client sends is masked (RFC 6455, section 5.2)


@dataclass(frozen=True)
class Encoding:
    """A combination that the wire knows."""

    name: str
    row_type: RowType
    result_dtype: ResultDtype


ENCODINGS = (
    Encoding("exact", RowType.Q8, ResultDtype.F32),
    Encoding("compact", RowType.Q8, ResultDtype.PARTIAL_F16),
    Encoding("q8 rows, f32 sums", RowType.Q8, ResultDtype.PARTIAL_F32),
    Encoding("f32 rows, f32 results", RowType.F32, ResultDtype.F32),
    Encoding("f32 rows, f32 sums", RowType.F32, ResultDtype.PARTIAL_F32),
    Encoding("f32 rows, f16 sums", RowType.F32, ResultDtype.PARTIAL_F16),
)


def message_bytes(frame: Frame, *, masked: bool) -> int:
    """A frame as WebSocket messages: per chunk our header, and theirs of 2, 4 or 10 bytes."""
    total = 0
    for start in range(0, len(frame.body), CHUNK_BYTES):
        size = HEADER_BYTES + min(CHUNK_BYTES, len(frame.body) - start)
        total += size + (2 if size < 126 else 4 if size < 65536 else 10) + (MASK_BYTES if masked else 0)
    return total


class CountingTransport:
    """Answers at once with zeros, and counts what would have travelled."""

    def __init__(self) -> None:
        self.sent = self.received = 0

    def submit_many(self, dispatches: Sequence[tuple[Dispatch, OnDone]]) -> list[int]:
        for number, (dispatch, on_done) in enumerate(dispatches, start=1):
            request = dispatch_frame(
                layer=dispatch.layer,
                session=1,
                request=number,
                lease=Lease(dispatch.fence, dispatch.claim_id),
                pairs=dispatch.pairs,
                rows=dispatch.rows,
                row_dtype=dispatch.row_dtype,
                result_dtype=dispatch.result_dtype,
                weights=dispatch.weights,
            )
            rows, kind = result_shape(dispatch.result_dtype, len(dispatch.rows), len(dispatch.pairs))
            values = np.zeros((rows, WIDTH), kind)
            self.sent += message_bytes(request, masked=True)
            self.received += message_bytes(result_frame(request, values), masked=False)
            on_done(Answer(values))
        return list(range(1, len(dispatches) + 1))

    def cancel(self, requests: Sequence[int]) -> None:
        raise AssertionError("every answer is there at once")


class Step:
    """Stands for `ExpertCall`: 64 tokens, slot s of every token at an expert of the s-th eighth."""

    layer, lane_number, block_type = 0, 0, TYPE_Q8_K

    def __init__(self, random: np.random.Generator) -> None:
        self.hidden = random.standard_normal((TOKENS, WIDTH), dtype=np.float32)
        within = random.integers(0, EXPERTS // USED, (TOKENS, USED))
        self.expert_ids = (within + np.arange(USED) * (EXPERTS // USED)).astype(np.int32)
        self.output = np.zeros((TOKENS, USED, WIDTH), np.float32)
        self.weights = np.full((TOKENS, USED), 1 / USED, np.float32)
        self.weighted = np.zeros_like(self.output)

    def compute(self, tokens: np.ndarray, slots: np.ndarray) -> None:
        assert not len(tokens), "everything is remote here"


def wire(cache: Path, *, quick: bool, threads: int, progress: Progress) -> list[Result]:
    """All combinations with one and with eight owners."""
    results = []
    for number, encoding in enumerate(ENCODINGS):
        progress(number / len(ENCODINGS), encoding.name)
        results += [_case(encoding, owners, 1 if quick else 5) for owners in (1, 8)]
    return results


def _case(encoding: Encoding, owners: int, repetitions: int) -> Result:
    share = EXPERTS // owners
    replicas = [
        Replica(
            owner, f"node{owner}", owner, 1, 0, share * owner, share * (owner + 1), "", gives_sums=True, takes_q8_0=True
        )
        for owner in range(owners)
    ]
    policy = DispatchPolicy(row_type=encoding.row_type, result_dtype=encoding.result_dtype)
    layer = ReplicaTable(replicas, experts_per_layer=EXPERTS).layer(0)
    assert layer is not None
    samples, sent = [], 0.0
    for seed in range(repetitions):
        transport, book = CountingTransport(), Book((1, EXPERTS), seed)
        for replica in replicas:  # a line that has shown what it can carry
            book.measured(replica.session, seconds=0.1, moved_bytes=64 << 20)
        LayerStep(transport, book, policy, None, cast(ExpertCall, Step(np.random.default_rng(seed))), layer).run()
        samples.append((transport.sent + transport.received) / TOKENS)
        sent = transport.sent / TOKENS
    least = owners * wire_row_bytes(encoding.row_type, WIDTH, TYPE_Q8_K) + _result_bytes(encoding, owners)
    overhead = samples[0] / least - 1
    extra: dict[str, Any] = {
        "sent_bytes": sent,
        "overhead": overhead,
        "note": f"{overhead:.2%} above {least} bytes of rows and results",
    }
    goal = {("exact", 1): EXACT_GOAL_BYTES, ("compact", 1): COMPACT_GOAL_BYTES}.get((encoding.name, owners))
    extra["goal"] = goal
    extra["met"] = overhead < OVERHEAD_LIMIT and (goal is None or samples[0] < goal)
    what = "rows out and results back, without pairs, weights and headers"
    return Result(f"{encoding.name}/{owners}", "bytes", samples, limit=float(least), limit_what=what, extra=extra)


def _result_bytes(encoding: Encoding, owners: int) -> int:
    """Of one token: a float32 row per slot, or a row per owner."""
    match encoding.result_dtype:
        case ResultDtype.F32:
            return USED * WIDTH * 4
        case ResultDtype.PARTIAL_F32:
            return owners * WIDTH * 4
        case ResultDtype.PARTIAL_F16:
            return owners * WIDTH * 2
