"""A small market over real HTTP for the worker's tests: nodes, claims and the demo model's slices, all in memory.

The server of the project is another program; here only what a worker asks of it is played, so that a test can end a
lease, forget a token or run out of work at will.
"""

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from inference.gguf_index import ModelIndex, open_index
from inference.slices import SlicePlan, plan_slice, slice_manifest
from tests.inference.worker.local_http import QuietHandler, serving

DEMO_MODEL = Path(__file__).parents[3] / "models" / "qwen35moe-demo-q4_k_m.gguf"
SLICE_PATH = re.compile(r"/api/slices/[0-9a-f]+/(\d+)/(\d+)-(\d+)(/manifest)?")
Answer = tuple[int, Any]


@cache
def demo_index() -> ModelIndex:
    return open_index(DEMO_MODEL)


@cache
def demo_plan(layer: int, first: int, last: int) -> SlicePlan:
    return plan_slice(demo_index(), layer, first, last)


def refusal(status: int, code: str, message: str) -> Answer:
    return status, {"error": {"code": code, "message": message}}


@dataclass
class Town:
    """The market's state.

    `offer`: ranges (layer, first, last) that are given out one per claim request; while `stuck` is clear, no request is
    answered.
    """

    offer: list[tuple[int, int, int]] = field(default_factory=list)
    reason: tuple[str, str] = ("no_work", "every expert is covered")
    tokens: set[str] = field(default_factory=set)
    claims: dict[int, dict[str, Any]] = field(default_factory=dict)
    registered: list[dict[str, Any]] = field(default_factory=list)
    demanded: list[dict[str, str]] = field(default_factory=list)
    delivered: list[tuple[int, str]] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    down: bool = False
    no_slices: bool = False
    no_nodes: tuple[int, str, str] | None = None
    stuck: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    last_id: int = 0

    def __post_init__(self) -> None:
        self.stuck.set()

    def answer(self, method: str, path: str, body: Any, token: str | None) -> Answer:
        if self.down:
            return 503, b"down"
        if (method, path) == ("POST", "/api/nodes"):
            return self._register(body)
        if token not in self.tokens:
            return refusal(401, "bad_token", "nobody has this token")
        if path == "/api/me":
            return 200, {"node_id": f"node of {token}"}
        if path.startswith("/api/demand"):
            return self._demand(path)
        if (method, path) == ("POST", "/api/claims"):
            return self._claim(body)
        if path == "/api/heartbeat":
            return 200, {"claims": list(self.claims.values()), "lease_seconds": 120.0}
        claim_id = int(path.split("/")[3])
        if method == "DELETE":
            self.released.append(claim_id)
            self.claims.pop(claim_id, None)
            return 200, {"released": claim_id}
        self.delivered.append((claim_id, body["sha256"]))
        return 200, {"claims": [self.claims[claim_id]]}

    def _register(self, body: Any) -> Answer:
        if self.no_nodes is not None:
            return refusal(*self.no_nodes)
        self.registered.append(body)
        token = f"token-{len(self.registered)}"
        self.tokens.add(token)
        return 201, {"node_id": f"node-{len(self.registered)}", "token": token}

    def _demand(self, path: str) -> Answer:
        self.demanded.append({name: values[0] for name, values in parse_qs(urlsplit(path).query).items()})
        ranges = [self._described(*wanted) for wanted in self.offer]
        code, message = (None, None) if ranges else self.reason
        return 200, {"builds": [], "ranges": ranges, "poll_seconds": 33.0, "reason": code, "message": message}

    def _described(self, layer: int, first: int, last: int) -> dict[str, Any]:
        index = demo_index()
        return {
            "build": index.fingerprint,
            "layer": layer,
            "first": first,
            "last": last,
            "size_bytes": (last - first) * index.layers[layer].expert_bytes,
            "rate_microcredits_per_hour": 1000,
        }

    def _claim(self, body: Any) -> Answer:
        if not self.offer:
            return refusal(409, *self.reason)
        layer, first, last = self.offer.pop(0)
        return 201, {"claims": [self.grant(layer, first, last)]}

    def grant(self, layer: int, first: int, last: int) -> dict[str, Any]:
        """A new claim of the one node."""
        self.last_id += 1
        url = f"/api/slices/{demo_index().fingerprint}/{layer}/{first}-{last}"
        claim = self._described(layer, first, last) | {
            "claim_id": self.last_id,
            "fence": 10 + self.last_id,
            "state": "pending",
            "slice_url": url,
            "manifest_url": f"{url}/manifest",
        }
        self.claims[self.last_id] = claim
        return claim


class _Handler(QuietHandler):
    town: Town

    def _any(self) -> None:
        body = self.body()
        self.town.stuck.wait(10)
        if wanted := SLICE_PATH.fullmatch(self.path):
            self._slice(wanted)
            return
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        self.answer(*self.town.answer(self.command, self.path, body, token))

    def _slice(self, wanted: re.Match[str]) -> None:
        plan = demo_plan(*(int(number) for number in wanted.groups()[:3]))
        if self.town.no_slices:
            self.answer(*refusal(503, "truncated", "the model file cannot be read"))
        elif wanted[4]:
            self.answer(200, slice_manifest(plan, 100_000).to_json().encode())
        else:
            self.answer(206, plan.read(*self.piece()))

    do_GET = do_POST = do_DELETE = _any


@contextlib.contextmanager
def open_town(town: Town) -> Iterator[Town]:
    """Serve the town on a free loopback port."""
    with serving(_Handler, town=town) as town.url:
        yield town
