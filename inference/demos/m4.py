"""M4: the throughput fabric: sequences in flight hide round trips, tokens per second grow with workers.

Real relay, worker processes and slow TCP lines (`inference.benchmarks.rig`); no market and no web server. What was
written over the lines is replayed through plain llama.cpp at the end. `manage.py bench rtt`, `scaling` and `hotset` are
the long forms (docs/benchmarks.md).
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from inference.benchmarks.overhead import SideFailed
from inference.benchmarks.rig.backbone import Options
from inference.benchmarks.rig.placement import by_demand, even
from inference.benchmarks.rig.rounds import Round, measure
from inference.benchmarks.rig.site import Group, Site, backbone, cores, site
from inference.demos import Figures, Say
from inference.demos.replayed import DemoFailed, compare
from inference.gguf_index import ModelIndex, open_index

LINE, FAR, LANES, SEQUENCES = "line", 0.1, 4, 32
ROWS_PER_SECOND, WORKERS, PER_WORKER = 200.0, (2, 4, 8), 16
NEAR, HOT_SHARE = 0.02, 0.25


@dataclass(frozen=True)
class FabricFigures(Figures):
    """one, many: tokens/s of one and of SEQUENCES sequences over a line of 100 ms, and the bound of many; rates: by
    number of throttled workers; cold, hot: (tokens/s, share of rows by workers) without and with a hot set."""

    one: float = 0.0
    many: float = 0.0
    bound: float = 0.0
    rates: tuple[tuple[int, float, float], ...] = ()
    cold: tuple[float, float] = (0.0, 0.0)
    hot: tuple[float, float] = (0.0, 0.0)

    @property
    def lines(self) -> list[str]:
        scaling = ", ".join(f"{workers}: {rate:.1f} of {limit:.1f}" for workers, rate, limit in self.rates)
        return [
            f"round trip of {1000 * FAR:.0f} ms, tokens/s  1 sequence {self.one:.2f}, {SEQUENCES} sequences "
            f"{self.many:.1f}  (bound {self.bound:.1f}: {self.many / self.bound:.0%})",
            f"throttled workers, tokens/s     {scaling}  (limit: {ROWS_PER_SECOND:g} rows/s each)",
            f"hot set, line of {1000 * NEAR:.0f} ms         {self.cold[0]:.0f} -> {self.hot[0]:.0f} tokens/s; "
            f"rows sent away {self.cold[1]:.0%} -> {self.hot[1]:.0%}",
            *super().lines,
        ]


def run(model: Path, say: Say) -> FabricFigures:
    """Raises DemoFailed."""
    index = open_index(model)
    with tempfile.TemporaryDirectory(prefix="demo-m4-") as name:
        folder = Path(name)
        try:
            far, traces = _round_trips(model, index, folder, say)
            rates = tuple(_workers(model, index, folder, say))
            cold, hot = _hot_set(model, index, folder, say)
        except SideFailed as failure:
            raise DemoFailed(str(failure)) from failure
        say("replaying what was written over the slow line through plain llama.cpp ...")
        positions, difference = compare(traces)
    one, many = far
    return FabricFigures(
        tokens=int(many.tokens),
        seconds=many.seconds,
        rows_remote=many.rows.get("remote", 0),
        rows_total=sum(many.rows.values()),
        positions=positions,
        max_abs_diff=difference,
        one=one.per_second,
        many=many.per_second,
        bound=SEQUENCES / (len(index.offered_layers) * FAR),
        rates=rates,
        cold=(cold.per_second, cold.remote_share),
        hot=(hot.per_second, hot.remote_share),
    )


@contextmanager
def _line(model: Path, index: ModelIndex, folder: Path, round_trip: float) -> Iterator[Site]:
    """Two worker processes behind a slow line."""
    held = even(index.offered_layers, index.experts_per_layer, 2)
    with site(model, folder / "slices", {LINE: Group(held, round_trip=round_trip, processes=2)}) as here:
        yield here


def _round_trips(model: Path, index: ModelIndex, folder: Path, say: Say) -> tuple[tuple[Round, Round], list[Path]]:
    say(f"two workers behind a line of {1000 * FAR:.0f} ms; a token waits for it in {len(index.offered_layers)} layers")
    traces = folder / "traces"
    traces.mkdir()
    rounds = []
    with _line(model, index, folder, FAR) as here:
        options = Options(str(model), here.url, LANES, SEQUENCES, cores(), trace=str(traces))
        with backbone(options, here) as child:
            for sequences in (1, SEQUENCES):
                child.ask(prepare=sequences)
                child.ask(use=LINE, workers=2)
                child.ask(round=1)
                rounds.append(measure(here, child, round=4))
                say(f"sequences on {LANES} lanes: {sequences}; {rounds[-1].per_second:.2f} tokens/s")
    return (rounds[0], rounds[1]), sorted(traces.glob("lane-*.jsonl"))


def _workers(model: Path, index: ModelIndex, folder: Path, say: Say) -> Iterator[tuple[int, float, float]]:
    """(workers, tokens/s, limit): every row by a worker that may compute ROWS_PER_SECOND."""
    rows = len(index.offered_layers) * index.experts_used
    options = Options(str(model), "", 8, PER_WORKER * max(WORKERS), cores())
    with site(model, folder / "slices", {}) as here, backbone(replace(options, relay=here.url), here) as child:
        child.ask(prepare=options.sequences)
        child.ask(round=8)
        demand = np.array(child.ask(demand=1)["demand"], np.float64)
    groups = {
        f"phones{workers}": Group(by_demand(demand, index.offered_layers, workers), ROWS_PER_SECOND)
        for workers in WORKERS
    }
    say(f"workers of {ROWS_PER_SECOND:g} rows per second, {rows} rows to a token, nothing computed here")
    with site(model, folder / "slices", groups) as here, backbone(replace(options, relay=here.url), here) as child:
        for workers in WORKERS:
            child.ask(prepare=PER_WORKER * workers)
            child.ask(use=f"phones{workers}", workers=workers)
            one = measure(here, child, window=6.0, warm=2.0)
            say(f"{workers} workers: {one.per_second:.1f} tokens/s, {one.busy:.0%} of this machine's cores busy")
            yield workers, one.per_second, workers * ROWS_PER_SECOND / rows


def _hot_set(model: Path, index: ModelIndex, folder: Path, say: Say) -> tuple[Round, Round]:
    say(f"a hot set of {HOT_SHARE:.0%} of the experts, line of {1000 * NEAR:.0f} ms")
    rounds = []
    with _line(model, index, folder, NEAR) as here:
        for hot_bytes in (0, int(index.routed_bytes * HOT_SHARE)):
            options = Options(str(model), here.url, 2, 16, cores(), hot_bytes=hot_bytes)
            with backbone(options, here) as child:
                child.ask(prepare=16)
                child.ask(use=LINE, workers=2)
                # A plan is made every five seconds: the second one knows what is hot.
                rounds.append(measure(here, child, window=4.0, warm=11.0 if hot_bytes else 2.0))
    return rounds[0], rounds[1]
