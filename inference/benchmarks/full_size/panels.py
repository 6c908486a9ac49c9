"""The panels of the full size's plot: each reads the cases of one arm."""

from collections.abc import Callable
from typing import Any, NamedTuple

from inference.benchmarks.full_size.breakdown import LAYER_PARTS

OURS, THEIRS, BOUND = "#0b6e4f", "#b5541c", "#777777"
PART_COLORS = ("#9ad1b8", "#c9b458", "#3c6ea5", "#b5541c", "#0b6e4f", "#6b4c8a")
LINE_STYLES = {"cpu": "-", "gpu": "--", "exact": "-", "compact": "--"}
MARKERS = "osD^v"

Results = list[dict[str, Any]]


class Panel(NamedTuple):
    """draw(axes, results) of the cases that begin with `prefix`; left out where there are none."""

    draw: Callable[[Any, Results], None]
    prefix: str = ""


def m0(axes: Any, results: Results) -> None:
    """Rate over batch, ours and plain llama.cpp."""
    for device in ("cpu", "gpu"):
        mine = [(_number(one["case"], "batch="), one) for one in results if one["case"].startswith(f"m0/{device}")]
        mine.sort(key=lambda item: item[0])
        if mine:
            batches = [batch for batch, _ in mine]
            for key, color, name in (("value", OURS, "ours"), ("peer_value", THEIRS, "llama.cpp")):
                rates = [one[key] for _, one in mine]
                axes.plot(batches, rates, LINE_STYLES[device], marker="o", color=color, label=f"{name}, {device}")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="sequences", ylabel="tokens/s", title="Every expert local")


def swarm(axes: Any, results: Results) -> None:
    """Rate over workers, a line for each kind of results and round trip; what the workers' cores can compute dotted."""
    lines: dict[tuple[str, ...], list[tuple[int, dict[str, Any]]]] = {}
    for one in results:
        _, workers, *case = one["case"].split("/")
        lines.setdefault(tuple(case), []).append((int(workers.removeprefix("W=")), one))
    trips = sorted({_number("/".join(case), "rtt=") for case in lines})
    for case, points in sorted(lines.items()):
        points.sort(key=lambda item: item[0])
        results_kind, placing, trip, sequences = case
        color = OURS if placing == "remote-only" else THEIRS
        style = LINE_STYLES[results_kind] + MARKERS[trips.index(_number(trip, "rtt=")) % len(MARKERS)]
        name = f"{results_kind}, {placing}, {trip.removeprefix('rtt=')} ms, {sequences.removeprefix('seq=')} seq."
        axes.plot([w for w, _ in points], [one["value"] for _, one in points], style, color=color, label=name)
        if trip == "rtt=0" and results_kind == "exact" and placing == "remote-only":
            axes.plot(
                [w for w, _ in points], [one["limit"] for _, one in points], ":", color=BOUND, label="cores alone"
            )
    axes.set(yscale="log", xlabel="workers, one core each", ylabel="tokens/s", title="Experts with workers")


def layers(axes: Any, results: Results) -> None:
    """Milliseconds of a layer by part, without injected round trips."""
    mine = [one for one in results if "/rtt=0/" in one["case"]]
    mine.sort(key=lambda one: (one["case"].split("/")[2:], _number(one["case"], "W=")))
    names = ["\n".join(one["case"].replace("/remote-only", "").split("/rtt=")[0].split("/")[1:]) for one in mine]
    below = [0.0] * len(mine)
    for part, color in zip(LAYER_PARTS, PART_COLORS, strict=True):
        values = [one["ms_per_layer"][part] for one in mine]
        axes.bar(range(len(mine)), values, 0.7, below, color=color, label=part.replace("_", " "))
        below = [before + value for before, value in zip(below, values, strict=True)]
    axes.set_xticks(range(len(mine)), names, fontsize=7)
    axes.set(ylabel="ms per layer", title="Where a layer's time goes")


PANELS = (Panel(m0, "m0/"), Panel(swarm, "swarm/"), Panel(layers, "swarm/"))


def _number(case: str, name: str) -> int:
    """The number after `name` in a case's name."""
    return int(next(part for part in case.split("/") if part.startswith(name)).removeprefix(name))
