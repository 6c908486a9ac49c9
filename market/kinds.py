"""What a build offers and which devices may take it. Pure.

A build of kind "experts" offers the experts of a model, one by one; one of kind "stages" offers its dense path in runs
of units. A device says its role when it registers: workers hold experts, stages hold units, and nobody holds both.
"""

from collections.abc import Mapping
from typing import Literal

BuildKind = Literal["experts", "stages"]
NodeRole = Literal["worker", "stage"]

KIND_OF_ROLE: Mapping[NodeRole, BuildKind] = {"worker": "experts", "stage": "stages"}
# Runs of one claim for a budget: a stage is one place in the ring, however much memory its host lends.
RUNS_AT_ONCE: Mapping[BuildKind, int] = {"experts": 64, "stages": 1}
