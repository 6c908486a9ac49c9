"""What a dispatcher is given: how requests travel, and the limits that it keeps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from inference.owners import SHORTEST_DEADLINE_SECONDS
from inference.rows import RowType
from relay.frames import ResultDtype
from relay.work import Dispatch, Outcome


class Transport(Protocol):
    """Carries requests to workers; answers come in a thread of its own. Implemented by `relay.backbone_link`."""

    def submit_many(self, dispatches: Sequence[tuple[Dispatch, Callable[[Outcome], None]]]) -> list[int]:
        """Queues requests, never blocks; each callback is called once. Returns the request ids."""
        ...

    def cancel(self, requests: Sequence[int]) -> None:
        """Forgets requests: their callbacks are not called any more."""
        ...


@dataclass(frozen=True)
class DispatchPolicy:
    """deadline_seconds: longest wait for one owner, and within which a second owner may still be asked;
    shortest_deadline_seconds: least wait for an owner with a history; tokens_limit: steps of more tokens (prompts)
    stay local; owner_bytes_limit: most bytes sent plus expected per owner, layer and step, whatever its measured rate
    allows; row_type: F32, or blocks where they are exact; kernel_class: when set, only owners of this class compute
    (bit-identical results); result_dtype: F32 is exact mode; with a partial one (compact mode) workers that can add up
    their rows times the router's weights, and prompts go to workers too, within the caps; slow_step_seconds: a layer
    that waited longer for its workers is told in the log; trusted_passes: audits in a row that let a node compute for
    requests of keys that trust few."""

    deadline_seconds: float = 2.0
    tokens_limit: int = 128
    owner_bytes_limit: int = 16 << 20
    row_type: RowType = RowType.Q8
    kernel_class: str | None = None
    shortest_deadline_seconds: float = SHORTEST_DEADLINE_SECONDS
    result_dtype: ResultDtype = ResultDtype.F32
    slow_step_seconds: float = 1.0
    trusted_passes: int = 100

    @property
    def is_compact(self) -> bool:
        return self.result_dtype is not ResultDtype.F32
