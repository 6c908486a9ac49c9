"""Plots of benchmarks: `python -m inference.benchmarks.plots docs/benchmarks/*.json`.

Writes NAME.png and NAME.svg beside each file that `manage.py bench NAME --json` wrote. Needs matplotlib
(requirements-dev.txt).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from inference.benchmarks.full_size.panels import BOUND, OURS, PANELS, THEIRS, Panel, Results

SIZE_INCHES, DOTS_PER_INCH = (7.0, 4.2), 90
SHADES = ("#9ad1b8", "#3c9d78", "#0b4f39", "#052e21")
METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "png": {"Software": None}}


def rtt(axes: Any, results: Results) -> None:
    """Rate over round trip, one line per number of sequences, on most lanes; its bound dashed."""
    lanes = max(one["lanes"] for one in results)
    for shade, sequences in zip(SHADES, sorted({one["sequences"] for one in results}), strict=False):
        mine = [one for one in results if one["lanes"] == lanes and one["sequences"] == sequences]
        trips = [one["round_trip_ms"] for one in mine]
        axes.plot(trips, [one["value"] for one in mine], "o-", color=shade, label=f"{sequences} sequences")
        axes.plot(trips, [one["limit"] or one["value"] for one in mine], "--", color=BOUND, linewidth=1)
    axes.plot([], [], "--", color=BOUND, label="bound")
    axes.set(yscale="log", xlabel="injected round trip, ms", ylabel="tokens/s", title=f"Round trips, {lanes} lanes")


def scaling(axes: Any, results: Results) -> None:
    """Rate over workers for both curves, and the limit of the first."""
    for curve, color in (("remote-only", OURS), ("fallback", THEIRS)):
        mine = [one for one in results if one["case"].startswith(curve)]
        axes.plot([_workers(one) for one in mine], [one["value"] for one in mine], "o-", color=color, label=curve)
    mine = [one for one in results if one["case"].startswith("remote-only")]
    axes.plot([_workers(one) for one in mine], [one["limit"] for one in mine], "--", color=BOUND, label="limit")
    axes.set_xscale("log", base=2)
    axes.set(
        yscale="log", xlabel="workers", ylabel="tokens/s", title=f"{mine[0]['rows_per_second']:g} rows/s per worker"
    )


def _workers(result: dict[str, Any]) -> int:
    return int(result["case"].rpartition("workers")[2])


def hotset(axes: Any, results: Results) -> None:
    """Share of rows kept, beside the best constant set."""
    mine = [one for one in results if one["case"].startswith("planner/")]
    _pairs(axes, mine, "hot set", "best constant set in hindsight", prefix="planner/")
    axes.set(ylabel="share of rows kept", title="An eighth of the experts, planned from what was seen so far")


def rpc(axes: Any, results: Results) -> None:
    """Both arms, ours beside llama.cpp's."""
    mine = [one for one in results if one["peer_value"] is not None]
    _pairs(axes, mine, "swarm", "llama.cpp RPC")
    axes.set(yscale="log", ylabel="tokens/s", title=f"Round trip {mine[0]['round_trip_ms']:g} ms, two workers")


def _pairs(axes: Any, results: Results, ours: str, theirs: str, prefix: str = "") -> None:
    places = list(range(len(results)))
    axes.bar([place - 0.2 for place in places], [one["value"] for one in results], 0.38, color=OURS, label=ours)
    axes.bar(
        [place + 0.2 for place in places], [one["peer_value"] for one in results], 0.38, color=THEIRS, label=theirs
    )
    names = [one["case"].removeprefix(prefix).replace("/", "\n").replace("-", "-\n") for one in results]
    axes.set_xticks(places, names, fontsize=8)


def mixed(axes: Any, results: Results) -> None:
    """Median and 99th percentile: first token of each kind."""
    mine = [one for one in results if one["case"].endswith("/first token")]
    places = list(range(len(mine)))
    axes.bar([place - 0.2 for place in places], [one["value"] for one in mine], 0.38, color=OURS, label="median")
    axes.bar([place + 0.2 for place in places], [one["p99"] for one in mine], 0.38, color=THEIRS, label="99%")
    axes.set_xticks(places, [one["case"].removesuffix("/first token").replace("/", "\n") for one in mine], fontsize=8)
    axes.set(ylabel="seconds to the first token", title="Short and long requests at once")


def soak(axes: Any, results: Results) -> None:
    """Resident memory of every process over time."""
    for one in results:
        values = one["megabytes"]
        minutes = [one["minutes"] * (place + 1) / len(values) for place in range(len(values))]
        axes.plot(minutes, values, label=one["case"].removesuffix("/memory"))
    axes.set(ylim=(0, None), xlabel="minutes", ylabel="resident MB", title=f"{results[0]['answers']} answers")


PLOTS: dict[str, tuple[Panel, ...]] = {
    "rtt": (Panel(rtt),), "scaling": (Panel(scaling),), "hotset": (Panel(hotset),), "rpc": (Panel(rpc),),
    "mixed": (Panel(mixed),), "soak": (Panel(soak),), "full-size": PANELS,
}  # fmt: skip


def draw(path: Path) -> list[Path]:
    """Writes the plots of one file of results; returns where. The same results give the same bytes."""
    body = json.loads(path.read_text())
    matplotlib.rcParams.update({"svg.hashsalt": "expertswarm", "svg.fonttype": "none"})
    shown = [
        (panel, mine)
        for panel in PLOTS[body["bench"]]
        if (mine := [one for one in body["results"] if one["case"].startswith(panel.prefix)])
    ]
    size = (SIZE_INCHES[0] * len(shown), SIZE_INCHES[1])
    figure, places = pyplot.subplots(1, len(shown), figsize=size, layout="constrained", squeeze=False)
    try:
        for axes, (panel, mine) in zip(places[0], shown, strict=True):
            panel.draw(axes, mine)
            axes.grid(visible=True, axis="y", alpha=0.3)
            axes.legend(fontsize=8)
        written = [path.with_suffix(f".{kind}") for kind in METADATA]
        for target, metadata in zip(written, METADATA.values(), strict=True):
            figure.savefig(target, dpi=DOTS_PER_INCH, metadata=metadata)
    finally:
        pyplot.close(figure)
    return written


def main(names: list[str]) -> None:
    for name in names:
        print(*draw(Path(name)))


if __name__ == "__main__":
    main(sys.argv[1:])
