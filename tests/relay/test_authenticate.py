"""relay/authenticate.py against the real market in a test database."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import cache
from pytest_django import Settings

from market import commands, presence
from market.builds import BuildDescription
from relay import authenticate
from relay.authenticate import BACKBONE_TOKEN_FILE, MarketAuthenticator, backbone_token
from relay.errors import MarketAway
from relay.outage import Outage
from tests.relay.builders import BUILD, SHA256

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def bob_with_a_claim() -> tuple[str, str]:
    types = (("Q4_K",) * 3,)
    commands.publish_build(BuildDescription(BUILD, "toy", "toymoe", 256, 512, 32, 4, (3,), (200_000,), types))
    node_id, token = commands.register_node("Bob", "numpy", 100_000_000)
    (claim,) = commands.claim_ranges(node_id, [commands.RangeWish(3, 0, 8)], BUILD)
    commands.record_delivery(node_id, claim.claim_id, claim.fence, SHA256)
    return node_id, token


async def test_it_knows_the_node_and_the_claims_behind_a_token() -> None:
    node_id, token = await sync_to_async(bob_with_a_claim)()

    standing = await MarketAuthenticator().standing(token)

    assert standing is not None
    assert (standing.node.node_id, standing.node.name, standing.node.suspended) == (node_id, "Bob", False)
    (claim,) = standing.claims
    assert (claim.build, claim.layer, claim.first, claim.last, claim.sha256) == (BUILD, 3, 0, 8, SHA256)
    assert claim.state == "pending"


async def test_it_knows_nobody_behind_another_token() -> None:
    for token in ("", "guess", "x" * 5_000):
        assert await MarketAuthenticator().standing(token) is None


async def test_it_sees_a_suspension_and_a_rotated_token() -> None:
    market = MarketAuthenticator()
    node_id, token = await sync_to_async(bob_with_a_claim)()

    await sync_to_async(commands.suspend_node)(node_id, by="tests", reason="a test wished so")
    suspended = await market.standing(token)
    await sync_to_async(commands.rotate_token)(node_id)

    assert suspended is not None
    assert suspended.node.suspended
    assert await market.standing(token) is None


async def test_it_knows_which_builds_are_on_offer() -> None:
    await sync_to_async(bob_with_a_claim)()

    assert await MarketAuthenticator().knows_build(BUILD)
    assert not await MarketAuthenticator().knows_build("ab" * 16)


async def test_it_marks_a_node_as_seen() -> None:
    await MarketAuthenticator().mark_seen("bob")

    assert set(await sync_to_async(presence.last_seen)(["bob", "carol"])) == {"bob"}


def test_the_backbone_s_credential_comes_from_the_setting_else_from_the_file(settings: Settings, var_dir: Path) -> None:
    market = MarketAuthenticator()
    settings.BACKBONE_TOKEN = ""
    assert backbone_token() == ""
    assert not market.is_backbone("")

    (var_dir / BACKBONE_TOKEN_FILE).write_text("from the file\n", encoding="utf-8")
    assert market.is_backbone("from the file")

    settings.BACKBONE_TOKEN = "from the setting"
    assert market.is_backbone("from the setting")
    assert not market.is_backbone("from the file")
    assert not market.is_backbone("\u00e9")


async def test_the_newest_session_of_a_node_is_known_to_every_process() -> None:
    market = MarketAuthenticator()
    unheard = await market.is_newest("bob", "boot1/7")

    await market.take_over("bob", "boot1/7")
    await market.take_over("bob", "boot2/3")

    assert unheard
    assert not await market.is_newest("bob", "boot1/7")
    assert await market.is_newest("bob", "boot2/3")


async def test_an_outage_of_the_cache_is_told_from_a_defect_and_logged_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    market = MarketAuthenticator()
    monkeypatch.setattr(authenticate, "CACHE", Outage(authenticate.logger, "the market's cache", quiet_seconds=60.0))
    backend = "django.core.cache.backends.redis.RedisCache"
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": "redis://127.0.0.1:1/0"}}

    with pytest.raises(MarketAway, match="refused"):
        await market.mark_seen("bob")
    with pytest.raises(MarketAway, match="a moment ago"):
        await market.is_newest("bob", "session")
    assert not await market.knows_build("the database is asked all the same")

    assert [record.message.split(":")[0] for record in caplog.records] == ["the market's cache cannot be reached"]
