"""The market client against a real HTTP server with scripted answers."""

import gzip
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from inference.worker import market_client
from inference.worker.errors import BadAnswer, ServerRefused, ServerUnreachable, UnknownToken
from inference.worker.market_client import Claim, Demand, MarketClient, OfferedRange, first_bytes
from tests.inference.worker.builders import BUILD, a_claim
from tests.inference.worker.market_server import Asked, market

CLAIM_JSON: dict[str, Any] = {
    "claim_id": 7,
    "build": BUILD,
    "layer": 3,
    "first": 8,
    "last": 15,
    "fence": 2,
    "size_bytes": 45_000,
    "slice_url": "/api/slices/demo",
    "manifest_url": "/api/slices/demo/manifest",
    "rate_microcredits_per_hour": 1000,
    "state": "pending",
    "expires_at": "2030-01-01T00:00:00Z",
}
RANGE_JSON = {
    "build": BUILD,
    "layer": 1,
    "first": 0,
    "last": 4,
    "size_bytes": 4002,
    "rate_microcredits_per_hour": 17.5,
    "microcredits_per_hour_per_megabyte": 4372.5,
}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(market_client, "FIRST_PAUSE_SECONDS", 0.001)


def an_error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


async def test_registering_returns_the_node_and_its_token() -> None:
    with market((201, {"node_id": "n1", "token": "t1"})) as server:
        async with MarketClient(server.url) as client:
            answer = await client.register("phone", "numpy", 42_000_000)

    body = {"name": "phone", "kernel_class": "numpy", "budget_bytes": 42_000_000}
    assert answer == ("n1", "t1")
    assert server.asked == [Asked("POST", "/api/nodes", body, None)]


async def test_demand_is_asked_with_token_budget_and_build() -> None:
    with market((200, {"builds": [], "ranges": [RANGE_JSON], "poll_seconds": 30})) as server:
        async with MarketClient(server.url, "t1") as client:
            answer = await client.demand(1000, BUILD)

    assert answer == Demand((OfferedRange(BUILD, 1, 0, 4, 4002, 17),), 30.0)
    assert answer.ranges[0].expert_bytes == 1001
    assert server.asked == [Asked("GET", f"/api/demand?budget_bytes=1000&build={BUILD}", None, "Bearer t1")]


async def test_no_demand_comes_with_its_reason() -> None:
    body = {"ranges": [], "poll_seconds": 45.5, "reason": "no_work", "message": "every expert is covered"}
    with market((200, body)) as server:
        async with MarketClient(server.url, "t1") as client:
            answer = await client.demand(None, types={"Q8_0", "Q4_K"})

    assert answer == Demand((), 45.5, "no_work", "every expert is covered")
    assert server.asked[0].path == "/api/demand?types=Q4_K%2CQ8_0"


async def test_claims_are_read_as_they_are() -> None:
    with market((201, {"claims": [CLAIM_JSON]})) as server:
        async with MarketClient(server.url, "t1") as client:
            claims = await client.claim_best(1000, BUILD, {"Q8_0", "Q4_K"})

    assert [vars(claim) for claim in claims] == [vars(a_claim())]
    assert server.asked[0].body == {"best_for_budget_bytes": 1000, "build": BUILD, "types": ["Q4_K", "Q8_0"]}


async def test_a_heartbeat_returns_the_claims_that_live() -> None:
    with market((200, {"claims": [CLAIM_JSON], "lease_seconds": 120})) as server:
        async with MarketClient(server.url, "t1") as client:
            answer = await client.heartbeat()

    assert (answer.claims, answer.lease_seconds) == ((a_claim(),), 120.0)


async def test_delivery_and_release_name_the_claim() -> None:
    with market((200, {}), (200, {})) as server:
        async with MarketClient(server.url, "t1") as client:
            await client.delivered(a_claim(), "ff" * 32)
            await client.release(7)

    assert server.asked == [
        Asked("POST", "/api/claims/7/delivered", {"fence": 2, "sha256": "ff" * 32}, "Bearer t1"),
        Asked("DELETE", "/api/claims/7", None, "Bearer t1"),
    ]


async def test_a_refusal_carries_the_servers_code_and_words() -> None:
    with market((422, an_error("budget_too_small", "lend at least 110592 bytes"))) as server:
        async with MarketClient(server.url, "t1") as client:
            with pytest.raises(ServerRefused, match="lend at least 110592 bytes") as raised:
                await client.claim_best(1)

    assert (raised.value.code, raised.value.status) == ("budget_too_small", 422)
    assert len(server.asked) == 1


async def test_an_unknown_token_is_an_error_of_its_own() -> None:
    with market((401, an_error("bad_token", "register again"))) as server:
        async with MarketClient(server.url, "old") as client:
            with pytest.raises(UnknownToken, match="register again"):
                await client.heartbeat()


@pytest.mark.parametrize("trouble", [None, (500, b"oops"), (503, b""), (429, an_error("busy", "later"))])
async def test_a_passing_trouble_is_tried_again(trouble: tuple[int, Any] | None) -> None:
    with market(trouble, trouble, (200, {"claims": [], "lease_seconds": 120})) as server:
        async with MarketClient(server.url, "t1") as client:
            answer = await client.heartbeat()

    assert answer.claims == ()
    assert len(server.asked) == 3


async def test_a_lasting_trouble_is_told_after_some_tries() -> None:
    with market((500, b"oops")) as server:
        async with MarketClient(server.url, "t1") as client:
            with pytest.raises(ServerUnreachable, match="500"):
                await client.heartbeat()

    assert len(server.asked) == market_client.ATTEMPTS


@pytest.mark.parametrize("trouble", [None, (500, b"oops")])
async def test_a_claim_is_never_sent_twice(trouble: tuple[int, Any] | None) -> None:
    with market(trouble) as server:
        async with MarketClient(server.url, "t1") as client:
            with pytest.raises(ServerUnreachable):
                await client.claim_best(1000)

    assert len(server.asked) == 1


async def test_a_claim_is_tried_again_when_the_server_was_too_busy_to_take_it() -> None:
    with market((503, b""), (201, {"claims": []})) as server:
        async with MarketClient(server.url, "t1") as client:
            assert await client.claim_best(1000) == ()


async def test_a_server_that_is_down_is_told_by_its_address() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"

    async with MarketClient(url, "t1") as client:
        with pytest.raises(ServerUnreachable, match=f"cannot reach {url}"):
            await client.heartbeat()


async def test_a_server_that_hangs_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with MarketClient(url, "t1", httpx.Timeout(0.05)) as client:
            with pytest.raises(ServerUnreachable, match="ReadTimeout"):
                await client.heartbeat()


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>hello</html>",
        [],
        {"lease_seconds": 1},
        {"claims": {}, "lease_seconds": 1},
        {"claims": [7], "lease_seconds": 1},
        {"claims": [CLAIM_JSON | {"layer": "3"}], "lease_seconds": 1},
        {"claims": [CLAIM_JSON | {"fence": True}], "lease_seconds": 1},
        {"claims": [CLAIM_JSON | {"build": "../../etc"}], "lease_seconds": 1},
        {"claims": [CLAIM_JSON | {"slice_url": "https://elsewhere.example/"}], "lease_seconds": 1},
        {"claims": [CLAIM_JSON | {"manifest_url": "//elsewhere.example/"}], "lease_seconds": 1},
    ],
)
async def test_an_answer_of_another_shape_is_refused(answer: Any) -> None:
    with market((200, answer)) as server:
        async with MarketClient(server.url, "t1") as client:
            with pytest.raises(BadAnswer):
                await client.heartbeat()


async def test_proxies_of_the_environment_are_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    with market((200, {"claims": [], "lease_seconds": 120})) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        async with MarketClient("http://swarm.example", "t1") as client:
            await client.heartbeat()

    assert proxy.asked[0].path == "http://swarm.example/api/heartbeat"


@pytest.mark.parametrize(
    ("claim", "text"),
    [(a_claim(), "layer 3, experts 8-14"), (a_claim(first=8, last=9), "layer 3, expert 8")],
)
def test_a_claim_reads_as_words(claim: Claim, text: str) -> None:
    assert str(claim) == text


def test_pauses_grow_and_vary() -> None:
    pauses = [[market_client.pause_seconds(attempt) for _ in range(50)] for attempt in range(4)]

    means = [sum(values) / len(values) for values in pauses]
    assert means == sorted(means)
    assert len(set(pauses[0])) > 1


async def test_an_answer_without_end_is_cut_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(market_client, "MOST_ANSWER_BYTES", 100_000)
    with market((200, b'{"ranges": "' + b"x" * 30_000_000 + b'"}')) as server:
        async with MarketClient(server.url, "t1") as client:
            with pytest.raises(ServerRefused):
                await client.demand(None)


async def test_a_small_packed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    with market((200, bomb)) as server:
        async with MarketClient(server.url, "t1") as client:
            with pytest.raises(BadAnswer):
                await client.demand(None)
            refused = await first_bytes(httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=Sent(bomb)))

    assert len(refused) == len(bomb)


class Sent(httpx.AsyncByteStream):
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body
