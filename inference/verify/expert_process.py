"""An expert worker without a network: `python -m inference.verify.expert_process --socket FD --holdings FILE`.

It holds slices and answers requests with the very code of the expert worker (`inference.worker.serve`), but takes them
from a local socket, so that verification needs no server. Messages are those of the relay, each behind its length
(uint32, little-endian). It ends when the other side closes the socket.
"""

from __future__ import annotations

import argparse
import json
import logging
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from inference.worker.holdings import Holding, Holdings
from inference.worker.kernels import choose_kernel
from inference.worker.market_client import Claim
from inference.worker.serve import Job, answer
from relay.codes import ErrorCode
from relay.frames import Frame, FrameType, decode_frames, encode_frame, split_frame
from relay.messages import Reassembler, error_frame, ping_frame, read_lease

LENGTH = struct.Struct("<I")
READY = b"ready..."
MAX_BODY_BYTES = 256 << 20


def messages_of(frame: Frame) -> Iterator[bytes]:
    """A whole frame, chunked as the relay asks for."""
    return map(encode_frame, split_frame(frame))


def send_messages(channel: socket.socket, messages: Iterable[bytes]) -> None:
    for message in messages:
        channel.sendall(LENGTH.pack(len(message)) + message)


class FrameReader:
    """Whole frames out of a byte stream of length-prefixed messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._reassembler = Reassembler(MAX_BODY_BYTES, MAX_BODY_BYTES)

    def feed(self, data: bytes) -> Iterator[Frame]:
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._buffer)
            end = LENGTH.size + size
            if len(self._buffer) < end:
                return
            message = bytes(self._buffer[LENGTH.size : end])
            del self._buffer[:end]
            for frame in decode_frames(message):
                whole = self._reassembler.add(frame)
                if whole is not None:
                    yield whole


def open_holdings(path: Path, kernel: str, threads: int) -> Holdings:
    """The slices listed in a JSON file: [{"path", "claim_id", "fence", "build", "layer", "first", "last"}, ...]."""
    choice = choose_kernel(kernel, threads)
    holdings = Holdings()
    for entry in json.loads(path.read_text()):
        # What the server would say beside the lease is of no use here.
        claim = Claim(
            claim_id=entry["claim_id"],
            build=entry["build"],
            layer=entry["layer"],
            first=entry["first"],
            last=entry["last"],
            fence=entry["fence"],
            size_bytes=0,
            slice_url="",
            manifest_url="",
            rate_microcredits_per_hour=0,
            live=True,
        )
        holdings.add(Holding(claim, sha256="", kernel=choice.open(Path(entry["path"]))))
    return holdings


def reply_to(frame: Frame, holdings: Holdings) -> Frame:
    """The answer to a request."""
    lease = read_lease(frame)
    holding = holdings.find(lease.claim_id)
    if holding is None or holding.claim.fence != lease.fence:
        return error_frame(frame, ErrorCode.STALE_FENCE, f"claim {lease.claim_id} is not held here")
    return answer(Job(frame, holding))


def arguments(description: str) -> argparse.Namespace:
    """What LocalSwarm says to every kind of worker."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--holdings", type=Path, required=True)
    parser.add_argument("--kernel", default="ggml")
    parser.add_argument("--threads", type=int, default=1)
    logging.basicConfig(level=logging.WARNING)
    return parser.parse_args()


def serve(descriptor: int, reply: Callable[[Frame], Iterable[bytes]]) -> None:
    """Says that the slices are open, then answers requests until the other side closes; reply: messages of an answer.

    descriptor: of a socket, which is closed at the end.
    """
    reader = FrameReader()
    with socket.socket(fileno=descriptor) as channel:
        send_messages(channel, messages_of(ping_frame(READY)))
        while data := channel.recv(1 << 20):
            for frame in reader.feed(data):
                if frame.type in (FrameType.DISPATCH, FrameType.CHALLENGE):
                    send_messages(channel, reply(frame))


def main() -> None:
    options = arguments("Answers expert requests on an inherited socket.")
    holdings = open_holdings(options.holdings, options.kernel, options.threads)
    serve(options.socket, lambda frame: messages_of(reply_to(frame, holdings)))


if __name__ == "__main__":
    main()
