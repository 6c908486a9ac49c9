"""Messages over a TCP connection between stages of one operator: a length before each, and a secret that both know.

Whoever connects and whoever listens each prove that they know the secret without telling it (HMAC-SHA256 over both
sides' random numbers, compared in constant time). What follows is neither encrypted nor signed: direct lines are for a
network that the operator trusts, or for a tunnel; everything else goes through the relay.

    listener -> MAGIC, 16 random bytes        dialler -> 16 random bytes, 32 bytes of proof
    listener -> 32 bytes of proof             then messages: u32 length, bytes
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
from typing import Self

from inference.ring.errors import BadStep, LineBroken, NotAuthentic, RingError
from inference.ring.steps import MAX_MESSAGE_BYTES

MAGIC = b"XSRING1\n"
NONCE_BYTES, PROOF_BYTES = 16, 32
LENGTH = struct.Struct("<I")
HANDSHAKE_SECONDS = 10.0
SMALL_MESSAGE_BYTES = 1 << 16
SHORTEST_SECRET = 16
# A host that lost its power says nothing: the kernel asks it after so many seconds, every so many, so often.
KEEPALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))


class Wire:
    """An authenticated connection. A context manager; closing twice is harmless."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wakes a thread that reads here, too."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is gone already
            self._socket.close()
            return
        self._socket.close()

    def send(self, data: bytes | bytearray, timeout_seconds: float) -> None:
        """Raises LineBroken."""
        try:
            self._socket.settimeout(timeout_seconds)
            length = LENGTH.pack(len(data))
            if len(data) < SMALL_MESSAGE_BYTES:
                self._socket.sendall(length + data)  # one packet
            else:
                self._socket.sendall(length)
                self._socket.sendall(data)
        except OSError as error:
            raise LineBroken(f"cannot send {len(data)} bytes: {error}") from error

    def receive(self, timeout_seconds: float | None, limit: int = SMALL_MESSAGE_BYTES) -> bytearray:
        """The next message of at most `limit` bytes; None waits for ever. Raises LineBroken, BadStep."""
        (size,) = LENGTH.unpack(self._read(LENGTH.size, timeout_seconds))
        if not 0 < size <= min(limit, MAX_MESSAGE_BYTES):
            raise BadStep(f"a message of {size} bytes, at most {limit} are taken here")
        return self._read(size, timeout_seconds)

    def _read(self, size: int, timeout_seconds: float | None) -> bytearray:
        data = bytearray(size)
        view, done = memoryview(data), 0
        try:
            self._socket.settimeout(timeout_seconds)
            while done < size:
                got = self._socket.recv_into(view[done:])
                if got == 0:
                    raise LineBroken("the other side closed the connection")
                done += got
        except TimeoutError as error:
            raise LineBroken(f"nothing came within {timeout_seconds:g} s") from error
        except OSError as error:
            raise LineBroken(f"the connection broke: {error}") from error
        return data

    # --- the beginning ------------------------------------------------------------------------------------------------
    @classmethod
    def dial(cls, address: str, secret: bytes, timeout_seconds: float = HANDSHAKE_SECONDS) -> Wire:
        """Raises LineBroken, NotAuthentic."""
        try:
            wire = cls(socket.create_connection(host_and_port(address), timeout_seconds))
        except (OSError, ValueError) as error:
            raise LineBroken(f"no stage answers at {address}: {error}") from error
        try:
            greeting = bytes(wire._read(len(MAGIC) + NONCE_BYTES, timeout_seconds))
            if not greeting.startswith(MAGIC):
                raise NotAuthentic(f"what listens at {address} is no stage")
            theirs, ours = greeting[len(MAGIC) :], secrets.token_bytes(NONCE_BYTES)
            wire._write(ours + proof(secret, b"dialler", theirs, ours))
            if not hmac.compare_digest(
                wire._proof_of(address, timeout_seconds), proof(secret, b"listener", theirs, ours)
            ):
                raise NotAuthentic(f"what listens at {address} does not know the secret of the stages")
        except RingError:
            wire.close()
            raise
        return wire

    @classmethod
    def accept(cls, connection: socket.socket, secret: bytes, timeout_seconds: float = HANDSHAKE_SECONDS) -> Wire:
        """The listener's side. Raises LineBroken, NotAuthentic; the connection is closed then."""
        wire = cls(connection)
        ours = secrets.token_bytes(NONCE_BYTES)
        try:
            wire._write(MAGIC + ours)
            answer = bytes(wire._read(NONCE_BYTES + PROOF_BYTES, timeout_seconds))
            theirs = answer[:NONCE_BYTES]
            if not hmac.compare_digest(answer[NONCE_BYTES:], proof(secret, b"dialler", ours, theirs)):
                raise NotAuthentic("somebody who does not know the secret of the stages")
            wire._write(proof(secret, b"listener", ours, theirs))
        except (LineBroken, NotAuthentic):
            wire.close()
            raise
        return wire

    def _proof_of(self, address: str, timeout_seconds: float) -> bytes:
        """The listener's; one that does not believe us hangs up instead."""
        try:
            return bytes(self._read(PROOF_BYTES, timeout_seconds))
        except LineBroken as error:
            reason = f"{address} ended the handshake ({error}): do both sides have the same secret?"
            raise NotAuthentic(reason) from error

    def _write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise LineBroken(f"the connection broke: {error}") from error


def proof(secret: bytes, side: bytes, listeners: bytes, diallers: bytes) -> bytes:
    """32 bytes that only who knows the secret can make for these two random numbers."""
    return hmac.digest(secret, side + listeners + diallers, hashlib.sha256)


def host_and_port(address: str) -> tuple[str, int]:
    """`HOST:PORT`, `[IPv6]:PORT`. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)
