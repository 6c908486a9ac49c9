"""Which lanes may show their rows to trusted workers only, and the replicas that are left for them.

A lane's step holds tokens of several requests, and a frame rows of several tokens, so the strictest one decides for
all of the step (docs/decisions/0015). What no trusted worker holds is computed here.
"""

import time
from collections.abc import Callable

from inference.audit import Auditor, NodeClass
from inference.replica_table import Replica, ReplicaTable

# How soon a node that has just earned its trust is asked; one that loses it is banned at once (`Dispatcher.ban`).
KEPT_SECONDS = 1.0


class LaneTrust:
    """What the present decode of one lane needs; written by the lane before it, read by the dispatcher within it."""

    def __init__(self) -> None:
        self.required = False


class TrustedLanes:
    """passes: audits in a row, all passed, that make a node trusted."""

    def __init__(self, auditor: Auditor | None, passes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._auditor, self._passes, self._clock = auditor, passes, clock
        self._lanes: dict[int, LaneTrust] = {}
        self._kept: tuple[ReplicaTable, float, ReplicaTable] | None = None

    def lane(self, number: int) -> LaneTrust:
        return self._lanes.setdefault(number, LaneTrust())

    def table_for(self, number: int, table: ReplicaTable) -> ReplicaTable:
        """The replicas that this lane's present step may use."""
        lane = self._lanes.get(number)
        if lane is None or not lane.required:
            return table
        kept, now = self._kept, self._clock()
        if kept is None or kept[0] is not table or now > kept[1] + KEPT_SECONDS:
            trusted = [replica for replica in table.replicas if self._is_trusted(replica)]
            kept = self._kept = (table, now, ReplicaTable(trusted, experts_per_layer=table.experts_per_layer))
        return kept[2]

    def _is_trusted(self, replica: Replica) -> bool:
        """Nobody is where nobody audits."""
        who = NodeClass(replica.node_id, replica.kernel_class)
        return self._auditor is not None and self._auditor.passes_count(who) >= self._passes
