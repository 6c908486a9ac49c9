"""relay/addresses.py: which relay a client tries next."""

import pytest

from relay.addresses import MAX_ADDRESSES, RelayAddresses, is_relay_url

FAR = "wss://swarm.example/relay/"


@pytest.mark.parametrize("url", ["", "http://a/", "wss://", "wss://a b\n/", "ws://[", 7, None, "ws://" + 300 * "a"])
def test_it_refuses_what_cannot_be_dialled(url: object) -> None:
    assert not is_relay_url(url)


def test_a_client_cannot_start_without_an_address() -> None:
    with pytest.raises(ValueError, match="wss://"):
        RelayAddresses("https://swarm.example")


def test_it_starts_with_the_address_that_was_given() -> None:
    addresses = RelayAddresses(FAR)

    addresses.learn(["wss://one.example/relay/", "wss://two.example/relay/"])

    assert addresses.current == FAR


def test_every_other_relay_is_tried_before_one_that_failed() -> None:
    addresses = RelayAddresses(FAR)
    addresses.learn([f"wss://{number}.example/relay/" for number in range(5)])

    tried = []
    for _ in range(12):
        tried.append(addresses.current)
        addresses.failed()

    assert set(tried[:6]) == set(addresses.known)
    assert tried[6:12] == tried[:6]


def test_an_address_that_answered_is_as_good_as_new() -> None:
    addresses = RelayAddresses(FAR)
    addresses.learn(["wss://other.example/relay/"])
    addresses.failed()
    addresses.answered()

    addresses.failed()
    addresses.failed()

    assert addresses.current == "wss://other.example/relay/"


def test_with_one_address_it_stays_there() -> None:
    addresses = RelayAddresses(FAR)

    addresses.failed()

    assert addresses.current == FAR


def test_a_token_never_leaves_tls_and_never_follows_to_the_own_machine() -> None:
    addresses = RelayAddresses(FAR)

    addresses.learn(["ws://swarm.example/relay/", "wss://127.0.0.1/relay/", "wss://localhost/relay/", 5, "wss://b/"])

    assert addresses.known == (FAR, "wss://b/")


def test_on_one_machine_loopback_addresses_are_fine() -> None:
    addresses = RelayAddresses("ws://127.0.0.1:8000/relay/")

    addresses.learn(["ws://127.0.0.1:8001/relay/"])

    assert len(addresses.known) == 2


def test_it_remembers_a_bounded_number_and_forgets_what_is_no_longer_named() -> None:
    addresses = RelayAddresses(FAR)
    addresses.learn([f"wss://{number}/" for number in range(100)])
    many = len(addresses.known)

    addresses.learn(["wss://7/"])

    assert many == MAX_ADDRESSES
    assert addresses.known == (FAR, "wss://7/")


def test_spreading_reaches_every_relay() -> None:
    addresses = RelayAddresses(FAR)
    addresses.learn(["wss://one/", "wss://two/"])
    seen = set()

    for _ in range(100):
        addresses.spread()
        seen.add(addresses.current)

    assert seen == set(addresses.known)
