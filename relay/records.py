"""The JSON bodies of control frames, as frozen dataclasses that refuse whatever does not fit.

`from_json` of each takes the parsed object and raises MessageError (naming the field) and nothing else; unknown keys
are ignored, so that a later version may add some. Source of the field lists: docs/protocol.md.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, cast

from relay.addresses import MAX_ADDRESSES, is_relay_url
from relay.errors import MessageError
from relay.frames import PROTOCOL_VERSION, Body

Json = dict[str, Any]
ReplicaState = Literal["pending", "live"]
SessionRole = Literal["worker", "stage"]
HELLO_BYTES = 64 * 1024
SMALL_JSON_BYTES = 4 * 1024
CAPABILITIES_BYTES = 4 * 1024
MAX_REPLICAS = 512
TOKEN_LIMIT = 512
_SHA256 = re.compile(r"[0-9a-f]{64}")


def dump_json(value: Mapping[str, object]) -> bytes:
    """Compact JSON. Raises MessageError for what JSON cannot say (NaN, infinity, foreign types)."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"these values cannot be written as JSON: {error}") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def load_json(body: Body, limit: int) -> Json:
    """The object that a body holds. Raises MessageError for anything else, and for more than `limit` bytes."""
    if len(body) > limit:
        raise MessageError(f"a JSON body of {len(body)} bytes; the limit is {limit}")
    try:
        value = json.loads(bytes(body).decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"the body is no JSON: {error}") from None
    return _object(value, "the body")


def _object(value: object, name: str) -> Json:
    if not isinstance(value, dict):
        raise MessageError(f"{name} must be a JSON object")
    return value


def _text(data: Json, key: str, limit: int, *, default: str | None = None) -> str:
    value = data.get(key, default)
    # Printable also excludes half surrogate pairs, which no later .encode() would survive.
    if not isinstance(value, str) or len(value) > limit or not value.isprintable():
        raise MessageError(f"{key} must be printable text of at most {limit} characters")
    return value


def _integer(data: Json, key: str, bits: int) -> int:
    value = data.get(key)
    if type(value) is not int or not 0 <= value < 1 << bits:
        raise MessageError(f"{key} must be a whole number of {bits} bits")
    return value


def _number(data: Json, key: str, low: float, high: float) -> float:
    value = data.get(key)
    if (
        type(value) not in (int, float)
        or not math.isfinite(cast(float, value))
        or not low <= cast(float, value) <= high
    ):
        raise MessageError(f"{key} must be a number from {low:g} to {high:g}")
    return float(cast(float, value))


def _optional_number(data: Json, key: str, low: float, high: float) -> float | None:
    return None if data.get(key) is None else _number(data, key, low, high)


def _list(data: Json, key: str, limit: int) -> list[Any]:
    value = data.get(key, [])
    if not isinstance(value, list) or len(value) > limit:
        raise MessageError(f"{key} must be a list of at most {limit} entries")
    return value


def _capabilities(data: Json) -> Json:
    value = _object(data.get("capabilities", {}), "capabilities")
    if len(dump_json(value)) > CAPABILITIES_BYTES:
        raise MessageError(f"capabilities must take at most {CAPABILITIES_BYTES} bytes as JSON")
    return value


@dataclass(frozen=True, slots=True)
class Replica:
    """One range of experts `[first, last)` of one layer that a worker holds under a claim.

    `state` is the market's word and only the relay writes it; what a worker says of itself is `pending`.
    """

    claim_id: int
    fence: int
    layer: int
    first: int
    last: int
    sha256: str
    state: ReplicaState = "pending"

    @classmethod
    def from_json(cls, value: object) -> Self:
        data = _object(value, "each replica")
        first, last = _integer(data, "first", 16), _integer(data, "last", 16)
        if first >= last:
            raise MessageError("first must be below last in each replica")
        digest = data.get("sha256")
        if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise MessageError("sha256 must be 64 lower-case hexadecimal digits")
        state = data.get("state", "pending")
        if state not in ("pending", "live"):
            raise MessageError("state must be pending or live")
        claim_id, fence, layer = (
            _integer(data, "claim_id", 63),
            _integer(data, "fence", 32),
            _integer(data, "layer", 16),
        )
        return cls(claim_id, fence, layer, first, last, digest, state)

    def to_json(self) -> Json:
        return {name: getattr(self, name) for name in self.__slots__}

    def with_state(self, state: ReplicaState) -> "Replica":
        return replace(self, state=state)


def _replicas(data: Json) -> tuple[Replica, ...]:
    return tuple(Replica.from_json(entry) for entry in _list(data, "replicas", MAX_REPLICAS))


@dataclass(frozen=True)
class Hello:
    """The client's first frame: who it is, what it computes, and (a worker, a stage) which replicas it holds.

    stages: of a backbone: the build of whose stages it wants to hear; empty: of none.
    """

    token: str
    build: str
    kernel_class: str
    name: str = ""
    capabilities: Json = field(default_factory=dict)
    replicas: tuple[Replica, ...] = ()
    protocol: int = PROTOCOL_VERSION
    stages: str = ""

    @classmethod
    def from_json(cls, data: Json) -> Self:
        return cls(
            token=_text(data, "token", TOKEN_LIMIT),
            build=_text(data, "build", 128),
            kernel_class=_text(data, "kernel_class", 256),
            name=_text(data, "name", 128, default=""),
            capabilities=_capabilities(data),
            replicas=_replicas(data),
            protocol=_integer(data, "protocol", 32),
            stages=_text(data, "stages", 128, default=""),
        )


@dataclass(frozen=True)
class Welcome:
    """The relay's answer: `session` (worker, stage) or `stream` (backbone), the other is 0; times in seconds, credit in
    bytes.

    `credit_bytes` is what either side may send to one peer before that peer grants more; no grant may raise the
    amount that is open above `credit_limit_bytes`. A backbone has both for stages, too; 0: this relay has none.
    `relays`: addresses of this server's relays, for a worker whose present one goes away.
    """

    session: int
    stream: int
    ping_seconds: float
    credit_bytes: int
    credit_limit_bytes: int
    relays: tuple[str, ...] = ()
    stage_credit_bytes: int = 0
    stage_credit_limit_bytes: int = 0

    @classmethod
    def from_json(cls, data: Json) -> Self:
        return cls(
            session=_integer(data, "session", 32),
            stream=_integer(data, "stream", 32),
            ping_seconds=_number(data, "ping_seconds", 0.001, 3600),
            credit_bytes=_integer(data, "credit_bytes", 32),
            credit_limit_bytes=_integer(data, "credit_limit_bytes", 32),
            relays=tuple(url for url in _list(data, "relays", MAX_ADDRESSES) if is_relay_url(url)),
            stage_credit_bytes=_integer({"stage_credit_bytes": 0, **data}, "stage_credit_bytes", 32),
            stage_credit_limit_bytes=_integer({"stage_credit_limit_bytes": 0, **data}, "stage_credit_limit_bytes", 32),
        )

    def to_json(self) -> Json:
        """Without what is told to backbones only, where it is 0."""
        return {name: value for name, value in self.__dict__.items() if value or not name.startswith("stage_")}


@dataclass(frozen=True)
class Refusal:
    """Body of REJECT and of ERROR: a stable code and a sentence for a person."""

    code: str
    message: str

    @classmethod
    def from_json(cls, data: Json) -> Self:
        return cls(_text(data, "code", 64), _text(data, "message", 1024, default=""))


@dataclass(frozen=True)
class Status:
    """A worker's report: what it holds now, its load (1 = fully busy) and its battery (1 = full), where known."""

    replicas: tuple[Replica, ...]
    load: float | None = None
    battery: float | None = None

    @classmethod
    def from_json(cls, data: Json) -> Self:
        return cls(_replicas(data), _optional_number(data, "load", 0, 1e6), _optional_number(data, "battery", 0, 1))


@dataclass(frozen=True)
class RosterSession:
    """One worker or stage as backbones see it: only replicas that it says it holds and the market has leased to it."""

    session: int
    node_id: str
    kernel_class: str
    name: str
    capabilities: Json
    replicas: tuple[Replica, ...]
    role: SessionRole = "worker"

    @classmethod
    def from_json(cls, value: object) -> Self:
        data = _object(value, "each session")
        role = data.get("role", "worker")
        if role not in ("worker", "stage"):
            raise MessageError("role must be worker or stage")
        return cls(
            session=_integer(data, "session", 32),
            node_id=_text(data, "node_id", 128),
            kernel_class=_text(data, "kernel_class", 256),
            name=_text(data, "name", 128),
            capabilities=_capabilities(data),
            replicas=_replicas(data),
            role=role,
        )

    def to_json(self) -> Json:
        """The role of a worker is left out."""
        entry = {**self.__dict__, "replicas": [replica.to_json() for replica in self.replicas]}
        return entry if self.role == "stage" else {name: entry[name] for name in entry if name != "role"}


@dataclass(frozen=True)
class RosterChange:
    """Sessions that joined or changed, and sessions that left. `full`: forget everything known before."""

    full: bool
    joined: tuple[RosterSession, ...] = ()
    left: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, data: Json) -> Self:
        left = _list(data, "left", 1 << 20)
        if any(type(session) is not int for session in left):
            raise MessageError("left must be a list of session numbers")
        joined = tuple(RosterSession.from_json(entry) for entry in _list(data, "joined", 1 << 20))
        return cls(data.get("full") is True, joined, tuple(left))
