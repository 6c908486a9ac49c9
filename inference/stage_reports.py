"""The stages of a model in the market: what a backbone says of them; of experts, `inference.reports` does."""

from datetime import UTC, datetime

import gguf
import numpy as np
import numpy.typing as npt

from inference.reports import market_connection
from inference.stage_file import StageSource
from inference.stages import STAGE_LAYER
from market import commands
from market.builds import BuildDescription

TYPES_TOLD = 12


def stage_build(source: StageSource) -> BuildDescription:
    """The units of the dense path as the market sees them: "experts" of one layer, of which a token passes all.

    A unit is as large as the largest, so a claim of several is never smaller than its file.
    """
    index, units = source.index, source.cuts.units
    flops = sum(source.unit_flops) / units
    types = sorted(
        {gguf.GGMLQuantizationType(info.ggml_type).name for _, part in source.parts for info in part.tensors.values()}
    )
    return BuildDescription(
        fingerprint=source.cuts.build,
        name=f"{index.name}, stages",
        architecture=index.architecture,
        n_embd=index.n_embd,
        n_ff=max(1, round(flops / (6 * index.n_embd))),
        experts_per_layer=units,
        experts_used=units,
        layers=(STAGE_LAYER,),
        expert_bytes=(max(source.unit_bytes),),
        expert_types=(tuple(types[:TYPES_TOLD]),),
        kind="stages",
    )


def publish_stages(source: StageSource) -> None:
    """Offers the stages of a model; harmless when they are on offer already. Raises NotAcknowledged."""
    with market_connection():
        commands.publish_build(stage_build(source))


def observe_stage_demand(build: str, counts: npt.NDArray[np.uint64], since: float, until: float) -> None:
    """counts (1, units): tokens that rings took through each unit. Raises NotAcknowledged."""
    with market_connection():
        commands.observe_demand(
            build, counts.astype(np.int64), datetime.fromtimestamp(since, UTC), datetime.fromtimestamp(until, UTC)
        )
