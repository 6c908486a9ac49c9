"""Which stages make a ring: a chain of layer ranges over the whole model. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from inference.ring.errors import RingIncomplete
from inference.ring.steps import StageDescription


def choose_route(
    stages: Mapping[str, StageDescription], fingerprint: str, layers: int, rings_of: Mapping[str, int]
) -> tuple[str, ...]:
    """Addresses in the order of their layers: as few stages as possible, among those the least used ones, then by name.

    rings_of: rings that each address serves already. Raises RingIncomplete, naming the first layer that nobody holds
    behind those that can be reached.
    """
    usable = sorted(
        (stage.first, stage.last, address)
        for address, stage in stages.items()
        if stage.fingerprint == fingerprint and stage.layers == layers
    )
    # best[layer]: (stages, rings on them, route) of the best chain from layer 0 to there.
    best: dict[int, tuple[int, int, tuple[str, ...]]] = {0: (0, 0, ())}
    for first, last, address in usable:  # by their first layer, so every chain that ends there is known
        if first in best:
            count, rings, route = best[first]
            chain = (count + 1, rings + rings_of.get(address, 0), (*route, address))
            best[last] = min(best.get(last, chain), chain)
    if layers not in best:
        raise RingIncomplete(f"no stage that answers holds layer {max(best)} and what follows; the model has {layers}")
    return best[layers][2]
