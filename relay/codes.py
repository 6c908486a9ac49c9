"""The stable codes that peers see: why a session was refused, why a request failed, why a connection was closed."""

from enum import IntEnum, StrEnum


class RejectCode(StrEnum):
    """`code` of a REJECT frame. `message` beside it is for people and may change."""

    BAD_PREAMBLE = "bad_preamble"
    BAD_HELLO = "bad_hello"
    BAD_TOKEN = "bad_token"
    WRONG_ROLE = "wrong_role"
    PROTOCOL_VERSION = "protocol_version"
    BUILD_MISMATCH = "build_mismatch"
    REPLACED = "replaced"
    SUSPENDED = "suspended"
    OVERLOADED = "overloaded"
    PROTOCOL_VIOLATION = "protocol_violation"
    TOO_MUCH = "too_much"


RETRY_REJECTS = frozenset({RejectCode.OVERLOADED, RejectCode.PROTOCOL_VIOLATION, RejectCode.TOO_MUCH})
"""After these a client may connect again, with a back-off. After every other one it must stop and say why."""


class ErrorCode(StrEnum):
    """`code` of an ERROR frame: this one request failed, the session goes on."""

    STALE_FENCE = "stale_fence"
    UNKNOWN_EXPERT = "unknown_expert"
    BAD_BODY = "bad_body"
    OVERLOADED = "overloaded"
    INTERNAL = "internal"
    # The rest are made by the relay (FLAG_RELAY).
    NO_SESSION = "no_session"
    NOT_LEASED = "not_leased"
    WRONG_ROLE = "wrong_role"


class LinkCode(StrEnum):
    """Codes that the backbone's link makes itself, beside those of ERROR: nothing came over the wire."""

    SESSION_LEFT = "session_left"
    NO_CREDIT = "no_credit"
    RELAY_LOST = "relay_lost"
    BAD_RESULT = "bad_result"
    STOPPED = "stopped"


class CloseCode(IntEnum):
    """WebSocket close codes; 4000 to 4999 are free for applications (RFC 6455, section 7.4.2).

    Not 1012 (service restart): Daphne's WebSocket library sends no code between 1001 and 2999.
    """

    NORMAL = 1000
    RESTART = 4012
    VIOLATION = 4400
    REJECTED = 4401
    REVOKED = 4403
    SILENT = 4408
    REPLACED = 4409
    EXCESS = 4429
