"""What happens to money after it was earned. Part of the closed union of `market.events`. Pure.

Every event that moves money carries its postings, which sum to zero; `market.ledger` names the accounts.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from market.ledger import HeldPart, Posting


@dataclass(frozen=True, slots=True)
class EarningsReleased:
    """The audit window of these rewards has passed: pending became available. Said by: the market's timer."""

    NAME: ClassVar = "earnings-released"
    VERSION: ClassVar = 1
    node_id: str
    parts: tuple[HeldPart, ...]
    postings: tuple[Posting, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class EarningsForfeited:
    """Held rewards were voided. Said by: the audit or an operator."""

    NAME: ClassVar = "earnings-forfeited"
    VERSION: ClassVar = 1
    node_id: str
    parts: tuple[HeldPart, ...]
    by: str
    reason: str
    postings: tuple[Posting, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class EarningsRestored:
    """A forfeit was taken back: the same rewards are held again. Said by: an operator, or an incident.

    forfeited_position: the position of the event that is compensated; it can be compensated once.
    """

    NAME: ClassVar = "earnings-restored"
    VERSION: ClassVar = 1
    node_id: str
    forfeited_position: int
    parts: tuple[HeldPart, ...]
    by: str
    reason: str
    postings: tuple[Posting, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class BalanceAdjusted:
    """An operator put a mistake right: plus gives to what is available, minus takes. Said by: the operator."""

    NAME: ClassVar = "balance-adjusted"
    VERSION: ClassVar = 1
    node_id: str
    amount_microcredits: int
    by: str
    reason: str
    postings: tuple[Posting, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class PayoutItem:
    """One payment to be made. item_id is unique for ever: the provider pays it once however often it is asked."""

    item_id: str
    node_id: str
    amount_microcredits: int


@dataclass(frozen=True, slots=True)
class PayoutDrafted:
    """A batch was put together; its money is in transit, so nothing else can spend it. Said by: an operator.

    cutoff: rewards credited later stayed out; reserve_percent: share of what was available that was left for reversals.
    """

    NAME: ClassVar = "payout-drafted"
    VERSION: ClassVar = 1
    batch_id: int
    items: tuple[PayoutItem, ...]
    minimum_microcredits: int
    cutoff: datetime
    reserve_percent: int
    by: str
    reason: str
    postings: tuple[Posting, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class PayoutApproved:
    """A second person agreed. Said by: an operator who is not the one who drafted."""

    NAME: ClassVar = "payout-approved"
    VERSION: ClassVar = 1
    batch_id: int
    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class PayoutCancelled:
    """A batch that no provider has seen was dropped; its money is available again. Said by: an operator."""

    NAME: ClassVar = "payout-cancelled"
    VERSION: ClassVar = 1
    batch_id: int
    by: str
    reason: str
    postings: tuple[Posting, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class PayoutSending:
    """The batch is about to be handed to the provider; from here on it cannot be cancelled. Said by: an operator.

    Written before the provider is asked: after a crash nobody knows whether it was, and asking again is harmless.
    """

    NAME: ClassVar = "payout-sending"
    VERSION: ClassVar = 1
    batch_id: int
    provider: str
    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class PayoutSent:
    """The provider has the batch, under its reference. Said by: the provider."""

    NAME: ClassVar = "payout-sent"
    VERSION: ClassVar = 1
    batch_id: int
    reference: str
    at: datetime


@dataclass(frozen=True, slots=True)
class PayoutItemSettled:
    """The provider paid. Said by: a settlement file of the provider, imported by an operator."""

    NAME: ClassVar = "payout-item-settled"
    VERSION: ClassVar = 1
    batch_id: int
    item_id: str
    reference: str
    by: str
    postings: tuple[Posting, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class PayoutItemFailed:
    """The provider did not pay; the money is available again. Said by: as for a settled item."""

    NAME: ClassVar = "payout-item-failed"
    VERSION: ClassVar = 1
    batch_id: int
    item_id: str
    reason: str
    by: str
    postings: tuple[Posting, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class PayoutItemReturned:
    """A payment that had settled came back (a closed account); the money is available again. Said by: as before."""

    NAME: ClassVar = "payout-item-returned"
    VERSION: ClassVar = 1
    batch_id: int
    item_id: str
    reason: str
    by: str
    postings: tuple[Posting, ...]
    at: datetime


EarningsFact = EarningsReleased | EarningsForfeited | EarningsRestored | BalanceAdjusted
PayoutFact = (
    PayoutDrafted
    | PayoutApproved
    | PayoutCancelled
    | PayoutSending
    | PayoutSent
    | PayoutItemSettled
    | PayoutItemFailed
    | PayoutItemReturned
)
