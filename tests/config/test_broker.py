"""The repair of kombu's Redis transport."""

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest
from kombu.connection import Connection
from kombu.transport import redis

from config import celery  # noqa: F401  (importing the application repairs the transport)
from config.broker import AskForRescue, PatientQoS, lists_of, message_priority


def test_the_application_uses_the_repaired_transport() -> None:
    assert redis.Channel.QoS is PatientQoS


@pytest.mark.parametrize("connection", [None, SimpleNamespace(client=None)])
def test_messages_of_a_lost_connection_are_let_go_instead_of_ending_the_worker(connection: object) -> None:
    channel = SimpleNamespace(connection=connection)
    qos = PatientQoS.__new__(PatientQoS)
    qos.channel, qos._delivered = channel, OrderedDict(tag="message")
    qos._dirty, qos._quick_ack = set(), set().add

    qos.ack("tag")
    qos.restore_unacked()

    assert not qos._delivered


def test_a_backbone_that_has_connected_asks_for_a_rescue_without_patience() -> None:
    sent: list[tuple[str, dict[str, Any]]] = []

    def parent(*queues: str) -> Any:
        amqp = SimpleNamespace(queues=SimpleNamespace(consume_from=queues))
        return SimpleNamespace(app=SimpleNamespace(amqp=amqp, send_task=lambda name, **how: sent.append((name, how))))

    step = AskForRescue(parent("backbone"))
    step.start(parent("backbone"))

    assert step.include_if(parent("backbone"))
    assert not step.include_if(parent("upkeep"))
    assert sent == [("inference.rescue", {"kwargs": {"patience_seconds": 0.0}, "expires": 60})]


def test_messages_of_higher_priority_are_taken_first_and_all_are_counted(redis_database: str) -> None:
    url = redis_database.replace("unix://", "redis+socket://")
    with Connection(url) as connection, connection.SimpleQueue("backbone") as queue:  # type: ignore[no-untyped-call]
        for priority in (-5, 0, 7):
            queue.put({"priority": priority}, priority=message_priority(priority))
        queue.put({"priority": "canary"})
        client = connection.default_channel.client

        waiting = sum(int(client.llen(name)) for name in lists_of("backbone"))
        taken = [queue.get(timeout=5).payload["priority"] for _ in range(4)]

    assert waiting == 4
    assert taken == [7, "canary", 0, -5]
