"""The coverage of a model as rows of coloured bars: layers down, experts across. Numpy and words; templates draw it.

A small model has a cell per expert. In a big one neighbours of the same level are one bar, so that the page of 12,288
experts stays small.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from django.utils.translation import gettext, gettext_lazy, ngettext

Replicas = npt.NDArray[np.uint16]

# Levels by growing lightness contrast with the page; one hue, so that nothing depends on telling colours apart.
NOBODY, PENDING, ONE, TWO, FEW, MANY = range(6)
LEGEND = (
    (NOBODY, gettext_lazy("nobody: the backbone computes it")),
    (PENDING, gettext_lazy("claimed, not verified yet")),
    (ONE, gettext_lazy("1 replica")),
    (TWO, gettext_lazy("2 replicas")),
    (FEW, gettext_lazy("3 to 4")),
    (MANY, gettext_lazy("5 or more")),
)
MOST_BARS = 600
GAP = 0.08
# Pixels: all rows together are about this high, no row is thinner or thicker than the bounds.
HEIGHT, THINNEST, THICKEST = 400, 8, 22


@dataclass(frozen=True)
class Bar:
    """Experts [first, last) of one layer that have the same level. y: the row, counted from the top."""

    y: int
    first: int
    last: int
    level: int
    title: str

    @property
    def width(self) -> float:
        """A bit less than its experts, so that neighbours stand apart."""
        return self.last - self.first - GAP


@dataclass(frozen=True)
class LayerLine:
    """One layer in words. held: experts with a verified replica."""

    layer: int
    held: int
    experts: int
    least: int
    most: int


@dataclass(frozen=True)
class HeatMap:
    experts: int
    bars: tuple[Bar, ...]
    layers: tuple[LayerLine, ...]

    @property
    def rows(self) -> int:
        return len(self.layers)

    @property
    def height(self) -> int:
        return self.rows * max(THINNEST, min(THICKEST, HEIGHT // max(1, self.rows)))

    @property
    def held(self) -> int:
        return sum(line.held for line in self.layers)

    @property
    def offered(self) -> int:
        return self.rows * self.experts

    @property
    def percent(self) -> int:
        """Rounded down: 100 means all."""
        return 100 * self.held // self.offered if self.offered else 0


def heat_map(layers: Sequence[int], live: Replicas, claimed: Replicas) -> HeatMap:
    """layers: numbers of the rows of `live` (verified replicas) and `claimed` (pending ones too): (layers, experts)."""
    experts = live.shape[1]
    levels = level_of(live, claimed)
    if live.size <= MOST_BARS:
        bars = tuple(
            _bar(y, layer, expert, expert + 1, levels[y], live[y])
            for y, layer in enumerate(layers)
            for expert in range(experts)
        )
        return HeatMap(experts, bars, _lines(layers, live))
    # Experts drawn as one unit: the least covered one speaks for its neighbours until the bars are few enough.
    grain = 1
    while grain < experts and _bar_count(levels, grain) > MOST_BARS:
        grain *= 2
    bars = tuple(bar for y, layer in enumerate(layers) for bar in _bars(y, layer, _coarse(levels[y], grain), live[y]))
    return HeatMap(experts, bars, _lines(layers, live))


def _lines(layers: Sequence[int], live: Replicas) -> tuple[LayerLine, ...]:
    return tuple(
        LayerLine(layer, int((row > 0).sum()), row.size, int(row.min()), int(row.max()))
        for layer, row in zip(layers, live, strict=True)
    )


def level_of(live: Replicas, claimed: Replicas) -> npt.NDArray[np.uint8]:
    """The level of each expert, same shape."""
    levels = np.where(claimed > 0, PENDING, NOBODY)
    for least, level in ((1, ONE), (2, TWO), (3, FEW), (5, MANY)):
        levels = np.where(live >= least, level, levels)
    return levels.astype(np.uint8)


def _coarse(row: npt.NDArray[np.uint8], grain: int) -> npt.NDArray[np.uint8]:
    """Each run of `grain` experts takes the lowest level among them."""
    starts = np.arange(0, row.size, grain)
    return np.repeat(np.minimum.reduceat(row, starts), grain)[: row.size]


def _bar_count(levels: npt.NDArray[np.uint8], grain: int) -> int:
    coarse = np.stack([_coarse(row, grain) for row in levels])
    return int((np.diff(coarse, axis=1) != 0).sum()) + len(levels)


def _bars(y: int, layer: int, row: npt.NDArray[np.uint8], live: npt.NDArray[np.uint16]) -> Iterator[Bar]:
    edges = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), row.size]
    return (_bar(y, layer, first, last, row, live) for first, last in pairwise(edges))


def _bar(y: int, layer: int, first: int, last: int, levels: npt.NDArray[np.uint8], live: npt.NDArray[np.uint16]) -> Bar:
    if last - first > 1:
        where = gettext("experts %(first)d to %(last)d") % {"first": first, "last": last - 1}
    else:
        where = gettext("expert %(number)d") % {"number": first}
    level = int(levels[first])
    said = {"layer": layer, "where": where, "what": _words(level, live[first:last])}
    return Bar(y, first, last, level, gettext("layer %(layer)d, %(where)s: %(what)s") % said)


def _words(level: int, live: npt.NDArray[np.uint16]) -> str:
    if level == PENDING:
        return gettext("claimed")
    least, most = int(live.min()), int(live.max())
    if least == most:
        return ngettext("%(count)d replica", "%(count)d replicas", least) % {"count": least}
    return gettext("%(least)d to %(most)d replicas") % {"least": least, "most": most}
