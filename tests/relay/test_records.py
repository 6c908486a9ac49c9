"""relay/records.py: what JSON bodies must look like, and that anything else is a MessageError."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from relay.errors import MessageError
from relay.records import (
    CAPABILITIES_BYTES,
    HELLO_BYTES,
    Hello,
    Refusal,
    Replica,
    RosterChange,
    RosterSession,
    Status,
    Welcome,
    dump_json,
    load_json,
)
from tests.relay.builders import BUILD, hello_json, replica, replica_json

SESSION = RosterSession(5, "node-1", "numpy", "Bob", {"rows": ["f32", "q8"]}, (replica().with_state("live"),))


def test_it_reads_a_hello() -> None:
    hello = Hello.from_json(hello_json(extra="ignored"))

    assert hello == Hello("bob-token", BUILD, "numpy", "Bob", {}, (replica(),), 1)


def test_a_backbone_needs_no_name_and_no_replicas() -> None:
    hello = Hello.from_json({"protocol": 1, "token": "t", "build": BUILD, "kernel_class": "k"})

    assert (hello.name, hello.replicas, hello.capabilities) == ("", (), {})


@pytest.mark.parametrize(
    "fields",
    [
        {"token": None},
        {"token": 5},
        {"token": "x" * 513},
        {"token": "half \ud800"},
        {"name": "two\nlines"},
        {"build": "b" * 129},
        {"protocol": True},
        {"protocol": -1},
        {"protocol": 1.0},
        {"capabilities": []},
        {"capabilities": {"big": "x" * CAPABILITIES_BYTES}},
        {"replicas": {}},
        {"replicas": [5]},
        {"replicas": [replica_json()] * 513},
        {"replicas": [replica_json(first=8)]},
        {"replicas": [replica_json(claim_id=1 << 63)]},
        {"replicas": [replica_json(fence=1 << 32)]},
        {"replicas": [replica_json(layer=-1)]},
        {"replicas": [replica_json(sha256="AB" * 32)]},
        {"replicas": [replica_json(sha256=None)]},
        {"replicas": [replica_json(state="held")]},
    ],
)
def test_it_refuses_a_hello_with_a_field_that_does_not_fit(fields: dict[str, object]) -> None:
    with pytest.raises(MessageError):
        Hello.from_json(hello_json(**fields))


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"5", b"{", b"\xff\xfe{}", b'{"a":NaN}', b"[" * 60_000, b"1" * 5_000, "{}".encode("utf-16")],
)
def test_it_refuses_a_body_that_is_no_json_object(body: bytes) -> None:
    with pytest.raises(MessageError):
        load_json(body, HELLO_BYTES)


def test_it_refuses_a_body_above_the_limit_before_parsing_it() -> None:
    assert load_json(b"{}" + b" " * 98, 100) == {}
    with pytest.raises(MessageError, match="the limit is 100"):
        load_json(b"{}" + b" " * 99, 100)


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": float("inf")}, {"a": b"bytes"}])
def test_it_refuses_to_write_what_json_cannot_say(value: dict[str, object]) -> None:
    with pytest.raises(MessageError):
        dump_json(value)


def test_it_reads_a_status_with_and_without_numbers() -> None:
    assert Status.from_json({}) == Status((), None, None)
    assert Status.from_json({"replicas": [replica_json()], "load": 1, "battery": 0.5}) == Status((replica(),), 1.0, 0.5)


@pytest.mark.parametrize("fields", [{"load": -1}, {"load": "high"}, {"load": True}, {"battery": 1.5}])
def test_it_refuses_a_status_out_of_range(fields: dict[str, object]) -> None:
    with pytest.raises(MessageError):
        Status.from_json(fields)


def test_it_carries_a_roster_there_and_back() -> None:
    change = {"full": True, "joined": [SESSION.to_json()], "left": [3, 4]}

    assert RosterChange.from_json(json.loads(json.dumps(change))) == RosterChange(True, (SESSION,), (3, 4))
    with pytest.raises(MessageError):
        RosterChange.from_json({"left": ["3"]})


def test_it_carries_a_welcome_and_a_refusal_there_and_back() -> None:
    welcome = Welcome(1, 0, 10.0, 1 << 20, 8 << 20)

    assert Welcome.from_json(json.loads(dump_json(welcome.__dict__))) == welcome
    assert Refusal.from_json({"code": "bad_token", "message": "m"}) == Refusal("bad_token", "m")
    with pytest.raises(MessageError):
        Welcome.from_json({**welcome.__dict__, "ping_seconds": 0})


def test_a_replica_lists_its_fields_in_the_order_of_the_documentation() -> None:
    assert list(replica().to_json()) == ["claim_id", "fence", "layer", "first", "last", "sha256", "state"]


ODD: list[Any] = [None, True, -1, 0, 1 << 70, 0.5, "", "x", "\ud800", [], {}, [[]], {"a": 1}, 1e300]


@pytest.mark.parametrize("reader", [Hello.from_json, Status.from_json, Welcome.from_json, RosterChange.from_json])
def test_it_raises_only_message_errors_for_odd_values(reader: Callable[[dict[str, Any]], object]) -> None:
    source = random.Random(7)
    base = {**hello_json(), **Welcome(1, 2, 3.0, 4, 5).__dict__, "joined": [SESSION.to_json()], "left": [1], "full": 1}
    refused = 0

    for _ in range(3_000):
        data = json.loads(json.dumps(base))
        for key in source.sample(sorted(data), 2):
            data[key] = source.choice([*ODD, [source.choice(ODD)]])
        try:
            reader(data)
        except MessageError:
            refused += 1

    assert refused > 100


def test_it_raises_only_message_errors_for_odd_replicas() -> None:
    source = random.Random(8)
    refused = 0

    for _ in range(2_000):
        data = {key: source.choice([*ODD, value]) for key, value in replica_json().items()}
        try:
            Replica.from_json(data)
        except MessageError:
            refused += 1

    assert refused > 100
