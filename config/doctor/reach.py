"""Looks at the server as strangers see it: its public address, its certificate, and every relay by a handshake."""

import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
import redis
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from config.doctor.deployment import Deployment
from config.doctor.findings import Finding, error, fine, warning
from config.doctor.stores import CLOCK_ERROR_SECONDS, CLOCK_TODO, client_of
from relay import directory
from relay.addresses import is_loopback
from relay.codes import RejectCode
from relay.errors import RelayError
from relay.frames import FrameType, Role, decode_frames, encode_frame
from relay.messages import hello_frame, read_refusal

ASK_SECONDS = 5.0
DAYS_WARNING, DAYS_ERROR = 21, 3
NOBODY = {"token": "manage.py doctor has none", "build": "0" * 32, "kernel_class": "doctor", "name": "doctor"}


def answer_of(deployment: Deployment, path: str) -> dict[str, Any]:
    """The JSON of an address of ours, whatever its status; empty when there is none."""
    try:
        found = httpx.get(deployment.public_url + path, timeout=ASK_SECONDS).json()
    except (httpx.HTTPError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def public_address(deployment: Deployment) -> Iterator[Finding]:
    host = urlsplit(deployment.public_url).hostname or ""
    is_local = host in {"localhost", "127.0.0.1", "::1"}
    try:
        answer = httpx.get(f"{deployment.public_url}/healthz", timeout=ASK_SECONDS)
    except httpx.HTTPError as problem:
        todo = "Correct PUBLIC_URL, its name and the proxy: this is the address that devices are told."
        yield error("public address", f"{deployment.public_url}: {problem}", todo)
        return
    if answer.status_code != httpx.codes.OK:
        todo = "See the proxy's log; ALLOWED_HOSTS must hold the host of PUBLIC_URL."
        yield error("public address", f"{deployment.public_url}/healthz answers {answer.status_code}", todo)
    elif is_local and not deployment.is_embedded:
        todo = "Set PUBLIC_URL to the address that devices use."
        yield warning("public address", f"{deployment.public_url} is this machine's own", todo)
    else:
        yield fine("public address", f"{deployment.public_url} answers")
    yield from _http_clock(answer)
    if not deployment.is_https:
        if is_local:
            yield fine("tls", "not needed: the address is this machine's own")
        else:
            todo = "End TLS in front of it (deploy/nginx): tokens travel in the open, and phones refuse most features."
            yield error("tls", f"{deployment.public_url} is not HTTPS", todo)


def _http_clock(answer: httpx.Response) -> Iterator[Finding]:
    if "date" in answer.headers:
        difference = abs(time.time() - parsedate_to_datetime(answer.headers["date"]).timestamp())
        if difference > CLOCK_ERROR_SECONDS:
            yield error("clock of proxy", f"{difference:.0f} s from ours", CLOCK_TODO)


def certificate(deployment: Deployment) -> Iterator[Finding]:
    """Checked as a device does: with the system's authorities, or SSL_CERT_FILE."""
    if not deployment.is_https:
        return
    address = urlsplit(deployment.public_url)
    host, port = address.hostname or "", address.port or 443
    try:
        with (
            socket.create_connection((host, port), ASK_SECONDS) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=host) as secure,
        ):
            version, found = secure.version(), secure.getpeercert() or {}
    except ssl.SSLError as problem:
        todo = "Use a certificate for this very name from a known authority, with its whole chain."
        yield error("tls", f"{host}:{port}: {getattr(problem, 'verify_message', '') or problem}", todo)
        return
    except OSError as problem:
        yield error("tls", f"{host}:{port}: {problem}", "Open port 443 and start the proxy.")
        return
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(found["notAfter"])), UTC)
    days = (ends - datetime.now(UTC)).days
    what = f"{version}, certificate valid until {ends:%Y-%m-%d}"
    todo = "Renew the certificate (certbot renew) and reload nginx."
    if days < DAYS_ERROR:
        yield error("tls", what, todo)
    elif days < DAYS_WARNING:
        yield warning("tls", what, todo)
    else:
        yield fine("tls", what)


def relays(deployment: Deployment) -> Iterator[Finding]:
    """Each relay at the address of its own process and at the one that workers are told."""
    if not deployment.redis_url:
        return
    try:
        with client_of(deployment) as client:
            found = directory.processes(client)
    except redis.RedisError:
        return  # its own look says so
    if not found:
        todo = "Give every web process a RELAY_ADDRESS and start it; backbones find relays by it."
        yield error("relays", "none is registered", todo)
    for process in found:
        yield _relay("relay, for backbones", process.address, "Open RELAY_ADDRESS to the backbones' hosts.")
        if process.public_url != process.address:
            todo = "Let the proxy pass WebSockets of this path on to that process (deploy/nginx), on 443."
            yield _relay("relay, for workers", process.public_url, todo)
    if found and not deployment.is_embedded and all(is_loopback(process.public_url) for process in found):
        todo = "Set RELAY_PUBLIC_URL of each web process to an address that devices reach."
        yield warning("relay, for workers", "all public addresses are this machine's own", todo)


def _relay(check: str, url: str, todo: str) -> Finding:
    """Says HELLO with a token that nobody has: a relay that refuses it as that is alive, and asked its database."""
    message = bytes([Role.WORKER]) + encode_frame(hello_frame({**NOBODY, "replicas": []}))
    try:
        with connect(url, open_timeout=ASK_SECONDS, close_timeout=1, compression=None) as socket_:
            socket_.send(message)
            answer = socket_.recv(timeout=ASK_SECONDS, decode=False)
        (frame, *_) = decode_frames(answer)
        refusal = read_refusal(frame) if frame.type is FrameType.REJECT else None
    except (OSError, WebSocketException, RelayError, TimeoutError) as problem:
        return error(check, f"{url}: {str(problem) or type(problem).__name__}", todo)
    if refusal is None or refusal.code not in {RejectCode.BAD_TOKEN, RejectCode.BUILD_MISMATCH}:
        what = frame.type.name if refusal is None else f"{refusal.code}: {refusal.message}"
        return error(check, f"{url} answers {what}", "See the log of that web process.")
    return fine(check, f"{url} speaks our protocol")
