"""By which names other devices of the local network reach this machine. Standard library only; nothing is sent."""

import contextlib
import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Reserved for documentation (RFC 5737): a UDP socket that is connected there sends nothing, but shows which of our
# addresses the system would send from.
SOMEWHERE = ("192.0.2.1", 9)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})(?:\.[A-Za-z0-9-]{1,63})*")


class BadName(ValueError):
    """Not a host name or an address."""


@dataclass(frozen=True)
class LanNames:
    """names: host names; addresses: of this machine, loopback included; best: what to show to people."""

    names: tuple[str, ...]
    addresses: tuple[Address, ...]
    best: str

    @property
    def hosts(self) -> tuple[str, ...]:
        """All of them as a browser writes them in the Host header."""
        return (*self.names, *(f"[{one}]" if one.version == 6 else str(one) for one in self.addresses))


def lan_names(extra: Sequence[str] = ()) -> LanNames:
    """extra: names or addresses that the operator gives; the first one is the best. Raises BadName."""
    given = [_checked(name) for name in extra]
    own = socket.gethostname().lower()
    found = [*given, *_addresses(), own, "" if "." in own else f"{own}.local", *LOOPBACK]
    names, addresses = [], []
    for text in dict.fromkeys(one for one in found if one):
        address = _address(text)
        if address is not None:
            addresses.append(address)
        elif NAME.fullmatch(text):
            names.append(text)
    best = next(one for one in found if one)
    return LanNames(tuple(names), tuple(addresses), f"[{best}]" if ":" in best else best)


def _checked(name: str) -> str:
    if _address(name) is None and not NAME.fullmatch(name):
        raise BadName(f"{name!r} is neither a host name nor an address")
    return name.lower()


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _addresses() -> list[str]:
    """This machine's addresses, that of the default route first; empty without a network."""
    found = []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(SOMEWHERE)
        found.append(str(probe.getsockname()[0]))
    with contextlib.suppress(OSError):
        found += [str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    return [address for address in dict.fromkeys(found) if not ipaddress.ip_address(address).is_loopback]
