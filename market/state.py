"""What a fold builds: the rows of every read model, by their keys. Pure."""

from dataclasses import dataclass, field
from datetime import datetime

from market import rows as r
from market.errors import BrokenHistory


@dataclass
class State:
    """Everything the read models hold, keyed as their rows are."""

    position: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    builds: dict[str, r.BuildRow] = field(default_factory=dict)
    layers: dict[tuple[str, int], r.LayerRow] = field(default_factory=dict)
    nodes: dict[str, r.NodeRow] = field(default_factory=dict)
    claims: dict[int, r.ClaimRow] = field(default_factory=dict)
    demand: dict[str, r.DemandRow] = field(default_factory=dict)
    credited: dict[tuple[str, str, int], r.CreditedRowsRow] = field(default_factory=dict)
    postings: list[r.PostingRow] = field(default_factory=list)
    balances: dict[str, r.BalanceRow] = field(default_factory=dict)
    holds: dict[tuple[str, datetime], r.HoldRow] = field(default_factory=dict)
    forfeits: dict[int, r.ForfeitRow] = field(default_factory=dict)
    batches: dict[int, r.PayoutBatchRow] = field(default_factory=dict)
    items: dict[str, r.PayoutItemRow] = field(default_factory=dict)
    incidents: dict[int, r.IncidentRow] = field(default_factory=dict)
    policy: r.PolicyRow | None = None

    def claim(self, claim_id: int) -> r.ClaimRow:
        """The claim, which must be pending or live; raises BrokenHistory."""
        claim = self.claims.get(claim_id)
        if claim is None or claim.state not in r.OPEN_STATES:
            raise BrokenHistory(f"position {self.position}: claim {claim_id} is unknown or has ended")
        return claim

    def build(self, fingerprint: str) -> r.BuildRow:
        build = self.builds.get(fingerprint)
        if build is None:
            raise BrokenHistory(f"position {self.position}: build {fingerprint} was never published")
        return build

    def node(self, node_id: str) -> r.NodeRow:
        node = self.nodes.get(node_id)
        if node is None:
            raise BrokenHistory(f"position {self.position}: node {node_id} never registered")
        return node
