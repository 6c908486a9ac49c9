"""config/supervisor/lan.py: the names and addresses of this machine in its network."""

import socket
from ipaddress import ip_address

import pytest

from config.supervisor.lan import BadName, lan_names


def test_loopback_and_the_own_name_are_always_among_them() -> None:
    found = lan_names()

    assert {"localhost", socket.gethostname().lower()} <= set(found.names)
    assert ip_address("127.0.0.1") in found.addresses
    assert found.best in found.hosts


def test_what_the_operator_gives_comes_first() -> None:
    found = lan_names(["Phone.test", "10.1.2.3"])

    assert found.best == "phone.test"
    assert found.names[0] == "phone.test"
    assert found.addresses[0] == ip_address("10.1.2.3")


def test_addresses_with_colons_are_written_as_browsers_do() -> None:
    assert lan_names(["fd00::7"]).best == "[fd00::7]"
    assert "[::1]" in lan_names().hosts


@pytest.mark.parametrize("name", ["", "a b", "http://a", "a/b", "-a", "a:80"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(BadName, match="neither"):
        lan_names([name])
