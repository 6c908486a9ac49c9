"""Downloads against a real HTTP server that truncates, lies, fails and hangs."""

import asyncio
import errno
import shutil
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from inference.worker import download, market_client
from inference.worker.download import Download, Progress, download_slice
from inference.worker.errors import BadAnswer, DownloadFailed, NoSpace, ServerRefused, ServerUnreachable
from inference.worker.market_client import Claim, MarketClient
from inference.worker.slice_store import SliceStore
from tests.inference.worker import slice_server
from tests.inference.worker.builders import PIECE_BYTES, a_claim, a_slice_server, manifest_of
from tests.inference.worker.slice_server import Fault, SliceServer, serving

SHORT_TIMEOUT = httpx.Timeout(0.3)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(market_client, "FIRST_PAUSE_SECONDS", 0.001)


@pytest.fixture
def server() -> Iterator[SliceServer]:
    with serving(a_slice_server()) as state:
        yield state


@pytest.fixture
def store(tmp_path: Path) -> SliceStore:
    return SliceStore(tmp_path / "slices")


async def fetch(
    server: SliceServer, store: SliceStore, claim: Claim | None = None, progress: Progress | None = None
) -> Download:
    async with MarketClient(server.url, "secret", SHORT_TIMEOUT) as client:
        return await download_slice(client, store, claim or a_claim(), progress)


async def test_a_slice_arrives_in_pieces_and_gets_its_name_when_whole(server: SliceServer, store: SliceStore) -> None:
    result = await fetch(server, store)

    assert result.path.read_bytes() == server.data
    assert result == Download(store.path(a_claim()), server.manifest.sha256, 45_000, 45_000)
    assert server.ranges == [(0, 10_000), (10_000, 20_000), (20_000, 30_000), (30_000, 40_000), (40_000, 45_000)]
    assert set(server.authorizations) == {"Bearer secret"}
    assert not store.partial_path(a_claim()).exists()


class FaultCase(NamedTuple):
    fault: Fault
    wasted_bytes: int


@pytest.mark.parametrize(
    "case",
    [
        FaultCase(slice_server.truncated, 5_000),
        FaultCase(slice_server.wrong_byte, 10_000),
        FaultCase(slice_server.too_long, 10_001),
        FaultCase(slice_server.server_error, 0),
        FaultCase(slice_server.broken_off, 0),
        FaultCase(slice_server.hangs, 10),
    ],
    ids=lambda case: case.fault.__name__,
)
async def test_a_piece_that_went_wrong_is_asked_for_again(
    server: SliceServer, store: SliceStore, case: FaultCase
) -> None:
    server.faults = deque([None, case.fault, case.fault])

    result = await fetch(server, store)

    assert result.path.read_bytes() == server.data
    assert server.ranges[1:4] == [(10_000, 20_000)] * 3
    assert result.received_bytes <= 45_000 + 2 * case.wasted_bytes


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (slice_server.truncated, ServerUnreachable),
        (slice_server.wrong_byte, DownloadFailed),
        (slice_server.server_error, ServerUnreachable),
        (slice_server.no_range, ServerRefused),
    ],
)
async def test_it_gives_up_after_some_tries_and_keeps_what_was_right(
    server: SliceServer, store: SliceStore, fault: Fault, error: type[Exception]
) -> None:
    server.faults = deque([None, None, *[fault] * download.PIECE_ATTEMPTS])

    with pytest.raises(error):
        await fetch(server, store)

    assert store.partial_path(a_claim()).read_bytes() == server.data[:20_000]
    assert not store.path(a_claim()).exists()


async def test_the_servers_refusal_is_told_in_its_own_words(server: SliceServer, store: SliceStore) -> None:
    server.faults = deque([slice_server.refused])

    with pytest.raises(ServerRefused, match="claim this range first") as raised:
        await fetch(server, store)

    assert raised.value.code == "not_claimed"
    assert len(server.ranges) == 1


async def test_it_continues_after_a_crash_and_drops_the_torn_end(server: SliceServer, store: SliceStore) -> None:
    partial = store.partial_path(a_claim())
    partial.parent.mkdir(parents=True)
    partial.write_bytes(server.data[:20_000] + b"torn" * 100)

    result = await fetch(server, store)

    assert result.received_bytes == 25_000
    assert server.ranges[0] == (20_000, 30_000)
    assert result.path.read_bytes() == server.data


async def test_it_does_not_trust_a_partial_file_with_a_wrong_byte(server: SliceServer, store: SliceStore) -> None:
    partial = store.partial_path(a_claim())
    partial.parent.mkdir(parents=True)
    partial.write_bytes(server.data[:15_000] + b"?" + server.data[15_001:40_000])

    result = await fetch(server, store)

    assert result.received_bytes == 35_000
    assert result.path.read_bytes() == server.data


async def test_a_slice_that_is_whole_on_disk_is_not_fetched_again(server: SliceServer, store: SliceStore) -> None:
    await fetch(server, store)
    server.ranges.clear()

    result = await fetch(server, store)

    assert result.received_bytes == 0
    assert server.ranges == []


async def test_a_slice_that_rotted_on_disk_is_fetched_again(server: SliceServer, store: SliceStore) -> None:
    path = (await fetch(server, store)).path
    path.write_bytes(b"?" + server.data[1:])

    result = await fetch(server, store)

    assert result.received_bytes == 45_000
    assert path.read_bytes() == server.data


async def test_progress_goes_from_what_was_there_to_the_whole(server: SliceServer, store: SliceStore) -> None:
    partial = store.partial_path(a_claim())
    partial.parent.mkdir(parents=True)
    partial.write_bytes(server.data[:30_000])
    seen: list[tuple[int, int]] = []

    await fetch(server, store, progress=lambda done, size: seen.append((done, size)))

    assert seen == [(30_000, 45_000), (40_000, 45_000), (45_000, 45_000)]


async def test_cancelling_keeps_the_verified_pieces(server: SliceServer, store: SliceStore) -> None:
    server.faults = deque([None, slice_server.hangs])

    download = asyncio.create_task(fetch(server, store))
    async with asyncio.timeout(10):
        while len(server.ranges) < 2:
            await asyncio.sleep(0.01)

    download.cancel()

    with pytest.raises(asyncio.CancelledError):
        await download
    assert store.partial_path(a_claim()).read_bytes() == server.data[:PIECE_BYTES]


async def test_a_full_disk_is_noticed_before_the_download(
    server: SliceServer, store: SliceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 1000))

    with pytest.raises(NoSpace, match="make room"):
        await fetch(server, store)

    assert server.ranges == []


async def test_a_disk_that_fills_up_meanwhile_is_told_as_such(
    server: SliceServer, store: SliceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(partial: Path, piece: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(partial))

    monkeypatch.setattr(download, "_append", no_room)

    with pytest.raises(NoSpace, match="disk is full"):
        await fetch(server, store)


async def test_a_folder_that_cannot_be_made_is_told_as_such(server: SliceServer, tmp_path: Path) -> None:
    (tmp_path / "slices").write_text("a file is in the way")

    with pytest.raises(DownloadFailed, match="cannot write"):
        await fetch(server, SliceStore(tmp_path / "slices"))


@pytest.mark.parametrize(
    "claim",
    [a_claim(layer=4), a_claim(first=7), a_claim(build="cd" * 16), a_claim(size_bytes=-(1 << 20))],
    ids=["layer", "range", "build", "size"],
)
async def test_a_manifest_that_does_not_belong_to_the_claim_is_refused(
    server: SliceServer, store: SliceStore, claim: Claim
) -> None:
    with pytest.raises(BadAnswer):
        await fetch(server, store, claim)

    assert server.ranges == []


async def test_a_manifest_that_is_none_is_refused(server: SliceServer, store: SliceStore) -> None:
    class Broken:
        def to_json(self) -> str:
            return "<html>"

    server.manifest = Broken()  # type: ignore[assignment]

    with pytest.raises(BadAnswer):
        await fetch(server, store)


async def test_pieces_that_are_right_but_a_whole_that_is_not_start_again(
    server: SliceServer, store: SliceStore
) -> None:
    right = manifest_of(server.data, a_claim())
    server.manifest = type(right)(**(vars(right) | {"sha256": "0" * 64}))

    with pytest.raises(DownloadFailed):
        await fetch(server, store)

    assert not store.partial_path(a_claim()).exists()
    assert not store.path(a_claim()).exists()


async def test_pieces_of_zeros_are_not_asked_for_and_take_no_room(server: SliceServer, store: SliceStore) -> None:
    data = server.data[:10_000] + bytes(20_000) + server.data[:15_000]
    server.data, server.manifest = data, manifest_of(data, a_claim())

    result = await fetch(server, store)

    assert result.path.read_bytes() == data
    assert result.received_bytes == 25_000
    assert server.ranges == [(0, 10_000), (30_000, 40_000), (40_000, 45_000)]
