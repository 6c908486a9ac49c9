"""relay/admission.py: who is let in, why not, and which replicas count."""

from dataclasses import replace

import pytest

from relay.admission import (
    Claim,
    Node,
    Standing,
    admit_backbone,
    admit_worker,
    check_hello,
    check_standing,
    usable_replicas,
)
from relay.errors import Rejected
from relay.frames import Frame, FrameType
from relay.records import Hello, dump_json
from tests.relay.builders import BUILD, SHA256, FakeMarket, hello_json, replica

CLAIM = Claim(7, BUILD, 3, 0, 8, 1, "live", SHA256)


def hello(token: str, build: str = BUILD) -> Hello:
    return Hello(token, build, "numpy")


def test_it_reads_a_hello_of_this_version() -> None:
    assert check_hello(Frame(FrameType.HELLO, body=dump_json(hello_json()))).name == "Bob"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"no json", "bad_hello"),
        (dump_json({"protocol": 1}), "bad_hello"),
        (dump_json(hello_json(protocol=0)), "protocol_version"),
        (dump_json(hello_json(protocol=2)), "protocol_version"),
    ],
)
def test_it_says_why_a_hello_is_refused(body: bytes, code: str) -> None:
    with pytest.raises(Rejected) as caught:
        check_hello(Frame(FrameType.HELLO, body=body))

    assert caught.value.code == code
    assert len(str(caught.value)) > 20


@pytest.mark.parametrize(
    ("token", "build", "code"),
    [
        ("nobody", BUILD, "bad_token"),
        ("alice-token", BUILD, "wrong_role"),
        ("mallory-token", BUILD, "suspended"),
        ("bob-token", "other", "build_mismatch"),
    ],
)
async def test_a_worker_is_refused_with_a_stable_code(token: str, build: str, code: str) -> None:
    with pytest.raises(Rejected) as caught:
        await admit_worker(hello(token, build), FakeMarket())

    assert caught.value.code == code


async def test_a_worker_with_a_device_token_is_let_in() -> None:
    standing = await admit_worker(hello("bob-token"), FakeMarket())

    assert standing.node.node_id == "bob"


@pytest.mark.parametrize(("token", "code"), [("nobody", "bad_token"), ("bob-token", "wrong_role")])
async def test_a_backbone_needs_the_backbone_credential(token: str, code: str) -> None:
    await admit_backbone(hello("alice-token"), FakeMarket())

    with pytest.raises(Rejected) as caught:
        await admit_backbone(hello(token), FakeMarket())

    assert caught.value.code == code


def test_a_standing_is_refused_when_it_is_gone_or_suspended() -> None:
    good = Standing(Node("bob", "Bob", suspended=False))

    assert check_standing(good) is good
    for bad in (None, Standing(Node("bob", "Bob", suspended=True))):
        with pytest.raises(Rejected):
            check_standing(bad)


def test_a_replica_counts_when_it_is_held_and_leased_with_the_market_s_state() -> None:
    other = replica(claim_id=8)

    assert usable_replicas([replica(), other], [CLAIM], BUILD) == (replica().with_state("live"),)
    assert usable_replicas([replica()], [replace(CLAIM, state="pending", sha256=None)], BUILD) == (replica(),)
    assert usable_replicas([replica(), replica()], [CLAIM], BUILD) == (replica().with_state("live"),)


@pytest.mark.parametrize(
    "change",
    [{"build": "other"}, {"layer": 4}, {"first": 1}, {"last": 9}, {"fence": 2}, {"sha256": "cd" * 32}, {"claim_id": 9}],
)
def test_a_replica_that_differs_from_its_claim_in_anything_does_not_count(change: dict[str, object]) -> None:
    assert usable_replicas([replica()], [Claim(**{**CLAIM.__dict__, **change})], BUILD) == ()
