"""Where the rows of each token of a decode were computed: what readers of an answer may ask for, beside its text.

A lane opens its count before a decode whose tokens want it, the dispatcher adds every layer, the lane takes the sum.
Nobody counts while nobody asked. One thread per lane; pure numpy.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
# Rows ((token, expert) pairs over all layers) of one token: by workers, here because they are hot, here otherwise.
Places = tuple[int, int, int]


def places_of_layer(
    expert_ids: npt.NDArray[np.int32],
    remote_tokens: Sequence[npt.NDArray[np.intp]],
    hot: npt.NDArray[np.bool_] | None,
) -> Counts:
    """(tokens, 3) counts of one layer. expert_ids: (tokens, used); remote_tokens: the token of every pair that a worker
    computed; hot: (experts,) those that are kept here."""
    tokens, used = expert_ids.shape
    counts = np.zeros((tokens, 3), np.int64)
    if remote_tokens:
        counts[:, 0] = np.bincount(np.concatenate(remote_tokens), minlength=tokens)
    if hot is not None:
        counts[:, 1] = np.minimum(hot[expert_ids].sum(axis=1), used - counts[:, 0])
    counts[:, 2] = used - counts[:, 0] - counts[:, 1]
    return counts


class LanePlaces:
    """The count of one lane's present decode."""

    def __init__(self) -> None:
        self.is_open = False
        self._layers: list[Counts] = []

    def begin(self) -> None:
        self.is_open = True
        self._layers.clear()

    def add(self, counts: Counts) -> None:
        self._layers.append(counts)

    def take(self, tokens: int) -> list[Places] | None:
        """One entry per token, in the order of the batch; None when llama.cpp cut the batch, so that rows are no tokens
        of it, or when no layer was counted."""
        self.is_open = False
        layers, self._layers = self._layers, []
        if not layers or any(len(counts) != tokens for counts in layers):
            return None
        return [(int(remote), int(hot), int(other)) for remote, hot, other in np.sum(layers, axis=0)]


class RowPlaces:
    """The counts of all lanes, by number; a lane that was never asked for has none."""

    def __init__(self) -> None:
        self._lanes: dict[int, LanePlaces] = {}

    def lane(self, number: int) -> LanePlaces:
        return self._lanes.setdefault(number, LanePlaces())

    def open_lane(self, number: int) -> LanePlaces | None:
        """The count of this lane if it wants one now."""
        found = self._lanes.get(number)
        return found if found is not None and found.is_open else None
