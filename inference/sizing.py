"""What a swarm can give: tokens per second from sequences, lanes, layers, round trip, workers, lines: docs/sizing.md.

Pure arithmetic over a model's shape and a few numbers; nothing is measured here. Every bound is named, so that a reader
sees what to buy next: sequences, workers, or a line.
"""

from dataclasses import dataclass
from typing import Any, Literal

from inference.gguf_index import ModelIndex
from inference.kernel import q8_block_type
from inference.rows import ROW_TYPES, RowsError, RowType, wire_row_bytes
from relay.frames import HEADER_BYTES

Results = Literal["exact", "sums-f32", "sums-f16"]

VALUE_BYTES: dict[str, int] = {"exact": 4, "sums-f32": 4, "sums-f16": 2}
PAIR_BYTES = 4
WEIGHT_BYTES = 4
RUN_EXPERTS = 64  # longest claim: experts of one layer that one worker takes together


@dataclass(frozen=True)
class ModelShape:
    """layers: with experts that workers can hold; experts: of one layer; used: experts per token; row_bytes: of one row
    on its way out (mean over the layers); expert_bytes: of one expert (mean)."""

    name: str
    layers: int
    experts: int
    used: int
    n_embd: int
    row_bytes: float
    expert_bytes: float

    @property
    def rows_per_token(self) -> int:
        """(token, expert) pairs of one token over all layers."""
        return self.layers * self.used


@dataclass(frozen=True)
class Swarm:
    """workers of `rows_per_second` each, with `worker_bytes` of memory (None: together they hold every expert once);
    rtt_seconds: backbone - relay - worker and back; backbones: each with `sequences` on `lanes` and a line of
    `up_bytes` and `down_bytes` per second (None: no limit known); hot_share: of the rows that the backbone computes
    itself although a worker holds them; tokens_per_second: of one backbone without any expert work, its dense path
    (None: unknown)."""

    workers: int
    rows_per_second: float
    rtt_seconds: float
    sequences: int
    lanes: int
    backbones: int = 1
    worker_bytes: int | None = None
    up_bytes: float | None = None
    down_bytes: float | None = None
    hot_share: float = 0.0
    results: Results = "exact"
    tokens_per_second: float | None = None


@dataclass(frozen=True)
class Bound:
    """One limit on tokens per second; formula: how it came about, with its numbers."""

    name: str
    tokens_per_second: float
    formula: str


@dataclass(frozen=True)
class Sizing:
    """coverage: share of experts that somebody holds; owners: workers that one token's rows of one layer go to, on the
    average; sent_bytes, received_bytes: of the backbone, per token; sequences_wanted: over all backbones, so that the
    round trip is not what limits."""

    bounds: tuple[Bound, ...]
    coverage: float
    remote_share: float
    owners: float
    sent_bytes: float
    received_bytes: float
    sequences_wanted: int

    @property
    def binding(self) -> Bound:
        return min(self.bounds, key=lambda bound: bound.tokens_per_second)

    def to_json(self) -> dict[str, Any]:
        return {
            "tokens_per_second": self.binding.tokens_per_second,
            "binding": self.binding.name,
            "bounds": [bound.__dict__ for bound in self.bounds],
            "coverage": self.coverage,
            "remote_share": self.remote_share,
            "owners_per_token_and_layer": self.owners,
            "sent_bytes_per_token": self.sent_bytes,
            "received_bytes_per_token": self.received_bytes,
            "sequences_wanted": self.sequences_wanted,
        }


def shape_of(index: ModelIndex) -> ModelShape:
    """Of the layers whose experts can be lent; a model without any has no swarm and 0 layers."""
    layers = [index.layers[number] for number in index.offered_layers]
    rows = []
    for layer in layers:
        gate, up = layer.tensors[0].ggml_type, layer.tensors[0 if layer.merged else 1].ggml_type
        rows.append(_row_bytes(index.n_embd, q8_block_type(gate, up)))
    count = len(layers)
    return ModelShape(
        name=index.name,
        layers=count,
        experts=index.experts_per_layer,
        used=index.experts_used,
        n_embd=index.n_embd,
        row_bytes=sum(rows) / max(1, count),
        expert_bytes=sum(layer.expert_bytes for layer in layers) / max(1, count),
    )


def _row_bytes(n_embd: int, block_type: int | None) -> int:
    row_type = RowType.F32 if block_type is None else ROW_TYPES.get(block_type, RowType.F32)
    try:
        return wire_row_bytes(row_type, n_embd, block_type)
    except RowsError:
        return wire_row_bytes(RowType.F32, n_embd, None)


def size(shape: ModelShape, swarm: Swarm) -> Sizing:
    """The bounds, in the order of docs/sizing.md."""
    coverage = _coverage(shape, swarm)
    remote = coverage * (1.0 - swarm.hot_share)
    owners = _owners(shape, swarm) * remote
    sent = shape.layers * (owners * (shape.row_bytes + HEADER_BYTES) + remote * shape.used * PAIR_BYTES)
    rows_back = remote * shape.used
    if swarm.results != "exact":
        sent += shape.layers * rows_back * WEIGHT_BYTES
        rows_back = owners
    received = shape.layers * (rows_back * shape.n_embd * VALUE_BYTES[swarm.results] + owners * HEADER_BYTES)
    bounds = [_latency(shape, swarm), *_worker_bound(shape, swarm, remote), *_line_bounds(swarm, sent, received)]
    if swarm.tokens_per_second is not None:
        total = swarm.backbones * swarm.tokens_per_second
        bounds.append(Bound("backbone", total, f"{swarm.backbones} x {swarm.tokens_per_second:.6g} tokens/s"))
    # Little's law: what is in flight = what arrives per second x how long each stays.
    others = min((bound.tokens_per_second for bound in bounds[1:]), default=0.0)
    wanted = others * shape.layers * swarm.rtt_seconds
    return Sizing(tuple(bounds), coverage, remote, owners, sent, received, max(1, round(wanted)))


def _coverage(shape: ModelShape, swarm: Swarm) -> float:
    if swarm.worker_bytes is None:
        return 1.0 if swarm.workers else 0.0
    held = swarm.workers * int(swarm.worker_bytes // shape.expert_bytes)
    return min(1.0, held / (shape.layers * shape.experts))


def _owners(shape: ModelShape, swarm: Swarm) -> float:
    """Different workers that one token's `used` experts of one layer lie on: w (1 - (1 - 1/w)^used) of w that hold the
    layer, as if the router chose evenly."""
    if not swarm.workers:
        return 0.0
    each = swarm.worker_bytes or shape.layers * shape.experts * shape.expert_bytes / swarm.workers
    experts = min(shape.layers * shape.experts, max(1, int(each // shape.expert_bytes)))
    runs = -(-experts // min(RUN_EXPERTS, shape.experts))
    per_layer = min(float(shape.experts), max(1.0, swarm.workers * min(runs, shape.layers) / shape.layers))
    return per_layer * (1.0 - (1.0 - 1.0 / per_layer) ** shape.used)


def _latency(shape: ModelShape, swarm: Swarm) -> Bound:
    """Each token of each sequence crosses the network once per layer; a lane's own computing adds to its round."""
    in_flight = swarm.sequences * swarm.backbones
    if not swarm.workers:
        return Bound("round trips", float("inf"), "nothing is sent away")
    round_seconds = shape.layers * swarm.rtt_seconds
    told = f"{in_flight} sequences / ({shape.layers} layers x {swarm.rtt_seconds:g} s"
    if swarm.tokens_per_second is not None:
        own = swarm.sequences / swarm.lanes / swarm.tokens_per_second
        round_seconds += own
        told += f" + {own:.3g} s of computing per step of a lane"
    return Bound("round trips", in_flight / max(round_seconds, 1e-9), told + ")")


def _worker_bound(shape: ModelShape, swarm: Swarm, remote: float) -> list[Bound]:
    if remote <= 0:
        return []
    rows = remote * shape.rows_per_token
    told = f"{swarm.workers} workers x {swarm.rows_per_second:g} rows/s / {rows:.6g} rows per token"
    return [Bound("workers", swarm.workers * swarm.rows_per_second / rows, told)]


def _line_bounds(swarm: Swarm, sent: float, received: float) -> list[Bound]:
    found = []
    for name, line, size_bytes in (("uplink", swarm.up_bytes, sent), ("downlink", swarm.down_bytes, received)):
        if line is not None and size_bytes > 0:
            told = f"{swarm.backbones} x {line:.6g} bytes/s / {size_bytes:.0f} bytes per token"
            found.append(Bound(name, swarm.backbones * line / size_bytes, told))
    return found


def as_table(shape: ModelShape, swarm: Swarm, sizing: Sizing) -> list[str]:
    """Lines for people."""
    lines = [
        f"{shape.name}: {shape.layers} layers with {shape.experts} experts, {shape.used} per token: "
        f"{shape.rows_per_token} rows per token",
        f"{swarm.workers} workers hold {sizing.coverage:.1%} of the experts and get {sizing.remote_share:.1%} of the "
        f"rows; those of one token and layer go to {sizing.owners:.2f} workers",
        f"per token the backbone sends {sizing.sent_bytes / 1e3:.1f} kB and receives "
        f"{sizing.received_bytes / 1e3:.1f} kB (results: {swarm.results})",
        "",
    ]
    width = max(len(bound.name) for bound in sizing.bounds)
    for bound in sizing.bounds:
        mark = "<" if bound is sizing.binding else " "
        lines.append(f"{mark} {bound.name.ljust(width)}  {bound.tokens_per_second:10.1f} tokens/s  {bound.formula}")
    lines += [
        "",
        f"At most {sizing.binding.tokens_per_second:.1f} tokens/s, limited by: {sizing.binding.name}.",
        f"Sequences in flight that hide the round trip: {sizing.sequences_wanted} "
        f"(now {swarm.sequences * swarm.backbones}).",
    ]
    return lines
