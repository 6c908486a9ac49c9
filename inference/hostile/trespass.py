"""One account's credentials against everything of another account, at every address with every method."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx

from inference.hostile.requests import AT_ONCE, ENDINGS
from inference.hostile.targets import Target
from inference.hostile.tenants import SECONDS, Tenant
from inference.hostile.wire import Answer, Tally, request_bytes, timed

# For staff alone; what strangers may see there are the doors.
STAFF_ONLY = ("/operator/", "/admin/", "/keys", "/payouts")
DOORS = ("/operator/login", "/admin/login/", "/admin/logout/", "/operator/logout", "/admin/jsi18n/")
STREAM_SECONDS = 5.0


@dataclass(frozen=True)
class Attempt:
    what: str
    path: str
    method: str
    request: bytes


def attempts(found: Sequence[Target], thief: Tenant, victim: Tenant) -> Iterator[Attempt]:
    """Every target x method x kind of credential, with the victim's ids wherever the address or body takes one."""
    bearers = {"device token": thief.node_token, "API key": thief.api_key}
    for target in found:
        path = target.path(victim.ids)
        for method in target.methods:
            credentials: dict[str, dict[str, str]] = {"nobody": {}}
            if not any(end in target.template for end in ENDINGS):
                credentials["session"] = thief.session_headers()
                credentials |= {who: {"Authorization": f"Bearer {token}"} for who, token in bearers.items()}
            body, kind = _body(target, method, victim)
            for who, headers in credentials.items():
                fields = headers | ({"Content-Type": kind} if body else {})
                request = request_bytes(method, path, fields, body)
                yield Attempt(f"{method} {target.template} as {who}", path, method, request)


def _body(target: Target, method: str, victim: Tenant) -> tuple[bytes, str]:
    if method not in ("POST", "PUT", "PATCH"):
        return b"", ""
    for described, body in target.bodies:
        if described == method:
            return json.dumps(body).encode(), "application/json"
    fields = {"node": victim.node_id, "device": victim.node_id, "reason": "mine now", "name": "x", "give_up": "1"}
    return urlencode(fields).encode(), "application/x-www-form-urlencoded"


def leaks(attempt: Attempt, answer: Answer, victim: Tenant) -> list[str]:
    """What the answer tells of the victim that the request did not say itself, or opens that is the staff's."""
    text = answer.head + answer.body
    found = [
        f"{attempt.what} answers {answer.status} with the victim's {what}"
        for what, secret in victim.secrets.items()
        if secret.encode() in text and secret.encode() not in attempt.request
    ]
    is_inside = attempt.path.startswith(STAFF_ONLY) and not attempt.path.startswith(DOORS)
    if is_inside and answer.status == 200 and attempt.method != "OPTIONS":
        found.append(f"{attempt.what} answers 200: it is for staff")
    return found


@dataclass
class Trespasses:
    """tally: of the requests; leaks, changes: what a stranger read, or altered."""

    tally: Tally
    leaks: list[str]
    changes: list[str]


async def trespass(
    port: int, found: Sequence[Target], thief: Tenant, victim: Tenant, done: Callable[[int], None]
) -> Trespasses:
    tally, leaked, waiting = Tally(), list[str](), iter(list(attempts(found, thief, victim)))

    async def client() -> None:
        for attempt in waiting:
            is_stream = attempt.path.endswith("/stream")
            answer, seconds = await timed(port, attempt.request, *((STREAM_SECONDS,) if is_stream else ()))
            tally.note(answer, attempt.what, seconds, must_answer=not is_stream)
            leaked.extend(leaks(attempt, answer, victim))
            done(tally.count)

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return Trespasses(tally, leaked, [])


def possessions(url: str, tenant: Tenant) -> dict[str, object]:
    """What an account has, as it sees it itself: equal before and after when nobody else touched it."""
    device = {"Authorization": f"Bearer {tenant.node_token}"}
    key = {"Authorization": f"Bearer {tenant.api_key}"}
    with httpx.Client(base_url=url, timeout=SECONDS, cookies=tenant.cookies) as client:
        me = client.get("/api/me", headers=device)
        page = client.get("/me/")
        generation = client.get(f"/v1/generations/{tenant.generation_id}", headers=key)
    claims = me.json().get("claims", [])
    return {
        "device": (me.status_code, me.json().get("name"), me.json().get("leaves_at")),
        "claims": [(claim["claim_id"], claim["fence"], claim["state"]) for claim in claims],
        "page": (
            page.status_code,
            tenant.device_name in page.text,
            re.findall(r"payee[^>]*value=\"([^\"]*)\"", page.text),
        ),
        "generation": (generation.status_code, generation.text),
    }
