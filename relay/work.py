"""A backbone's request to a worker or stage and what may come of it, as dispatcher and backbone link pass them on.

Plain values: no frames, no sockets.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Rows for experts of one claim.

    session: key of a session in the link's snapshot; rows: (R, n_embd) float32 for row dtype 0, or (R, row bytes) uint8
    for row dtype 1; pairs: (P, 2) uint16, row index and expert number as in the model; result_dtype: see
    `relay.frames.ResultDtype`; weights: (P,) float32, wanted for partial sums.
    """

    session: Hashable
    layer: int
    fence: int
    claim_id: int
    row_dtype: int
    rows: npt.NDArray[np.float32] | npt.NDArray[np.uint8]
    pairs: npt.NDArray[np.uint16]
    kind: Literal["dispatch", "challenge"] = "dispatch"
    result_dtype: int = 0
    weights: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """values: (P, n_embd) float32, one row per pair, in their order; for partial sums (R, n_embd), one per row of the
    request, float16 where that was asked for. Not checked for NaN or infinity."""

    values: npt.NDArray[np.float32] | npt.NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer will come. code: of docs/protocol.md, e.g. `session_left`, `no_credit`, `stale_fence`."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class StageStep:
    """A message of a ring for the units of one claim.

    session: key of a stage in the link's snapshot; message: what the stage reads (inference/ring/steps.py); rows: of
    its batch, for the accounts of the relay; answer_bytes: the largest answer that is taken.
    """

    session: Hashable
    fence: int
    claim_id: int
    message: bytes
    answer_bytes: int
    rows: int = 1


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """What a stage answered, unread."""

    message: bytes


Outcome = Result | Failed
OnDone = Callable[[Outcome], None]
StepOutcome = StageAnswer | Failed
OnStepDone = Callable[[StepOutcome], None]
