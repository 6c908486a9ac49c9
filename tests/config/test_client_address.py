"""config/client_address.py: who a request comes from is said by proxies of ours alone."""

from typing import Any

import pytest

from config.client_address import ClientAddress

PROXIES = ["127.0.0.1", "10.0.0.0/24", "fd00::/8"]


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """An application that does nothing."""


@pytest.mark.parametrize(
    ("peer", "forwarded", "real"),
    [
        ("203.0.113.9", "", "203.0.113.9"),
        ("10.0.0.5", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.5", "203.0.113.9, 10.0.0.7", "203.0.113.9"),
        ("fd00::5", "2001:db8::9", "2001:db8::9"),
        # Only we are asked: who is that?
        ("10.0.0.5", "", "10.0.0.5"),
        # Mallory says that she is somebody else.
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
        ("10.0.0.5", "127.0.0.1, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.5", "198.51.100.1, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.5", "no address", "10.0.0.5"),
    ],
)
async def test_the_last_hop_that_is_no_proxy_of_ours_is_the_client(peer: str, forwarded: str, real: str) -> None:
    seen: list[str] = []

    async def note(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"][0])

    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    await ClientAddress(note, PROXIES)({"type": "http", "client": [peer, 1], "headers": headers}, None, None)  # type: ignore[arg-type]

    assert seen == [real]


async def test_without_trusted_proxies_nothing_is_believed() -> None:
    address = ClientAddress(nothing, [])

    assert address.real_address("10.0.0.5", [(b"x-forwarded-for", b"203.0.113.9")]) == "10.0.0.5"


def test_a_wrong_network_is_named_with_its_setting() -> None:
    with pytest.raises(ValueError, match=r"TRUSTED_PROXIES.*swarm"):
        ClientAddress(nothing, ["swarm.example"])
