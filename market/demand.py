"""How often experts are chosen: packing observations into events, and the running mean over them. Pure numpy."""

import base64
import binascii

import numpy as np
from numpy.typing import NDArray

from market.errors import BadRequest, BrokenHistory

TIME_CONSTANT_SECONDS = 3600.0
# An expert whose workers serve nothing counts as if it were asked for this many times more: as hot as heat can get.
STRAIN_WEIGHT = 3.0
_UINT16_LIMIT = 0xFFFF


def pack_counts(counts: NDArray[np.integer]) -> tuple[str, int]:
    """counts (layers, experts), not negative -> base64 of little-endian uint16, and the scale they were divided by.

    Raises BadRequest for anything but a two-dimensional array of whole numbers that are not negative.
    """
    if counts.ndim != 2 or not np.issubdtype(counts.dtype, np.integer) or counts.size == 0:
        raise BadRequest("counts must be a non-empty array (layers, experts) of whole numbers")
    if int(counts.min()) < 0:
        raise BadRequest("counts must not be negative")
    scale = int(counts.max()) // (_UINT16_LIMIT + 1) + 1
    packed = (counts // scale).astype("<u2")
    return base64.b64encode(packed.tobytes()).decode("ascii"), scale


def unpack_counts(packed: str, scale: int, layers: int, experts: int) -> NDArray[np.float64]:
    """The counts (layers, experts) of an event as float64; raises BrokenHistory when the size is wrong."""
    try:
        raw = base64.b64decode(packed, validate=True)
    except binascii.Error as problem:
        raise BrokenHistory(f"demand counts are no base64: {problem}") from problem
    if len(raw) != layers * experts * 2:
        raise BrokenHistory(f"demand counts hold {len(raw)} bytes instead of {layers} x {experts} x 2")
    return np.frombuffer(raw, "<u2").reshape(layers, experts).astype(np.float64) * scale


def updated_mean(
    mean: NDArray[np.float64] | None,
    counts: NDArray[np.float64],
    window_seconds: float,
    new_seconds: float | None = None,
) -> NDArray[np.float64]:
    """Rows per hour after one more observation: an exponential mean with a time constant of one hour.

    new_seconds: how much of the window lies behind all that was observed before (None: all of it). Several backbones
    report the same hours, each its own rows: what they saw adds up, and the mean fades once for all of them.

    The weight of a window is w / (w + time constant), the first-order form of 1 - exp(-w / time constant): only
    +, -, x and / are used, which IEEE 754 rounds alike everywhere: a replay on another machine gives the same bits.
    """
    rows_per_hour = counts * 3600.0 / window_seconds
    if mean is None:
        return rows_per_hour
    weight = _weight(window_seconds)
    fading = weight if new_seconds is None else _weight(min(max(new_seconds, 0.0), window_seconds))
    return mean + (rows_per_hour - mean) * weight + mean * (weight - fading)


def _weight(seconds: float) -> float:
    return seconds / (seconds + TIME_CONSTANT_SECONDS)


def felt_demand(rows_per_hour: NDArray[np.float64], strain: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Rows per hour, raised where strain (0 to 1, the same shape) says that the present replicas do not serve."""
    return rows_per_hour if strain is None else rows_per_hour * (1.0 + STRAIN_WEIGHT * strain)
