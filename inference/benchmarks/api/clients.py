"""All clients of `bench api` in one process: `python -m inference.benchmarks.api.clients URL KEY`.

    {"clients": N, "tokens": T}  N streams at once        -> {"tokens", "seconds", "first_token_seconds"}
    {"check": T}                 the streams of the round -> {"wrong_streams"}

Raw HTTP/1.1 over sockets: while the clock runs bytes are kept, not looked at. Afterwards every stream is compared with
what the server stored of it, token by token: a text that differs has lost or doubled something.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from inference.benchmarks.api.stack import MARK
from inference.benchmarks.api.workload import MODEL_NAME, SAMPLING, prompt

READ_BYTES = 1 << 16


@dataclass
class Received:
    """One stream: seconds from the request to the first event, and all bytes."""

    first_seconds: float
    head: bytes
    body: bytes


def main() -> None:
    url, key = sys.argv[1:]
    received: list[Received] = []
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "check" in order:
                answer: dict[str, Any] = {"wrong_streams": wrong_streams(url, key, received, order["check"])}
            else:
                received, answer = run_round(url, key, order["clients"], order["tokens"])
        except (OSError, RuntimeError, ValueError, LookupError, httpx.HTTPError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(MARK + json.dumps(answer) + "\n")
        sys.stdout.flush()


def run_round(url: str, key: str, clients: int, tokens: int) -> tuple[list[Received], dict[str, Any]]:
    started = time.perf_counter()
    received = asyncio.run(stream_all(url, key, clients, tokens))
    seconds = time.perf_counter() - started
    first_token_seconds = [one.first_seconds for one in received]
    return received, {"tokens": clients * tokens, "seconds": seconds, "first_token_seconds": first_token_seconds}


def wrong_streams(url: str, key: str, received: list[Received], tokens: int) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60.0) as client:
        return sum(not is_whole(client, one, tokens) for one in received)


async def stream_all(url: str, key: str, clients: int, tokens: int) -> list[Received]:
    return await asyncio.gather(*(stream_one(url, key, number, tokens) for number in range(clients)))


async def stream_one(url: str, key: str, number: int, tokens: int) -> Received:
    address = urlsplit(url)
    body = json.dumps(
        {"model": MODEL_NAME, "prompt": list(prompt(number)), "max_tokens": tokens, "stream": True,
         "temperature": SAMPLING.temperature, "ignore_eos": SAMPLING.ignore_eos}
    ).encode()  # fmt: skip
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=READ_BYTES)
    try:
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        first = b""
        while b"data: " not in first:
            piece = await reader.read(READ_BYTES)
            if not piece:
                raise RuntimeError(f"no event came: {(answer + first)[:500]!r}")
            first += piece
        first_seconds = time.perf_counter() - started
        pieces = [first]
        while piece := await reader.read(READ_BYTES):
            pieces.append(piece)
    finally:
        writer.close()
    return Received(first_seconds, answer, b"".join(pieces))


def is_whole(client: httpx.Client, received: Received, tokens: int) -> bool:
    """Whether the stream holds every token once, as the server stored them."""
    events = [json.loads(line[6:]) for line in unchunked(received.body).splitlines() if line.startswith(b"data: {")]
    if not received.body.rstrip().endswith(b"[DONE]\n\n\r\n0") or any("error" in event for event in events):
        return False
    text = "".join(choice["text"] for event in events for choice in event["choices"])
    generation = events[0]["id"].removeprefix("cmpl-")
    stored = client.get(f"/v1/generations/{generation}/stream").text
    kept = [json.loads(line[6:]) for line in stored.splitlines() if line.startswith("data: {")]
    return [token["index"] for token in kept] == list(range(tokens)) and text == "".join(t["text"] for t in kept)


def unchunked(body: bytes) -> bytes:
    """The content of a body in HTTP's chunked encoding."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


if __name__ == "__main__":
    main()
