"""The server's HTTP API as the worker sees it: typed answers, one kind of error, bounded retries.

Only requests that the server may safely see twice are repeated after they were sent; a claim whose answer got lost is
found again by the next heartbeat. Proxies of the environment (HTTP_PROXY, HTTPS_PROXY) are honoured by httpx itself.
"""

import asyncio
import contextlib
import json
import random
import re
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlencode

import httpx

from inference.worker.errors import BadAnswer, ServerRefused, ServerUnreachable, UnknownToken

ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.25
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
MANIFEST_SECONDS = 300.0
MOST_ANSWER_BYTES = 8 << 20
USER_AGENT = "expertswarm-worker/1"

DeviceRole = Literal["worker", "stage"]
Value = TypeVar("Value", int, float, str, list[Any], dict[str, Any])


@dataclass(frozen=True)
class Claim:
    """A lease on the experts [first, last) of one layer of a build, or of a stage's units. `slice_url`, `manifest_url`:
    paths.

    `live`: the server has verified that this node holds the slice. `replicas`: devices that hold its least held unit,
    this one too; told to stages only. Two claims are equal when they are the same lease; what the server says beside it
    may change.
    """

    claim_id: int
    build: str
    layer: int
    first: int
    last: int
    fence: int
    size_bytes: int = field(compare=False)
    slice_url: str = field(compare=False)
    manifest_url: str = field(compare=False)
    rate_microcredits_per_hour: int = field(compare=False)
    live: bool = field(compare=False)
    role: DeviceRole = field(default="worker", compare=False)
    replicas: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        one = self.last - self.first == 1
        if self.role == "stage":
            return f"unit {self.first}" if one else f"units {self.first}-{self.last - 1}"
        experts = f"expert {self.first}" if one else f"experts {self.first}-{self.last - 1}"
        return f"layer {self.layer}, {experts}"


@dataclass(frozen=True)
class Heartbeat:
    """The claims that this node holds, as the server sees them, and how long they live without a sign of life."""

    claims: tuple[Claim, ...]
    lease_seconds: float


@dataclass(frozen=True)
class OfferedRange:
    """Experts, or units, that the server wants somebody to hold; replicas: devices that do, None: it does not say."""

    build: str
    layer: int
    first: int
    last: int
    size_bytes: int
    rate_microcredits_per_hour: int
    replicas: int | None = None

    @property
    def expert_bytes(self) -> int:
        return -(-self.size_bytes // max(1, self.last - self.first))


@dataclass(frozen=True)
class Demand:
    """What the server wants, best first. When that is nothing, `reason` is a stable code and `message` says why."""

    ranges: tuple[OfferedRange, ...]
    poll_seconds: float
    reason: str = ""
    message: str = ""


def pause_seconds(attempt: int) -> float:
    """The wait before retry number `attempt` (from 0): doubling, with jitter so that many workers do not march."""
    return FIRST_PAUSE_SECONDS * 2.0**attempt * random.uniform(0.5, 1.5)


def error_from(response: httpx.Response, body: bytes) -> ServerRefused | ServerUnreachable:
    """The exception for an answer of 400 or above, in the server's own words where it has some."""
    code, message = (
        "http_error",
        f"{response.request.url.host} answered {response.status_code} {response.reason_phrase}",
    )
    # Anything but our error shape is a proxy's page, or no body: the status line has to do.
    with contextlib.suppress(ValueError, KeyError, TypeError):
        error = json.loads(body)["error"]
        code, message = str(error["code"]), str(error["message"])
    if response.status_code >= 500:
        return ServerUnreachable(message)
    if response.status_code == 401:
        return UnknownToken(401, code, message)
    return ServerRefused(response.status_code, code, message)


class MarketClient:
    """One server's API. `token` is None until the node is registered. Methods raise WorkerError only."""

    def __init__(
        self,
        server: str,
        token: str | None = None,
        timeout: httpx.Timeout = TIMEOUT,
        tls: ssl.SSLContext | None = None,
        role: DeviceRole = "worker",
    ) -> None:
        """tls: for https; None: httpx's own authorities, or those that SSL_CERT_FILE names. role: as what the device
        registers, and what its claims are about."""
        self.server = server
        self.role: DeviceRole = role
        self._http = httpx.AsyncClient(
            base_url=server,
            timeout=timeout,
            # identity: nothing is unpacked here, so no small answer becomes a large one.
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
            verify=tls or True,
        )
        self.token = token

    @property
    def token(self) -> str | None:
        return self._token

    @token.setter
    def token(self, token: str | None) -> None:
        self._token = token
        self._http.headers.pop("Authorization", None)
        if token is not None:
            self._http.headers["Authorization"] = f"Bearer {token}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def register(
        self, name: str, kernel_class: str, budget_bytes: int | None, invite: str = ""
    ) -> tuple[str, str]:
        """A new node; returns its id and its secret token."""
        body: dict[str, Any] = {"name": name, "kernel_class": kernel_class}
        if self.role != "worker":  # servers of the version before know no other
            body["role"] = self.role
        if invite:
            body["invite"] = invite
        if budget_bytes is not None:
            body["budget_bytes"] = budget_bytes
        answer = await self._call("POST", "/api/nodes", body, repeat=False)
        return _field(answer, "node_id", str), _field(answer, "token", str)

    async def node_id(self) -> str:
        """The id of the node whose token this is."""
        return _field(await self._call("GET", "/api/me"), "node_id", str)

    async def demand(
        self, budget_bytes: int | None, build: str | None = None, types: Collection[str] | None = None
    ) -> Demand:
        """What the server would give a node with so much memory to lend (None: without a limit).

        `types`: the ggml types that the node can compute; None: all.
        """
        query = {
            name: value
            for name, value in (("budget_bytes", budget_bytes), ("build", build), ("types", _joined(types)))
            if value is not None
        }
        answer = await self._call("GET", f"/api/demand?{urlencode(query)}")
        ranges = tuple(
            OfferedRange(
                build=_field(item, "build", str),
                layer=_field(item, "layer", int),
                first=_field(item, "first", int),
                last=_field(item, "last", int),
                size_bytes=_field(item, "size_bytes", int),
                rate_microcredits_per_hour=int(_field(item, "rate_microcredits_per_hour", float)),
                replicas=item.get("replicas") if type(item.get("replicas")) is int else None,
            )
            for item in _objects(answer, "ranges")
        )
        reason, message = str(answer.get("reason") or ""), str(answer.get("message") or answer.get("reason") or "")
        return Demand(ranges, _field(answer, "poll_seconds", float), reason, message)

    async def claim_best(
        self, budget_bytes: int, build: str | None = None, types: Collection[str] | None = None
    ) -> tuple[Claim, ...]:
        """Claim what pays best for so much memory, all in one build."""
        body: dict[str, Any] = {"best_for_budget_bytes": budget_bytes}
        if build is not None:
            body["build"] = build
        if types is not None:
            body["types"] = sorted(types)
        return self._claims(await self._call("POST", "/api/claims", body, repeat=False))

    async def release(self, claim_id: int) -> None:
        """Give a claim back."""
        await self._call("DELETE", f"/api/claims/{claim_id}")

    async def delivered(self, claim: Claim, sha256: str) -> None:
        """Tell the server that this node holds the claim's slice, with the digest of its bytes."""
        await self._call("POST", f"/api/claims/{claim.claim_id}/delivered", {"fence": claim.fence, "sha256": sha256})

    async def heartbeat(self) -> Heartbeat:
        """A sign of life; returns the claims that this node still holds."""
        answer = await self._call("POST", "/api/heartbeat")
        return Heartbeat(self._claims(answer), _field(answer, "lease_seconds", float))

    async def relays(self) -> tuple[str, ...]:
        """Where the server's relays are; empty when it does not tell. Asked once: the caller has a second way."""
        content = await self._request("GET", "/api/relays", None, repeat=False, attempts=1)
        try:
            return tuple(url for url in json.loads(content)["relays"] if isinstance(url, str))
        except (ValueError, KeyError, TypeError):
            return ()

    async def document(self, path: str) -> bytes:
        """The body of a manifest. The server may have to read the whole slice for its digests first, so it has time."""
        return await self._request("GET", path, None, repeat=True, read_seconds=MANIFEST_SECONDS)

    def stream_range(self, path: str, start: int, stop: int) -> Any:
        """An open request for the bytes [start, stop) of `path`: an async context manager of httpx.Response."""
        headers = {"Range": f"bytes={start}-{stop - 1}"}
        return self._http.stream("GET", path, headers=headers)

    def _claims(self, answer: Mapping[str, Any]) -> tuple[Claim, ...]:
        return tuple(_claim(item, self.role) for item in _objects(answer, "claims"))

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, repeat: bool = True
    ) -> dict[str, Any]:
        content = await self._request(method, path, body, repeat=repeat)
        try:
            answer = json.loads(content) if content else {}
        except ValueError as error:
            raise BadAnswer(
                f"{method} {path}: the answer is not JSON; is {self.server} an Expertswarm server?"
            ) from error
        if not isinstance(answer, dict):
            raise BadAnswer(f"{method} {path}: the answer is not a JSON object")
        return answer

    async def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        repeat: bool,
        read_seconds: float | None = None,
        attempts: int = ATTEMPTS,
    ) -> bytes:
        timeout = self._http.timeout
        if read_seconds is not None:
            timeout = httpx.Timeout(timeout.connect, read=read_seconds)
        for attempt in range(attempts):
            last = attempt == attempts - 1
            try:
                response, content = await self._answer(method, path, body, timeout)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:  # never sent: always safe to repeat
                if last:
                    raise unreachable(self.server, error) from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if last or not repeat:
                    raise unreachable(self.server, error) from error
            else:
                if response.status_code < 400 and len(content) <= MOST_ANSWER_BYTES:
                    return content
                busy = response.status_code in (429, 502, 503, 504)
                if last or not (busy or (repeat and response.status_code >= 500)):
                    raise error_from(response, content)
            await asyncio.sleep(pause_seconds(attempt))
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout: httpx.Timeout
    ) -> tuple[httpx.Response, bytes]:
        async with self._http.stream(method, path, json=body, timeout=timeout) as response:
            return response, await first_bytes(response)


async def first_bytes(response: httpx.Response) -> bytes:
    """The body as it was sent, cut above MOST_ANSWER_BYTES, whatever its server says of its length."""
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MOST_ANSWER_BYTES:
            break
    return bytes(body)


def unreachable(server: str, error: Exception) -> ServerUnreachable:
    """The readable form of a transport error."""
    detail = str(error) or type(error).__name__
    return ServerUnreachable(f"cannot reach {server} ({detail})")


def _field(answer: Mapping[str, Any], name: str, kind: type[Value]) -> Value:
    value = answer.get(name)
    if kind is float and isinstance(value, int):
        value = float(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise BadAnswer(f"the server's answer has no usable {name!r}: worker and server are of different versions")
    return value


def _joined(names: Collection[str] | None) -> str | None:
    return None if names is None else ",".join(sorted(names))


def _objects(answer: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    items = _field(answer, name, list)
    if not all(isinstance(item, dict) for item in items):
        raise BadAnswer(f"{name!r} in the server's answer must be a list of objects")
    return items


def _claim(item: Mapping[str, Any], role: DeviceRole) -> Claim:
    claim = Claim(
        claim_id=_field(item, "claim_id", int),
        build=_field(item, "build", str),
        layer=_field(item, "layer", int),
        first=_field(item, "first", int),
        last=_field(item, "last", int),
        fence=_field(item, "fence", int),
        size_bytes=_field(item, "size_bytes", int),
        slice_url=_field(item, "slice_url", str),
        manifest_url=_field(item, "manifest_url", str),
        rate_microcredits_per_hour=int(_field(item, "rate_microcredits_per_hour", float)),
        live=item.get("state") == "live",
        replicas=item.get("replicas") if type(item.get("replicas")) is int else None,
        role=role,
    )
    if not re.fullmatch(r"[0-9a-zA-Z_-]{1,128}", claim.build):  # it becomes the name of a folder
        raise BadAnswer(f"{claim.build!r} is not the fingerprint of a build")
    for path in (claim.slice_url, claim.manifest_url):
        if not path.startswith("/") or path.startswith("//"):  # the token is for this server only
            raise BadAnswer(f"{path!r} is not a path on this server")
    return claim
