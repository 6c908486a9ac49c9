"""Where a client finds a relay: the address that it was given, and those that the server told it since.

A server may have several relay processes, and any of them will do. When one stops answering, the next attempt goes to
another; the one that failed longest ago comes first again. Values only; no I/O.
"""

import random
from collections.abc import Iterable
from urllib.parse import urlsplit

MAX_ADDRESSES = 32
MAX_ADDRESS_LENGTH = 256
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def is_relay_url(url: object) -> bool:
    """Whether this can be dialled: a ws:// or wss:// URL with a host."""
    if not isinstance(url, str) or not url.startswith(("ws://", "wss://")) or len(url) > MAX_ADDRESS_LENGTH:
        return False
    try:
        return bool(urlsplit(url).hostname) and url.isprintable()
    except ValueError:
        return False


def is_loopback(url: str) -> bool:
    """Whether the URL names this machine."""
    return urlsplit(url).hostname in LOOPBACK_HOSTS


class RelayAddresses:
    """`given` is tried first, unless `spread` chose another; addresses that are learned never outlive a restart."""

    def __init__(self, given: str) -> None:
        """Raises ValueError for an address that is no ws:// or wss:// URL."""
        if not is_relay_url(given):
            raise ValueError(f"a relay address starts with ws:// or wss://, not {given!r}")
        self.given = given
        self._known = [given]
        self._failed: dict[str, int] = {}
        self._failures = 0
        self._current = given

    @property
    def known(self) -> tuple[str, ...]:
        return tuple(self._known)

    @property
    def current(self) -> str:
        """The address for the next attempt."""
        return self._current

    def learn(self, urls: Iterable[object]) -> None:
        """What the server says its relays are, instead of what it said before. The address that was given stays.

        Ignored is what cannot be dialled; ws:// where wss:// was given, because a token must not travel in the open;
        and this machine itself where another was given, which is what a server says that does not know its own name.
        """
        secure, far = self.given.startswith("wss://"), not is_loopback(self.given)
        usable = [url for url in urls if isinstance(url, str) and is_relay_url(url)]
        usable = [url for url in usable if (url.startswith("wss://") or not secure) and not (far and is_loopback(url))]
        self._known = list(dict.fromkeys([self.given, *usable]))[:MAX_ADDRESSES]
        self._failed = {url: count for url, count in self._failed.items() if url in self._known}

    def spread(self) -> None:
        """Picks one of the known at random, so that many clients land on all relays alike."""
        self._current = random.choice(self._known)

    def failed(self) -> None:
        """The present address did not answer, or stopped to: another is next, where there is one."""
        self._failures += 1
        self._failed[self._current] = self._failures
        untried = [url for url in self._known if url not in self._failed]
        if untried:
            # At random: the clients of a relay that died must not all move to the same one.
            self._current = random.choice(untried)
        else:
            self._current = min(self._known, key=lambda url: self._failed[url])

    def answered(self) -> None:
        """The present address works again."""
        self._failed.pop(self._current, None)
