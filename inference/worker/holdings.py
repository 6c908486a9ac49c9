"""Slices that are held: an open kernel or stage for each, with the claim that allows to answer for it.

Used by the event loop's thread only. Requests in the queue keep their holding by reference, so a holding that was
dropped is closed by the computing thread, after them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from inference.worker.market_client import Claim


class Computes(Protocol):
    """What computes with a slice: the kernel of a worker, the stage of a stage."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Holding:
    """One slice in memory. `sha256`: digest of the whole slice file; kernel: of the kind that its service asks."""

    claim: Claim
    sha256: str
    kernel: Computes

    def as_replica(self) -> dict[str, Any]:
        """The entry of HELLO and STATUS (docs/protocol.md)."""
        claim = self.claim
        return {
            "claim_id": claim.claim_id,
            "fence": claim.fence,
            "layer": claim.layer,
            "first": claim.first,
            "last": claim.last,
            "sha256": self.sha256,
        }


class Holdings:
    """All slices held now, by claim."""

    def __init__(self) -> None:
        self._by_claim: dict[int, Holding] = {}

    def __len__(self) -> int:
        return len(self._by_claim)

    def __iter__(self) -> Iterator[Holding]:
        return iter(sorted(self._by_claim.values(), key=lambda held: (held.claim.layer, held.claim.first)))

    def add(self, holding: Holding) -> None:
        assert holding.claim.claim_id not in self._by_claim
        self._by_claim[holding.claim.claim_id] = holding

    def find(self, claim_id: int) -> Holding | None:
        return self._by_claim.get(claim_id)

    def remove(self, claim_id: int) -> Holding:
        """Takes it out; the caller has it closed by the computing thread."""
        return self._by_claim.pop(claim_id)

    @property
    def build(self) -> str | None:
        """The build that the slices belong to; the worker holds slices of one build at a time."""
        return next((held.claim.build for held in self._by_claim.values()), None)

    def replicas(self) -> list[dict[str, Any]]:
        """The list of HELLO and STATUS."""
        return [holding.as_replica() for holding in self]

    def __str__(self) -> str:
        return "; ".join(str(holding.claim) for holding in self) or "nothing"
