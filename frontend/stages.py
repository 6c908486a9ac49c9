"""Stages in words: which layers the units of a stage build are.

The market counts units; their layers are known where this server holds the model's file. Elsewhere a unit has its
number, which is never wrong.
"""

from django.utils.translation import gettext

from inference import builds
from inference.errors import InferenceError
from inference.stages import StageCuts, stage_fingerprint
from market import queries
from market.builds import BuildDescription


def stages_of(model: str) -> BuildDescription | None:
    """The stage build of a model, by the model's fingerprint; None where none is on offer."""
    wanted = stage_fingerprint(model)
    return next((build for build in queries.builds("stages") if build.fingerprint == wanted), None)


def cuts_of(stage_build: str) -> StageCuts | None:
    """Where the model of a stage build is cut; None where this server does not hold its file."""
    try:
        return builds.stages_for(stage_build).cuts
    except InferenceError:
        return None


def layers_of(cuts: StageCuts | None, first: int, last: int) -> tuple[int, int] | None:
    """The layers [first, last) of the units [first, last); None where they are not known."""
    return cuts.layers_of(first, last) if cuts is not None and last <= cuts.units else None


def run_words(stage_build: str, first: int, last: int) -> str:
    """The units [first, last) as people read them: "layers 4–7", else "units 1–2"."""
    return words_of(cuts_of(stage_build), first, last)


def words_of(cuts: StageCuts | None, first: int, last: int) -> str:
    layers = layers_of(cuts, first, last)
    if layers is not None:
        return layer_words(*layers)
    if last - first == 1:
        return gettext("unit %(number)d") % {"number": first}
    return gettext("units %(first)d–%(last)d") % {"first": first, "last": last - 1}


def layer_words(first: int, last: int) -> str:
    """The layers [first, last)."""
    if last - first == 1:
        return gettext("layer %(number)d") % {"number": first}
    return gettext("layers %(first)d–%(last)d") % {"first": first, "last": last - 1}
