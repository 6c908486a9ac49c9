"""Where a model can be cut into stages: runs of layers that strong hosts compute one after another.

The smallest run is a **unit**: one layer, or in hybrid models the recurrent layers up to and including the next layer
of full attention, because llama.cpp makes no context for a stage without one. A stage is a contiguous run of units.
The market counts units as it counts experts: a **stage build** has one layer whose "experts" are the units.

Pure arithmetic over a `ModelIndex`; knows nothing of files, contexts or the market.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from inference.errors import CutRefused, NoStages
from inference.gguf_index import FINGERPRINT_CHARACTERS, ModelIndex


class Graph(NamedTuple):
    """What differs between architectures that can be cut.

    keeps_rows: the last layer computes every row; otherwise it drops those without logits, so a stage asks for all.
    needs_head: the loader demands `output.weight`; otherwise the embedding table stands in for it.
    """

    keeps_rows: bool
    needs_head: bool


# Architectures that were read (llama.cpp's src/models as of llama-cpp-python 0.3.36) and tried: every layer does
# the same whatever its number, the output of the last is the tensor `l_out-N`, and nothing but a norm and the head
# follows it.
GRAPHS = {
    "qwen35moe": Graph(keeps_rows=True, needs_head=False),
    "qwen3next": Graph(keeps_rows=True, needs_head=False),
    "qwen3moe": Graph(keeps_rows=False, needs_head=False),
    "qwen2moe": Graph(keeps_rows=False, needs_head=True),
    "olmoe": Graph(keeps_rows=False, needs_head=True),
}
STAGE_LAYER = 0  # the one layer of a stage build


@dataclass(frozen=True)
class StageCuts:
    """The places where one model can be cut.

    model: fingerprint of the whole model; boundaries: layers at which a stage may begin or end, from 0 to the number of
    trunk layers (the MTP block behind them belongs to no stage).
    """

    model: str
    architecture: str
    boundaries: tuple[int, ...]

    @cached_property
    def build(self) -> str:
        """The fingerprint under which the market knows the stages of this model."""
        return stage_fingerprint(self.model)

    @property
    def units(self) -> int:
        return len(self.boundaries) - 1

    @property
    def trunk_layers(self) -> int:
        return self.boundaries[-1]

    def layers_of(self, first_unit: int, last_unit: int) -> tuple[int, int]:
        """The layers [first, last) of the units [first_unit, last_unit). Raises CutRefused."""
        if not 0 <= first_unit < last_unit <= self.units:
            raise CutRefused(f"units {first_unit}:{last_unit}; choose A < B within 0:{self.units}")
        return self.boundaries[first_unit], self.boundaries[last_unit]

    def units_of(self, first: int, last: int) -> tuple[int, int]:
        """The units [first, last) of the layers [first, last). Raises CutRefused with the nearest range that can."""
        if first in self.boundaries and last in self.boundaries and first < last:
            return self.boundaries.index(first), self.boundaries.index(last)
        nearest = "{}:{}".format(*self.nearest(first, last))
        if not 0 <= first < last <= self.trunk_layers:
            raise CutRefused(
                f"layers {first}:{last}; choose A < B within 0:{self.trunk_layers}; the nearest stage is {nearest}"
            )
        wrong = " and ".join(str(layer) for layer in (first, last) if layer not in self.boundaries)
        raise CutRefused(
            f"layers {first}:{last}: {self.architecture} cannot be cut at {wrong}, because every stage needs a layer "
            f"of full attention at its end; the nearest stage is {nearest}"
        )

    def nearest(self, first: int, last: int) -> tuple[int, int]:
        """The stage whose ends lie nearest to both; of equally near ones the longer."""
        candidates = [(a, b) for a in self.boundaries for b in self.boundaries if a < b]
        return min(candidates, key=lambda cut: (abs(cut[0] - first) + abs(cut[1] - last), cut[0] - cut[1]))

    def even(self, stages: int) -> tuple[tuple[int, int], ...]:
        """Layer ranges of `stages` stages over the whole trunk, as even as the units allow. Raises CutRefused."""
        if not 1 <= stages <= self.units:
            raise CutRefused(f"{stages} stages; {self.architecture} here can be cut into 1 to {self.units}")
        edges = [self.boundaries[(stage * self.units + stages // 2) // stages] for stage in range(stages + 1)]
        return tuple(pairwise(edges))


def stage_cuts(index: ModelIndex) -> StageCuts:
    """Raises NoStages for an architecture that was not tried, and for a file without some layer's experts."""
    if index.architecture not in GRAPHS:
        known = ", ".join(sorted(GRAPHS))
        raise NoStages(f"{index.architecture} is not among the architectures that can be cut into stages: {known}")
    # Also the bound on what a file that tells lies can cost: the layers are counted in its tensors.
    if len(index.layers) != index.trunk_layers:
        raise NoStages(f"{index.name}: experts in {len(index.layers)} of {index.trunk_layers} layers; stages need all")
    ends = [layer + 1 for layer in range(index.trunk_layers) if layer not in index.recurrent_layers]
    if not ends:
        raise NoStages(f"{index.name}: no layer of full attention, so there is nowhere to cut")
    # Recurrent layers behind the last full attention belong to the last unit.
    return StageCuts(index.fingerprint, index.architecture, (0, *ends[:-1], index.trunk_layers))


def stage_fingerprint(model: str) -> str:
    """The fingerprint of the stage build of a model, by the model's own."""
    return hashlib.sha256(f"expertswarm stages {model}".encode()).hexdigest()[:FINGERPRINT_CHARACTERS]
