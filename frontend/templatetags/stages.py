"""Claims of stages in words."""

from django import template

from frontend.stages import run_words
from market.holders import Holding
from market.queries import ClaimView

register = template.Library()


@register.filter
def stage_run(claim: ClaimView | Holding, stage_build: str = "") -> str:
    """What a claim of a stage build holds: "layers 4–7". stage_build: for claims that do not say their build."""
    return run_words(claim.build if isinstance(claim, ClaimView) else stage_build, claim.first, claim.last)
