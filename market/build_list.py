"""All builds that were ever published, in figures, for pages."""

from dataclasses import dataclass
from datetime import datetime
from typing import cast

from django.db.models import Count, Max, Min, Sum

from market import rows as r
from market.kinds import BuildKind
from market.models import Build, Claim, Layer


@dataclass(frozen=True)
class BuildLine:
    """size_bytes: of all experts on offer; claims: open ones; smallest, largest: bytes of one expert."""

    fingerprint: str
    name: str
    architecture: str
    kind: BuildKind
    layers: int
    experts_per_layer: int
    size_bytes: int
    smallest_bytes: int
    largest_bytes: int
    claims: int
    published_at: datetime
    retired_at: datetime | None


def build_lines() -> list[BuildLine]:
    """Oldest first, retired ones too."""
    layers = {
        row["build"]: row
        for row in Layer.objects.values("build").annotate(
            count=Count("layer"), total=Sum("expert_bytes"), least=Min("expert_bytes"), most=Max("expert_bytes")
        )
    }
    claims = dict(
        Claim.objects.filter(state__in=r.OPEN_STATES).values_list("build").annotate(Count("claim_id")).order_by()
    )
    return [
        BuildLine(
            fingerprint=row.fingerprint,
            name=row.name,
            architecture=row.architecture,
            kind=cast(BuildKind, row.kind),
            layers=layers[row.fingerprint]["count"],
            experts_per_layer=row.experts_per_layer,
            size_bytes=layers[row.fingerprint]["total"] * row.experts_per_layer,
            smallest_bytes=layers[row.fingerprint]["least"],
            largest_bytes=layers[row.fingerprint]["most"],
            claims=claims.get(row.fingerprint, 0),
            published_at=row.published_at,
            retired_at=row.retired_at,
        )
        for row in Build.objects.order_by("published_at", "fingerprint")
    ]


def find(fingerprint: str) -> BuildLine | None:
    return next((line for line in build_lines() if line.fingerprint == fingerprint), None)
