"""Every error the market raises: one small tree of stable codes, each with its HTTP status.

`code` is part of the public API and never changes its meaning; `str(error)` says what to do about it. The HTTP edge
turns an error into `{"error": {"code": ..., "message": ...}}` with `status`; nothing else needs to know a status.
"""

from typing import ClassVar


class MarketError(Exception):
    """The root of the tree; only subclasses are raised."""

    code: ClassVar[str] = "market_error"
    status: ClassVar[int] = 400


class BadRequest(MarketError):
    """A value is outside what the command accepts."""

    code = "bad_request"
    status = 422


class BodyTooLarge(MarketError):
    code = "body_too_large"
    status = 413


class TooManyRequests(MarketError):
    """retry_after_seconds: when the next one is welcome."""

    code = "too_many_requests"
    status = 429

    def __init__(self, message: str, retry_after_seconds: int = 5) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Conflict(MarketError):
    """Somebody else was first: the stream is not at the version that was read. Read again and decide again."""

    code = "conflict"
    status = 409


class KeyReused(MarketError):
    """An idempotency key came back with another kind of command."""

    code = "key_reused"
    status = 409


class Busy(MarketError):
    """The database did not hand out its write lock in time; the command did nothing and may be repeated."""

    code = "busy"
    status = 503


class BadToken(MarketError):
    code = "bad_token"
    status = 401


class RegistrationClosed(MarketError):
    code = "registration_closed"
    status = 403


class BadInvite(MarketError):
    """Registration is by invite, and the code is missing, unknown, used up or too old."""

    code = "bad_invite"
    status = 403


class InvitesUsed(MarketError):
    code = "invites_used"
    status = 409


class DeviceCapReached(MarketError):
    """The account has as many devices as one may have."""

    code = "device_cap_reached"
    status = 409


class UnknownNode(MarketError):
    code = "unknown_node"
    status = 404


class Suspended(MarketError):
    code = "suspended"
    status = 403


class UnknownBuild(MarketError):
    code = "unknown_build"
    status = 404


class RangeOutside(MarketError):
    """A range is empty, too long, or not inside an offered layer of the build."""

    code = "range_outside"
    status = 422


class AlreadyHeld(MarketError):
    """The node already holds a claim on one of these experts."""

    code = "already_held"
    status = 409


class OverSubscribed(MarketError):
    """An expert of the range already has the greatest number of replicas that the policy allows."""

    code = "over_subscribed"
    status = 409


class BudgetTooSmall(MarketError):
    """The device's memory budget holds less than one expert; `minimum_bytes` is the smallest that helps."""

    code = "budget_too_small"
    status = 422

    def __init__(self, message: str, minimum_bytes: int) -> None:
        super().__init__(message)
        self.minimum_bytes = minimum_bytes


class BudgetExhausted(MarketError):
    """The operator's budget per hour is reserved by live claims down to the last microcredit."""

    code = "budget_exhausted"
    status = 409


class NoWork(MarketError):
    """Nothing is wanted that this device could hold."""

    code = "no_work"
    status = 409


class NoBuilds(NoWork):
    code = "no_builds"


class TypesUnsupported(NoWork):
    """Every layer on offer has a ggml type that the device cannot compute."""

    code = "types_unsupported"


class FullyCovered(NoWork):
    """Every expert has as many replicas as the policy allows, or is held by this very device."""

    code = "fully_covered"


class UnknownClaim(MarketError):
    code = "unknown_claim"
    status = 404


class ClaimEnded(MarketError):
    """The claim was released or has expired."""

    code = "claim_ended"
    status = 410


class StaleFence(MarketError):
    """The fence belongs to an older grant; what happened under it is neither used nor paid."""

    code = "stale_fence"
    status = 409


class DigestMismatch(MarketError):
    code = "digest_mismatch"
    status = 409


class NotAvailable(MarketError):
    """An account has less than what would be taken from it."""

    code = "not_available"
    status = 409


class NothingToPay(MarketError):
    """No account has enough available, a payee and no suspension."""

    code = "nothing_to_pay"
    status = 409


class SamePerson(MarketError):
    """A payout is approved by somebody else than who drafted it."""

    code = "same_person"
    status = 403


class UnknownPayout(MarketError):
    code = "unknown_payout"
    status = 404


class WrongState(MarketError):
    """A payout or one of its items is past, or not yet at, the point where this can be done."""

    code = "wrong_state"
    status = 409


class ProviderFailed(MarketError):
    """The payment provider did not take the batch; asking again is safe."""

    code = "provider_failed"
    status = 503


class WrongKind(MarketError):
    """The build offers what devices of this role do not hold: stages to a worker, or experts to a stage."""

    code = "wrong_kind"
    status = 409


class IncidentInForce(MarketError):
    """During a declared incident nobody is punished."""

    code = "incident_in_force"
    status = 409


class Leaving(MarketError):
    """The device has announced that it leaves, so it gets nothing new."""

    code = "leaving"
    status = 409


class Unbalanced(MarketError):
    """Postings that do not sum to zero: a defect of ours, never of a caller."""

    code = "unbalanced"
    status = 500


class UnknownEvent(MarketError):
    """A stored event has a name or version that this program cannot read, or a body with wrong fields."""

    code = "unknown_event"
    status = 500


class BrokenHistory(MarketError):
    """The stored events contradict each other: a gap in the positions, or an id that was never introduced."""

    code = "broken_history"
    status = 500
