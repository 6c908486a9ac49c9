"""The listening sockets of this process's web server, and how they close without losing a connection.

A connection that the kernel has made but the server has not accepted is reset when its listening socket closes, and a
proxy that has sent a request on it may not send that to another process. So a filter stops new connections first; those
that are made or half made are let in; only then the socket closes. Known servers: uvicorn, and Daphne (Twisted).
"""

import asyncio
import ctypes
import os
import select
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

# The last packet of a handshake is on its way for so long at most. Clients send a packet that the filter has dropped
# again after 1 s (RFC 6298) and must then find the socket closed.
HANDSHAKE_SECONDS = 0.25
# A busy event loop accepts late; but where there is no filter, connections may come for ever.
MOST_SECONDS = 3.0
SO_ATTACH_FILTER = 26  # <asm-generic/socket.h>; Python has no name for it
# Classic BPF (code, jump if true, jump if false, operand) on the TCP header: drops what asks for a new connection.
FLAGS_BYTE, SYN, ACK = 13, 0x02, 0x10
ONLY_ESTABLISHED = (
    (0x30, 0, 0, FLAGS_BYTE),  # load the byte
    (0x54, 0, 0, SYN | ACK),  # and
    (0x15, 0, 1, SYN),  # equal? else skip one
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFFFFFF),  # keep all of it
)


@dataclass(frozen=True)
class Listener:
    """descriptors: its listening sockets; close: they refuse connections from then on."""

    descriptors: tuple[int, ...]
    close: Callable[[], object]


def listeners_of(server: object) -> list[Listener]:
    """Of this process. server: the uvicorn server that runs, or anything else under Daphne."""
    found = [
        Listener(tuple(one.fileno() for one in listening.sockets), listening.close)
        for listening in getattr(server, "servers", ())
    ]
    if "twisted.internet.reactor" in sys.modules:
        from twisted.internet import tcp

        # The module is replaced by the reactor that runs, which Twisted's types do not know.
        reactor: Any = sys.modules["twisted.internet.reactor"]
        ports = [reader for reader in reactor.getReaders() if isinstance(reader, tcp.Port)]
        found += [Listener((port.fileno(),), port.stopListening) for port in ports]  # type: ignore[no-untyped-call]
    return found


async def stop_listening(listeners: Sequence[Listener]) -> None:
    """New connections are refused after it; those that began before it are let in by the server meanwhile."""
    descriptors = [descriptor for listener in listeners for descriptor in listener.descriptors]
    for descriptor in descriptors:
        begin_no_more(descriptor)
    began = monotonic()
    while monotonic() < began + HANDSHAKE_SECONDS or (monotonic() < began + MOST_SECONDS and _waiting(descriptors)):
        await asyncio.sleep(HANDSHAKE_SECONDS / 50)
    for listener in listeners:
        listener.close()


def begin_no_more(descriptor: int) -> bool:
    """No new connection begins at this listening socket; whether the system can do that (Linux, TCP)."""
    if not sys.platform.startswith("linux"):
        return False
    filters = b"".join(struct.pack("HBBI", *step) for step in ONLY_ESTABLISHED)
    buffer = ctypes.create_string_buffer(filters, len(filters))
    program = struct.pack("HP", len(ONLY_ESTABLISHED), ctypes.addressof(buffer))
    with socket.socket(fileno=os.dup(descriptor)) as listening:
        if listening.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        try:
            listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        except OSError:
            return False
    return True


def _waiting(descriptors: Sequence[int]) -> bool:
    """Whether somebody waits to be accepted."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
