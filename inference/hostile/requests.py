"""Malformed HTTP requests to every address: odd paths, queries, headers, forms, JSON, bytes that are hardly HTTP."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from inference.hostile import mutations
from inference.hostile.targets import Target
from inference.hostile.tenants import Tenant
from inference.hostile.wire import Answer, Tally, request_bytes, timed

AT_ONCE = 24
# Nearly valid generations stream; whoever has seen the first tokens leaves.
STREAM_SECONDS = 4.0
BROKEN_SECONDS = 0.25
# These end the session or the token that is fuzzed with; they are asked as nobody.
ENDINGS = ("/me/token", "/me/close", "/sign-out", "/logout", "/me/sign-up", "password_change", "/closed")
GENERATION: dict[str, Any] = {
    "prompt": "In", "max_tokens": 2, "temperature": 0.5, "top_p": 0.9, "n": 1, "stream": False, "stop": ["x"],
    "seed": 1, "logprobs": 1, "echo": False, "logit_bias": {"5": 1}, "priority": 0, "background": False,
}  # fmt: skip
CHAT: dict[str, Any] = {**GENERATION, "messages": [{"role": "user", "content": "Hi"}], "logprobs": True}
# Names of fields that some form of ours reads.
FORM_FIELDS = ("name", "password", "next", "token", "node", "experts", "payee", "leaves_at", "reason", "give_up",
               "device", "prompt", "max_tokens", "temperature", "form_id", "amount", "path", "page", "build", "file",
               "action", "username", "until", "measure", "q", "sort", "state", "note", "confirm")  # fmt: skip
ODD_HEADERS: tuple[tuple[str, Callable[[random.Random], str]], ...] = (
    ("Authorization", lambda dice: f"{dice.choice(('Bearer', 'Basic', 'bearer', ''))} {mutations.odd_text(dice)}"),
    ("Cookie", lambda dice: f"sessionid={mutations.odd_text(dice)}; csrftoken={mutations.odd_text(dice)}"),
    ("Content-Type", lambda dice: dice.choice(("text/xml", "application/json; charset=utf-99", "multipart/form-data",
                                               "multipart/form-data; boundary=" + "b" * 300, "application/x-www-form-"
                                               "urlencoded; charset=utf-7", mutations.odd_text(dice)))),
    ("Content-Encoding", lambda dice: dice.choice(("gzip", "br", "deflate", "zstd"))),
    ("Content-Length", lambda dice: dice.choice(("-1", "0", "5", "+5", "0x5", "99999999999999999999", "1e3", "5, 5"))),
    ("Transfer-Encoding", lambda dice: dice.choice(("chunked", "gzip, chunked", "identity", "chunked\t"))),
    ("Range", lambda dice: dice.choice(("bytes=0-", "bytes=-1", "bytes=9-1", "bytes=0-0,2-3", "lines=1",
                                        "bytes=" + "0," * 99,
                                        f"bytes={2**64}-"))),
    ("If-Range", mutations.odd_text),
    ("If-None-Match", mutations.odd_text),
    ("If-Modified-Since", mutations.odd_text),
    ("Accept-Language", lambda dice: dice.choice(("zh-hans", "x" * 600, "en;q=9", ",,,;;"))),
    ("Accept-Encoding", lambda dice: dice.choice(("gzip", "*;q=0", "x" * 200))),
    ("Host", lambda dice: dice.choice(("evil.example", "127.0.0.1:99999", "", "a" * 300, "[::1", "127.0.0.1@evil"))),
    ("X-Forwarded-For", lambda dice: dice.choice(("1.2.3.4", "'\"", "::1, 127.0.0.1", "x" * 500))),
    ("X-Forwarded-Proto", lambda dice: dice.choice(("https", "ftp"))),
    ("X-Request-ID", mutations.odd_text),
    ("Origin", lambda dice: dice.choice(("null", "https://evil.example", "http://127.0.0.1"))),
    ("Referer", mutations.odd_text),
    ("HX-Request", lambda dice: "true"),
    ("HX-Current-URL", mutations.odd_text),
    ("Last-Event-ID", mutations.odd_text),
    ("Expect", lambda dice: "100-continue"),
    ("Upgrade", lambda dice: dice.choice(("websocket", "h2c"))),
    ("Connection", lambda dice: dice.choice(("Upgrade", "close, close", "keep-alive"))),
    ("X-Long", lambda dice: "x" * dice.choice((1000, 16_000, 70_000))),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """what: to find it again; may_stream: an answer without an end is right."""

    what: str
    request: bytes
    is_broken: bool
    may_stream: bool


class Fuzzer:
    """Makes the cases of one run. tenants: as whom requests are sent, nobody beside them."""

    def __init__(self, found: Sequence[Target], tenants: Sequence[Tenant], model: str, seed: int) -> None:
        self._targets, self._tenants, self._model, self._seed = found, tenants, model, seed

    def case(self, number: int) -> Case:
        dice = random.Random(f"{self._seed}/http/{number}")
        target = self._targets[number % len(self._targets)]
        body, kind = self._body(dice, target)
        headers = self._credentials(dice, target)
        method = dice.choice(target.methods) if dice.random() < 0.95 else mutations.odd_text(dice)[:40] or "X"
        if body and dice.random() < 0.9:
            method = next((name for name, _ in target.bodies), "POST")
        if body:
            headers["Content-Type"] = kind
        is_odd = dice.random() < 0.5
        if is_odd:
            name, make = dice.choice(ODD_HEADERS)
            headers[name] = make(dice)
        path = self._path(dice, target)
        request = request_bytes(method, path, headers, body)
        is_broken = dice.random() < 0.15
        if is_broken:
            request = mutations.mutated(dice, request)
        may_stream = "/stream" in path or path.startswith(("/v1/", "/try"))
        what = f"case {self._seed}/{number}: {method} {path[:120]}"
        return Case(what, request, is_broken or is_odd or method not in target.methods, may_stream)

    def _path(self, dice: random.Random, target: Target) -> str:
        own = dice.choice(self._tenants).ids if self._tenants else {}
        values = {
            part: quote(mutations.odd_text(dice), safe="/%" if dice.random() < 0.3 else "", errors="replace")
            if dice.random() < 0.4
            else own.get(part, str(dice.choice((0, 1, 2**31, 2**63, 10**30))))
            for part in target.parts
        }
        path = target.path(values) or "/"
        if dice.random() < 0.05:
            path += dice.choice(("/", "//", "%00", "/../..", ";x", ".json", "%2e%2e%2f", "?"))
        if dice.random() < 0.4:
            names = (*FORM_FIELDS, "after", "types", "budget_bytes", "since", "until", "format", "o", "p", "_popup")
            query = [(dice.choice(names), mutations.odd_text(dice)) for _ in range(dice.randint(1, 3))]
            path += "?" + urlencode(query, errors="replace")
        return path

    def _body(self, dice: random.Random, target: Target) -> tuple[bytes, str]:
        """Bytes and their type; b"" for none."""
        if target.template.startswith("/v1/"):
            sample = {**(CHAT if "chat" in target.template else GENERATION), "model": self._model}
            return mutations.odd_json(dice, sample), "application/json"
        samples = dict(target.bodies)
        if samples:
            body = dice.choice(list(samples.values()))
            return mutations.odd_json(dice, body if isinstance(body, dict) else {}), "application/json"
        if dice.random() < 0.4:
            return b"", ""
        fields = [(dice.choice(FORM_FIELDS), mutations.odd_text(dice)) for _ in range(dice.randint(1, 5))]
        way = dice.random()
        if way < 0.7:
            return urlencode(fields, errors="replace").encode(), "application/x-www-form-urlencoded"
        if way < 0.8:
            return json.dumps(mutations.odd_value(dice)).encode(), "application/json"
        return mutations.mutated(dice, _multipart(fields)), "multipart/form-data; boundary=b"

    def _credentials(self, dice: random.Random, target: Target) -> dict[str, str]:
        if not self._tenants or dice.random() < 0.15 or any(end in target.template for end in ENDINGS):
            return {}
        tenant = dice.choice(self._tenants)
        if target.template.startswith("/v1/"):
            return {"Authorization": f"Bearer {tenant.api_key}"} if tenant.api_key else {}
        if target.template.startswith("/api/"):
            return {"Authorization": f"Bearer {tenant.node_token}"} if tenant.node_token else {}
        return tenant.session_headers()


def _multipart(fields: Sequence[tuple[str, str]]) -> bytes:
    parts = [f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in fields]
    parts.append('--b\r\nContent-Disposition: form-data; name="file"; filename="../../x.csv"\r\n\r\na,b\r\n--b--\r\n')
    return "".join(parts).encode("utf-8", "replace")


async def fuzz(port: int, fuzzer: Fuzzer, first: int, last: int, done: Callable[[int], None]) -> Tally:
    """Cases [first, last), AT_ONCE at once. A well-formed request must be answered; no answer is a server error."""
    tally, numbers = Tally(), iter(range(first, last))

    async def client() -> None:
        for number in numbers:
            case = fuzzer.case(number)
            patience = BROKEN_SECONDS if case.is_broken else STREAM_SECONDS if case.may_stream else None
            answer, seconds = await timed(port, case.request, *(() if patience is None else (patience,)))
            note(tally, case, answer, seconds)
            done(tally.count)

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return tally


def note(tally: Tally, case: Case, answer: Answer, seconds: float) -> None:
    tally.note(answer, case.what, seconds, must_answer=not case.is_broken and not case.may_stream)
