"""Where present replicas do not serve: how much of what experts' workers were asked for did not come, or came late.

Said by backbones every minute, true for a few minutes; not events: a worker that is slow now may be quick soon. Prices
and targets look at it (`market.placement`), a claim keeps what it was granted. Kept in Django's cache beside presence.
"""

from datetime import datetime

import numpy as np
from django.core.cache import cache
from numpy.typing import NDArray

KEPT_SECONDS = 300
Strain = NDArray[np.float64]

# What one backbone said: (Unix seconds, shape, little-endian float32 bytes).
_Said = dict[str, tuple[float, tuple[int, int], bytes]]


def note(build: str, backbone: str, strain: Strain, now: datetime) -> None:
    """strain (layers, experts), 0 (all well) to 1 (nothing comes), in the build's order of layers.

    Two backbones that speak at the same moment may lose what one of them said; it speaks again a minute later.
    """
    said: _Said = cache.get(_key(build), {})
    oldest = now.timestamp() - KEPT_SECONDS
    fresh = {name: one for name, one in said.items() if one[0] >= oldest and name != backbone}
    values = np.clip(strain, 0.0, 1.0).astype("<f4")
    fresh[backbone] = (now.timestamp(), (values.shape[0], values.shape[1]), values.tobytes())
    cache.set(_key(build), fresh, KEPT_SECONDS)


def of(build: str, shape: tuple[int, int]) -> Strain | None:
    """The mean over the backbones that spoke lately; None when none did."""
    said: _Said = cache.get(_key(build), {})
    found = [np.frombuffer(raw, "<f4").reshape(shape) for _, its_shape, raw in said.values() if its_shape == shape]
    return np.mean(found, axis=0).astype(np.float64) if found else None


def _key(build: str) -> str:
    return f"market/strain/{build}"
