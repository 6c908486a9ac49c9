"""Who a request really comes from, behind proxies of ours: rate limits and logs go by it.

Only what a trusted proxy says is believed. X-Forwarded-For is read from its end, where our own proxy wrote; what a
client put there itself stands further left and is never reached.
"""

from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address, ip_network
from typing import Any

Event = dict[str, Any]
Application = Callable[[Event, Callable[[], Awaitable[Event]], Callable[[Event], Awaitable[None]]], Awaitable[None]]

FORWARDED_FOR = b"x-forwarded-for"


class ClientAddress:
    """An ASGI application around another. proxies: addresses or networks. Raises ValueError for anything else."""

    def __init__(self, application: Application, proxies: Sequence[str]) -> None:
        self._application = application
        try:
            self._networks = [ip_network(proxy, strict=False) for proxy in proxies]
        except ValueError as error:
            raise ValueError(f"TRUSTED_PROXIES must hold addresses or networks: {error}") from None

    async def __call__(
        self, scope: Event, receive: Callable[[], Awaitable[Event]], send: Callable[[Event], Awaitable[None]]
    ) -> None:
        if self._networks and scope["type"] in {"http", "websocket"} and scope.get("client"):
            scope = {**scope, "client": [self.real_address(scope["client"][0], scope["headers"]), 0]}
        await self._application(scope, receive, send)

    def real_address(self, peer: str, headers: Sequence[tuple[bytes, bytes]]) -> str:
        """The last hop that is no proxy of ours; the peer itself when it is none, or names nobody."""
        named = b",".join(value for name, value in headers if name == FORWARDED_FOR).decode("latin-1")
        hops = [hop.strip() for hop in named.split(",") if hop.strip()]
        address = peer
        while self._is_ours(address) and hops:
            address = hops.pop()
        return address if _is_address(address) else peer

    def _is_ours(self, address: str) -> bool:
        return _is_address(address) and any(ip_address(address) in network for network in self._networks)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
