"""What the heat map can show: one number per (layer, expert), as one byte each. Numpy; reads the market's queries.

A grid is (layers, experts) float64 in the build's order of layers; NaN where nothing is known. Latency, hot set and
errors are what living backbones say of themselves; where they say nothing, every cell is NaN, never zero.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from numpy.typing import NDArray

from inference.backbone_status import Status
from inference.stats import hot_experts
from market import holders, queries, snapshots
from market.builds import BuildDescription
from market.placement import BuildMarket

Grid = NDArray[np.float64]

NO_DATA = 255
TOP_CODE = 254
MILLISECONDS = 1000.0


@dataclass(frozen=True)
class Measure:
    """whole: the values are counts, each its own code up to TOP_CODE. Others are spread over a logarithmic scale."""

    key: str
    label: Promise
    unit: Promise
    what: Promise
    whole: bool


REPLICAS = Measure("replicas", _("Replicas"), _("replicas"), _("Verified replicas of each expert."), True)
DEFICIT = Measure(
    "deficit", _("Deficit"), _("missing"), _("Replicas that are wanted and that nobody has claimed yet."), True
)
TARGET = Measure("target", _("Target"), _("replicas"), _("Replicas that are wanted."), True)
DEMAND = Measure("demand", _("Demand"), _("rows/hour"), _("How often the router asks for each expert."), False)
REWARD = Measure(
    "reward", _("Reward"), _("credits/hour"), _("What one more replica of each expert may earn per hour."), False
)
LATENCY = Measure(
    "latency", _("Latency"), _("ms"), _("Smoothed answer time of the fastest device that holds it."), False
)
HOT = Measure("hot", _("Hot set"), _("in the hot set"), _("Experts that the backbone keeps and computes itself."), True)
ERRORS = Measure(
    "errors",
    _("Errors"),
    _("failed requests"),
    _("Failed requests of the devices that hold it, since the start."),
    True,
)
MEASURES = {one.key: one for one in (REPLICAS, DEFICIT, DEMAND, REWARD, LATENCY, HOT, ERRORS)}


class Measured:
    """One build at one moment: each measure is computed when it is asked for."""

    def __init__(self, build: BuildDescription, statuses: Iterable[Status]) -> None:
        self.build = build
        self.statuses = [status for status in statuses if status.get("build") == build.fingerprint]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.build.layers), self.build.experts_per_layer

    @cached_property
    def market(self) -> BuildMarket:
        return snapshots.build_market(self.build.fingerprint, None)

    @cached_property
    def live_claims(self) -> list[tuple[int, int, int, str]]:
        """(row, first, last, node) of every verified replica."""
        rows = {layer: row for row, layer in enumerate(self.build.layers)}
        ranges = holders.live_ranges(self.build.fingerprint)
        return [(rows[layer], first, last, node) for layer, first, last, node in ranges]

    def grid(self, measure: Measure) -> Grid:
        return GRIDS[measure.key](self)


def _replicas(at: Measured) -> Grid:
    return queries.live_coverage(at.build.fingerprint).astype(np.float64)


def _target(at: Measured) -> Grid:
    return at.market.targets.astype(np.float64)


def _deficit(at: Measured) -> Grid:
    missing = at.market.targets.astype(np.int64) - at.market.present.astype(np.int64)
    return np.maximum(missing, 0).astype(np.float64)


def _demand(at: Measured) -> Grid:
    return at.market.rows_per_hour.astype(np.float64)


def _reward(at: Measured) -> Grid:
    return at.market.prices().astype(np.float64) / 1e6


def _latency(at: Measured) -> Grid:
    """The least answer time of an expert's holders, over all backbones."""
    seconds: dict[str, float] = {}
    for status in at.statuses:
        for node, times in status.get("owners", {}).items():
            if times["answers"]:
                seconds[node] = min(seconds.get(node, np.inf), times["seconds"])
    grid = np.full(at.shape, np.inf)
    for row, first, last, node in at.live_claims:
        if node in seconds:
            np.minimum(grid[row, first:last], MILLISECONDS * seconds[node], out=grid[row, first:last])
    grid[np.isinf(grid)] = np.nan
    return grid


def _hot(at: Measured) -> Grid:
    """1 for an expert in a backbone's hot set; unknown where no backbone says what it keeps."""
    if not any("hot_set" in status for status in at.statuses):
        return np.full(at.shape, np.nan)
    return hot_experts(at.statuses, at.build).astype(np.float64)


def _errors(at: Measured) -> Grid:
    if not at.statuses:
        return np.full(at.shape, np.nan)
    counts: dict[str, int] = {}
    for status in at.statuses:
        for node, _code, count in status.get("failures", []):
            counts[node] = counts.get(node, 0) + count
    grid = np.zeros(at.shape)
    for row, first, last, node in at.live_claims:
        if node in counts:
            grid[row, first:last] += counts[node]
    return grid


GRIDS: dict[str, Callable[[Measured], Grid]] = {
    "replicas": _replicas,
    "target": _target,
    "deficit": _deficit,
    "demand": _demand,
    "reward": _reward,
    "latency": _latency,
    "hot": _hot,
    "errors": _errors,
}


@dataclass(frozen=True)
class Scale:
    """How codes become values again. whole: value = code. Else value = low x (high / low) ^ ((code - 1) / 253), and
    code 0 is zero. low, high: the least and greatest value above zero; both 0 when there is none."""

    whole: bool
    low: float
    high: float


def scale_of(grid: Grid, measure: Measure) -> Scale:
    known = grid[np.isfinite(grid) & (grid > 0)]
    if not known.size:
        return Scale(measure.whole, 0.0, 0.0)
    return Scale(measure.whole, float(known.min()), float(known.max()))


def codes_of(grid: Grid, scale: Scale) -> NDArray[np.uint8]:
    """(layers, experts) uint8: NO_DATA for NaN."""
    known = np.nan_to_num(grid, nan=0.0)
    if scale.whole:
        codes = np.minimum(known, TOP_CODE)
    else:
        codes = np.zeros_like(known)
        above = known > 0
        span = np.log(scale.high / scale.low) if scale.high > scale.low > 0 else 0.0
        share = np.log(known[above] / scale.low) / span if span else np.ones(int(above.sum()))
        codes[above] = 1 + np.round(np.clip(share, 0.0, 1.0) * (TOP_CODE - 1))
    return np.where(np.isnan(grid), NO_DATA, codes).astype(np.uint8)


def payload(build: BuildDescription, measure: Measure, grid: Grid) -> tuple[bytes, str]:
    """What the canvas draws, as JSON, and its ETag: 12,544 cells are 17 kB."""
    scale = scale_of(grid, measure)
    body: dict[str, Any] = {
        "build": build.fingerprint,
        "measure": measure.key,
        "label": str(measure.label),
        "unit": str(measure.unit),
        "what": str(measure.what),
        "layers": list(build.layers),
        "experts": build.experts_per_layer,
        "whole": scale.whole,
        "low": scale.low,
        "high": scale.high,
        "cells": base64.b64encode(codes_of(grid, scale).tobytes()).decode(),
    }
    data = json.dumps(body, separators=(",", ":")).encode()
    return data, f'"{hashlib.sha256(data).hexdigest()[:24]}"'


@dataclass(frozen=True)
class LayerFigures:
    """One layer of a grid in words; None: nothing is known."""

    layer: int
    least: float | None
    mean: float | None
    most: float | None
    zeros: int
    unknown: int


def layer_figures(build: BuildDescription, grid: Grid) -> list[LayerFigures]:
    found = []
    for layer, row in zip(build.layers, grid, strict=True):
        known = row[~np.isnan(row)]
        zeros, unknown = int((known == 0).sum()), int(row.size - known.size)
        if known.size:
            least, mean, most = float(known.min()), float(known.mean()), float(known.max())
            found.append(LayerFigures(layer, least, mean, most, zeros, unknown))
        else:
            found.append(LayerFigures(layer, None, None, None, zeros, unknown))
    return found
