"""relay/directory.py with a real Redis: relays register, backbones follow."""

import time
from collections.abc import Iterator

import pytest
import redis

from relay import directory
from relay.directory import TTL_SECONDS, DirectoryWatch, Registrar, RelayProcess
from tests.relay.live_relay import wait_until

FALLBACK = "ws://fallback/relay/"


@pytest.fixture
def client(redis_database: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_database) as connected:
        yield connected


def process(number: int) -> RelayProcess:
    return RelayProcess(f"boot{number}", f"ws://10.0.0.{number}/relay/", f"wss://swarm.example/relay/{number}/")


def test_what_is_registered_is_found_and_vanishes_by_itself(client: redis.Redis) -> None:
    directory.register(client, process(2))
    directory.register(client, process(1))

    assert directory.processes(client) == [process(1), process(2)]
    assert 0 < client.ttl("relay.processes") <= TTL_SECONDS


def test_who_said_nothing_for_too_long_is_not_found_and_is_taken_out_by_the_others(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "TTL_SECONDS", 1)
    directory.register(client, process(1))
    monkeypatch.undo()
    directory.register(client, process(2))
    time.sleep(1.1)

    found = directory.processes(client)
    directory.register(client, process(3))

    assert found == [process(2)]
    assert set(client.hkeys("relay.processes")) == {b"boot2", b"boot3"}


def test_an_address_that_two_boots_wrote_counts_once() -> None:
    again = RelayProcess("later boot", process(1).address, process(1).public_url)

    assert directory.addresses([process(1), again]) == (process(1).address,)
    assert directory.public_urls([process(1), again]) == (process(1).public_url,)


def test_what_cannot_be_read_is_skipped(client: redis.Redis) -> None:
    texts = ["no json", "[]", '{"until":1e12}', '{"boot":"x","address":"http://a","public_url":"","until":1e12}']
    for number, text in enumerate(texts):
        client.hset("relay.processes", f"{number}", text)
    directory.register(client, process(1))

    assert directory.processes(client) == [process(1)]


def test_a_welcome_can_carry_all_public_addresses() -> None:
    many = [RelayProcess("b", "ws://a/", f"wss://{number:03}.{'x' * 200}/") for number in range(100)]

    urls = directory.public_urls(many)

    assert sum(map(len, urls)) <= directory.MAX_PUBLIC_LENGTH
    assert len(urls) > 10


def test_a_registrar_keeps_its_word_knows_the_others_and_takes_it_back(client: redis.Redis) -> None:
    directory.register(client, process(1))
    registrar = Registrar(client, "ws://10.0.0.9/relay/", "")

    registrar.start()
    wait_until(lambda: len(registrar.public_urls) == 2)
    during = directory.addresses(directory.processes(client))
    registrar.stop()

    assert "ws://10.0.0.9/relay/" in during
    assert directory.processes(client) == [process(1)]


def watch(client: redis.Redis) -> tuple[DirectoryWatch, list[tuple[str, ...]]]:
    changes: list[tuple[str, ...]] = []
    return DirectoryWatch(client, FALLBACK, changes.append), changes


def test_backbones_follow_relays_that_come_and_go(client: redis.Redis) -> None:
    seen, changes = watch(client)
    now = time.monotonic()
    directory.register(client, process(1))
    seen.look(now)
    directory.register(client, process(2))
    seen.look(now + 2)
    directory.withdraw(client, "boot1")

    seen.look(now + 4)
    seen.look(now + 2 + TTL_SECONDS + 1)

    one, two = process(1).address, process(2).address
    assert changes == [(one,), (one, two), (two,)]


def test_a_redis_that_forgot_everything_changes_nothing(client: redis.Redis) -> None:
    seen, changes = watch(client)
    now = time.monotonic()
    directory.register(client, process(1))
    seen.look(now)
    client.flushall()

    seen.look(now + 1000)

    assert changes == [(process(1).address,)]


def test_without_any_registered_relay_the_fallback_is_used_until_one_comes(client: redis.Redis) -> None:
    seen, changes = watch(client)
    now = time.monotonic()

    seen.look(now)
    seen.look(now + directory.FALLBACK_SECONDS)
    directory.register(client, process(1))
    seen.look(now + directory.FALLBACK_SECONDS + 2)

    assert changes == [(FALLBACK,), (process(1).address,)]


def test_a_watch_outlives_an_outage_of_redis_and_speaks_of_it_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(directory, "WATCH_SECONDS", 0.05)
    with redis.Redis(port=1, socket_connect_timeout=0.2) as nobody:
        seen, changes = watch(nobody)
        seen.start()
        time.sleep(0.5)
        seen.stop()

    assert changes == []
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "Redis, where relays are registered, cannot be reached"
    ]
