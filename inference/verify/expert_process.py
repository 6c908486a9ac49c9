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
from collections.abc import Iterator
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


def send_frame(channel: socket.socket, frame: Frame) -> None:
    """Sends a whole frame, chunked as the relay asks for."""
    for chunk in split_frame(frame):
        message = encode_frame(chunk)
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


def reply_to(frame: Frame, holdings: Holdings) -> Frame | None:
    """The answer to one frame; None for anything but a request."""
    if frame.type not in (FrameType.DISPATCH, FrameType.CHALLENGE):
        return None
    lease = read_lease(frame)
    holding = holdings.find(lease.claim_id)
    if holding is None or holding.claim.fence != lease.fence:
        return error_frame(frame, ErrorCode.STALE_FENCE, f"claim {lease.claim_id} is not held here")
    return answer(Job(frame, holding))


def main() -> None:
    parser = argparse.ArgumentParser(description="Answers expert requests on an inherited socket.")
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--holdings", type=Path, required=True)
    parser.add_argument("--kernel", default="ggml")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    holdings = open_holdings(options.holdings, options.kernel, options.threads)
    reader = FrameReader()
    with socket.socket(fileno=options.socket) as channel:
        send_frame(channel, ping_frame(READY))
        while data := channel.recv(1 << 20):
            for frame in reader.feed(data):
                reply = reply_to(frame, holdings)
                if reply is not None:
                    send_frame(channel, reply)


if __name__ == "__main__":
    main()
