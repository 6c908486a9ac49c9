"""Requests of a backbone, and the rows in them."""

import numpy as np

from relay.records import Json
from relay.work import Dispatch


def dispatch_of(key: object, values: np.ndarray, **fields: object) -> Dispatch:
    """One pair per row; claim 7 in layer 3 as the builders have it."""
    count = len(values)
    pairs = np.stack([np.arange(count), np.arange(count) % 8], axis=1).astype(np.uint16)
    known: Json = {"layer": 3, "fence": 1, "claim_id": 7, "row_dtype": 0, "rows": values, "pairs": pairs}
    return Dispatch(session=key, **{**known, **fields})


def rows(count: int, width: int = 16) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, width)).astype(np.float32)
