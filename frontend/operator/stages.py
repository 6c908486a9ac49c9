"""The stages of a model as the row above its heat map: every run of layers with its replicas, wishes and pay.

A stage build has one layer in the market's eyes, whose "experts" are the units (market/kinds.py): the grids of measures
have one line of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frontend import stages
from frontend.operator import measures
from frontend.operator.measures import Measure, Measured
from inference.backbone_status import Status
from market import node_list
from market.builds import BuildDescription

# What the market knows of units; the map's other measures are about workers.
MEASURES = (measures.REPLICAS, measures.TARGET, measures.DEFICIT, measures.DEMAND, measures.REWARD)


@dataclass(frozen=True)
class Unit:
    """One run of layers. layers: [first, last), None where they are not known; value: by the row's measure; figures:
    by every one of MEASURES."""

    number: int
    words: str
    short: str
    layers: tuple[int, int] | None
    value: float
    figures: tuple[float, ...]


@dataclass(frozen=True)
class StageRow:
    """missing: runs of units that nobody holds, in words."""

    build: BuildDescription
    measure: Measure
    units: tuple[Unit, ...]
    held: int
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Ring:
    """What a backbone says of the stages that it can use. named: those of STAGES, (address, layers in words); leased:
    how many of the market."""

    boot: str
    is_whole: bool
    named: tuple[tuple[str, str], ...]
    leased: int
    steps: int
    lost: int


def stage_row(model: BuildDescription, measure: Measure) -> StageRow | None:
    """None while the model's stages are not on offer, or no host ever registered as one."""
    build = stages.stages_of(model.fingerprint)
    if build is None or not node_list.has_stages():
        return None
    chosen = measure_of(measure)
    measured, cuts = Measured(build, ()), stages.cuts_of(build.fingerprint)
    figures = {one.key: measured.grid(one)[0] for one in MEASURES}
    units = []
    for number in range(build.experts_per_layer):
        layers = stages.layers_of(cuts, number, number + 1)
        units.append(
            Unit(
                number=number,
                words=stages.words_of(cuts, number, number + 1),
                short=_short(layers or (number, number + 1)),
                layers=layers,
                value=float(figures[chosen.key][number]),
                figures=tuple(float(figures[one.key][number]) for one in MEASURES),
            )
        )
    replicas = figures[measures.REPLICAS.key]
    missing = tuple(stages.words_of(cuts, first, last) for first, last in _runs(replicas == 0))
    return StageRow(build, chosen, tuple(units), int((replicas > 0).sum()), missing)


def measure_of(measure: Measure) -> Measure:
    """What the row shows while the map shows `measure`."""
    return measure if measure in MEASURES else measures.REPLICAS


def _short(run: tuple[int, int]) -> str:
    first, last = run
    return str(first) if last - first == 1 else f"{first}–{last - 1}"


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """[first, last) of every run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]


def rings(model: BuildDescription, statuses: Iterable[Status]) -> Sequence[Ring]:
    """Of the backbones that serve the model and use stages."""
    found = []
    for status in statuses:
        said = status.get("rings")
        if said and status.get("build") == model.fingerprint:
            known = sorted(said["stages"].items(), key=lambda stage: (stage[1], stage[0]))
            named = tuple((name, stages.layer_words(*layers)) for name, layers in known if not _node_of(name))
            leased = len(known) - len(named)
            found.append(Ring(status["boot"], said["is_whole"], named, leased, said["steps"], said["rings_lost"]))
    return found


def backbones_using(node_id: str, statuses: Iterable[Status]) -> int:
    """How many backbones can take a device's stage into a ring now."""
    known = [(status.get("rings") or {}).get("stages", {}) for status in statuses]
    return sum(any(_node_of(name) == node_id for name in names) for names in known)


def _node_of(name: str) -> str:
    """The device of a stage of the market, which backbones call NODE/CLAIM; "" for an address."""
    node_id, slash, _claim = name.partition("/")
    return node_id if slash else ""
