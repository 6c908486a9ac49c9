"""Everything that can go wrong on the relay's wire, as one small tree with stable codes.

Peers cause these exceptions; they are caught at the edges (consumer, client), which turn them into a close code.
"""


class RelayError(Exception):
    """Base of the tree; `code` is stable and meant for programs, `str()` tells a person what to do."""

    code = "relay_error"


class FrameError(RelayError):
    """These bytes are no frame of this protocol, or these values do not fit into one."""

    code = "bad_frame"


class TruncatedFrame(FrameError):
    """The message ends before the header or the body does."""


class OversizeFrame(FrameError):
    """A body, or a whole message, is larger than the protocol allows."""


class UnknownFrame(FrameError):
    """A frame type or flag that this version does not define."""


class MessageError(RelayError):
    """A frame whose body cannot be read: JSON of the wrong shape, sizes that contradict the header."""

    code = "bad_body"


class ProtocolViolation(RelayError):
    """A well-formed frame that the sender may not send now, or not with these header fields."""

    code = "protocol_violation"


class CreditExceeded(ProtocolViolation):
    """More bytes than the receiver granted, or more granted than the limit allows."""

    code = "credit_exceeded"


class BadPreamble(ProtocolViolation):
    """The first byte of the first message names no role."""

    code = "bad_preamble"


class MarketAway(RelayError):
    """The database or the cache behind the market cannot be reached now; a later question may be answered."""

    code = "market_away"


class Rejected(RelayError):
    """The relay refused or ended the session for a reason that a new attempt would not change."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RelayLost(RelayError):
    """The connection ended before the frame could be handed over; a later attempt may succeed."""

    code = "relay_lost"
