"""relay/origin.py: pages of other sites open no sockets here; programs, which name no page, do."""

import pytest

from relay.origin import may_connect

HOSTS = ["swarm.example", ".lan.example", "127.0.0.1", "[::1]"]


@pytest.mark.parametrize(
    "origin",
    [
        "https://swarm.example",
        "https://SWARM.example:8443",
        "http://phone.lan.example",
        "http://127.0.0.1:8000",
        "http://[::1]:8000",
    ],
)
def test_our_own_pages_may_connect(origin: str) -> None:
    assert may_connect([(b"origin", origin.encode())], HOSTS, [])


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "https://swarm.example.evil.example",
        "https://evil.example/swarm.example",
        "https://swarm.example@evil.example",
        "ftp://swarm.example",
        "null",
        "",
        "https://",
        "http://[",
        "swarm.example",
    ],
)
def test_pages_of_others_may_not(origin: str) -> None:
    assert not may_connect([(b"origin", origin.encode())], HOSTS, [])


def test_two_origins_are_refused_even_when_both_are_ours() -> None:
    ours = (b"origin", b"https://swarm.example")

    assert not may_connect([ours, ours], HOSTS, ["*"])


def test_programs_send_no_origin_and_may_connect() -> None:
    assert may_connect([(b"host", b"swarm.example")], HOSTS, [])


def test_an_origin_that_the_operator_named_may_connect_and_only_that_one() -> None:
    named = ["https://lend.example/", "null"]

    assert may_connect([(b"origin", b"https://lend.example")], HOSTS, named)
    assert may_connect([(b"origin", b"null")], HOSTS, named)
    assert not may_connect([(b"origin", b"http://lend.example")], HOSTS, named)
    assert not may_connect([(b"origin", b"https://lend.example:444")], HOSTS, named)
    assert may_connect([(b"origin", b"https://any.example")], HOSTS, ["*"])
