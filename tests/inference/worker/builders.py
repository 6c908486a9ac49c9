"""Plain builders for the worker's tests."""

import hashlib

import numpy as np

from inference.slices import SliceManifest
from inference.worker.market_client import Claim
from tests.inference.worker.slice_server import MANIFEST_URL, SLICE_URL, SliceServer

BUILD = "ab" * 16
PIECE_BYTES = 10_000


def a_claim(**changes: object) -> Claim:
    values: dict[str, object] = {
        "claim_id": 7,
        "build": BUILD,
        "layer": 3,
        "first": 8,
        "last": 15,
        "fence": 2,
        "size_bytes": 45_000,
        "slice_url": SLICE_URL,
        "manifest_url": MANIFEST_URL,
        "rate_microcredits_per_hour": 1000,
        "live": False,
    }
    return Claim(**(values | changes))  # type: ignore[arg-type]


def slice_bytes(size: int = 45_000) -> bytes:
    return np.random.default_rng(3).bytes(size)


def manifest_of(data: bytes, claim: Claim, piece_bytes: int = PIECE_BYTES) -> SliceManifest:
    pieces = [data[start : start + piece_bytes] for start in range(0, len(data), piece_bytes)]
    return SliceManifest(
        build=claim.build,
        layer=claim.layer,
        first=claim.first,
        last=claim.last,
        size=len(data),
        piece_bytes=piece_bytes,
        sha256=hashlib.sha256(data).hexdigest(),
        pieces=tuple(hashlib.sha256(piece).hexdigest() for piece in pieces),
    )


def a_slice_server(claim: Claim | None = None) -> SliceServer:
    """45,000 random bytes in five pieces, the last one short."""
    data = slice_bytes()
    return SliceServer(data, manifest_of(data, claim or a_claim()))
