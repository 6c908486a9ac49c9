"""A slice over HTTP: manifest, pieces, digests.

Pieces are asked for one after another with `Range`. A piece counts only after its digest from the manifest matched, so
the partial file is always a verified prefix, apart from a torn end after a crash, which the next run finds by hashing
it again. The whole file's digest is checked from disk before the file gets its final name.
"""

import asyncio
import errno
import hashlib
import logging
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx

from inference.errors import BadManifest
from inference.slices import SliceManifest
from inference.worker.errors import BadAnswer, DownloadFailed, NoSpace, ServerRefused, ServerUnreachable, WorkerError
from inference.worker.market_client import Claim, error_from, first_bytes, pause_seconds, unreachable
from inference.worker.slice_store import SliceStore

PIECE_ATTEMPTS = 5
SPARE_DISK_BYTES = 16 << 20
MOST_PIECE_BYTES = 64 << 20
MOST_SLICE_OVERHEAD_BYTES = 1 << 20

Progress = Callable[[int, int], None]

logger = logging.getLogger(__name__)


class SliceSource(Protocol):
    """The part of MarketClient that a download needs."""

    server: str

    async def document(self, path: str) -> bytes: ...

    def stream_range(self, path: str, start: int, stop: int) -> AbstractAsyncContextManager[httpx.Response]: ...


@dataclass(frozen=True)
class Download:
    """A slice that is whole on disk. `received_bytes`: body bytes that came over the line in this run."""

    path: Path
    sha256: str
    size_bytes: int
    received_bytes: int


class _WrongPiece(WorkerError):
    """What arrived is not the piece that the manifest names; asking again may help."""

    code = "wrong_piece"


async def download_slice(
    source: SliceSource, store: SliceStore, claim: Claim, progress: Progress | None = None
) -> Download:
    """Bring the claim's slice to disk, continuing what an earlier run left.

    `progress(done_bytes, size_bytes)` is called after each piece. Raises NoSpace, DownloadFailed, BadAnswer,
    ServerRefused, ServerUnreachable; the partial file stays for the next try.
    """
    manifest = await _manifest(source, claim)
    path, partial = store.path(claim), store.partial_path(claim)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if await asyncio.to_thread(_whole, path, manifest):
            return Download(path, manifest.sha256, manifest.size, 0)
        done = await asyncio.to_thread(_verified_pieces, partial, manifest)
        _check_room(store, _missing_bytes(manifest, done))
        received = await _missing_pieces(source, claim, manifest, partial, done, progress)
        if not await asyncio.to_thread(_whole, partial, manifest):
            partial.unlink(missing_ok=True)
            raise DownloadFailed(f"{claim}: the disk gave back other bytes than were written; starting again")
        await asyncio.to_thread(_settle, partial, path)
    except OSError as error:
        raise _disk_error(claim, error) from error
    return Download(path, manifest.sha256, manifest.size, received)


async def _manifest(source: SliceSource, claim: Claim) -> SliceManifest:
    try:
        manifest = SliceManifest.from_json(await source.document(claim.manifest_url))
    except BadManifest as error:
        raise BadAnswer(f"{claim}: {error}") from error
    described = (manifest.build, manifest.layer, manifest.first, manifest.last)
    if described != (claim.build, claim.layer, claim.first, claim.last):
        raise BadAnswer(f"{claim}: the server sent the manifest of another slice")
    if manifest.piece_bytes > MOST_PIECE_BYTES or manifest.size > claim.size_bytes + MOST_SLICE_OVERHEAD_BYTES:
        raise BadAnswer(
            f"{claim}: a slice of {manifest.size} bytes in pieces of {manifest.piece_bytes} is not what the claim of "
            f"{claim.size_bytes} bytes announced"
        )
    return manifest


def _check_room(store: SliceStore, missing_bytes: int) -> None:
    free_bytes = store.free_bytes()
    if free_bytes < missing_bytes + SPARE_DISK_BYTES:
        raise NoSpace(
            f"{store.root} has {free_bytes / 1e6:.0f} MB left and {missing_bytes / 1e6:.0f} MB must be downloaded: "
            "make room, lend less with --budget, or choose another disk with --state"
        )


async def _missing_pieces(
    source: SliceSource, claim: Claim, manifest: SliceManifest, partial: Path, done: int, progress: Progress | None
) -> int:
    """Append pieces from number `done` on; returns the bytes received, repeated pieces included."""
    received = 0
    for number in range(done, len(manifest.pieces)):
        if progress is not None:
            progress(number * manifest.piece_bytes, manifest.size)
        if manifest.is_hole(number):
            await asyncio.to_thread(_append_hole, partial, manifest.piece_size(number))
            continue
        piece, piece_received = await _piece(source, claim, manifest, number)
        await asyncio.to_thread(_append, partial, piece)
        received += piece_received
    if progress is not None:
        progress(manifest.size, manifest.size)
    return received


async def _piece(source: SliceSource, claim: Claim, manifest: SliceManifest, number: int) -> tuple[bytes, int]:
    """Piece `number`, verified, and the bytes received for it. Raises after PIECE_ATTEMPTS failures."""
    received = 0
    for attempt in range(PIECE_ATTEMPTS):
        body = bytearray()
        try:
            await _fetch(source, claim, manifest, number, body)
            return bytes(body), received + len(body)
        except (ServerUnreachable, _WrongPiece) as error:
            received += len(body)
            logger.debug("%s, piece %d: %s", claim, number, error)
            if attempt == PIECE_ATTEMPTS - 1:
                if isinstance(error, ServerUnreachable):
                    raise
                raise DownloadFailed(f"{claim}: piece {number} is wrong in {PIECE_ATTEMPTS} tries: {error}") from error
        await asyncio.sleep(pause_seconds(attempt))
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _fetch(source: SliceSource, claim: Claim, manifest: SliceManifest, number: int, body: bytearray) -> None:
    """Fill `body` with piece `number`. Raises ServerUnreachable, _WrongPiece, ServerRefused."""
    start = number * manifest.piece_bytes
    stop = min(start + manifest.piece_bytes, manifest.size)
    try:
        async with source.stream_range(claim.slice_url, start, stop) as response:
            if response.status_code >= 400:
                raise error_from(response, await first_bytes(response))
            if response.status_code != 206:
                raise ServerRefused(response.status_code, "no_ranges", "the server did not answer with a range")
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > stop - start:
                    raise _WrongPiece(f"more than the {stop - start} bytes asked for")
    except httpx.HTTPError as error:
        raise unreachable(source.server, error) from error
    if len(body) != stop - start:
        raise _WrongPiece(f"{len(body)} bytes instead of {stop - start}")
    if await asyncio.to_thread(_digest, body) != manifest.pieces[number]:
        raise _WrongPiece("the digest does not match")


def _digest(data: bytes | bytearray) -> str:
    return hashlib.sha256(data).hexdigest()


def _whole(path: Path, manifest: SliceManifest) -> bool:
    """Whether the file is exactly the slice of the manifest."""
    if not path.is_file() or path.stat().st_size != manifest.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == manifest.sha256


def _verified_pieces(partial: Path, manifest: SliceManifest) -> int:
    """How many leading pieces of the partial file are right; whatever follows them is cut off."""
    if not partial.exists():
        return 0
    done = 0
    with partial.open("r+b") as file:
        for number, digest in enumerate(manifest.pieces):
            expected = min(manifest.piece_bytes, manifest.size - number * manifest.piece_bytes)
            piece = file.read(expected)
            if len(piece) != expected or _digest(piece) != digest:
                break
            done += 1
        file.truncate(min(done * manifest.piece_bytes, manifest.size))
    return done


def _missing_bytes(manifest: SliceManifest, done: int) -> int:
    """What is still to come; holes take no room."""
    numbers = range(done, len(manifest.pieces))
    return sum(manifest.piece_size(number) for number in numbers if not manifest.is_hole(number))


def _append_hole(partial: Path, size: int) -> None:
    with partial.open("ab") as file:
        file.truncate(file.tell() + size)


def _append(partial: Path, piece: bytes) -> None:
    with partial.open("ab") as file:
        file.write(piece)


def _settle(partial: Path, path: Path) -> None:
    """Give the verified file its final name, durably."""
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)


def _disk_error(claim: Claim, error: OSError) -> WorkerError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(
            f"{claim}: the disk is full: make room, lend less with --budget, or use another disk with --state"
        )
    return DownloadFailed(f"{claim}: cannot write {error.filename or 'the slice'}: {error.strerror or error}")
