"""The worker's connection against a real WebSocket server that plays the relay."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from inference.numpy_kernel import NumpyKernel
from inference.worker.errors import RelayRefused, UnknownToken, WorkerError
from inference.worker.holdings import Holding, Holdings
from inference.worker.relay_link import RelayLink, relay_url
from relay.credit import CREDIT_BYTES, CREDIT_LIMIT_BYTES
from relay.frames import Frame, FrameType, decode_frames, encode_frame
from relay.messages import Lease, dispatch_frame, read_hello, read_result, read_status, reject_frame, welcome_frame
from relay.protocol import read_preamble
from relay.records import Hello, Welcome
from tests.inference.slice_builders import LAYER, N_EMBD, built_slice, random_rows
from tests.inference.worker.builders import BUILD, a_claim

WELCOME = Welcome(
    session=9, stream=0, ping_seconds=10, credit_bytes=CREDIT_BYTES, credit_limit_bytes=CREDIT_LIMIT_BYTES
)


class PlayedRelay:
    """Welcomes or rejects; keeps HELLOs and frames; `sockets` are the open connections."""

    def __init__(self) -> None:
        self.hellos: list[Hello] = []
        self.frames: list[Frame] = []
        self.sockets: list[ServerConnection] = []
        self.rejection: Frame | None = None
        self.changed = asyncio.Event()
        self.url = ""

    async def handle(self, socket: ServerConnection) -> None:
        _, rest = read_preamble(await socket.recv(decode=False))
        self.hellos.append(read_hello(decode_frames(rest)[0]))
        if self.rejection is not None:
            await socket.send(encode_frame(self.rejection))
            await socket.close(4401)
            return
        self.sockets.append(socket)
        await socket.send(encode_frame(welcome_frame(WELCOME)))
        with contextlib.suppress(ConnectionClosed):  # whatever its close code
            while True:
                message = await socket.recv(decode=False)
                self.frames += [frame._replace(body=bytes(frame.body)) for frame in decode_frames(message)]
                self.changed.set()
        self.sockets.remove(socket)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await asyncio.wait([asyncio.create_task(self.changed.wait())], timeout=0.02)

    def of(self, kind: FrameType) -> list[Frame]:
        return [frame for frame in self.frames if frame.type is kind]


@pytest.fixture
async def relay() -> AsyncIterator[PlayedRelay]:
    played = PlayedRelay()
    server: Server
    async with serve(played.handle, "127.0.0.1", 0) as server:
        played.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield played


@pytest.fixture
def holdings() -> Holdings:
    return Holdings()


@pytest.fixture
async def link(relay: PlayedRelay, holdings: Holdings) -> AsyncIterator[RelayLink]:
    link = RelayLink(relay.url, "phone", "numpy", holdings)
    yield link
    await link.close()


def a_holding(claim_id: int = 70, build: str = BUILD) -> Holding:
    claim = a_claim(claim_id=claim_id, build=build, fence=4, layer=LAYER, first=5, last=8)
    return Holding(claim, "ab" * 32, NumpyKernel(built_slice()))


async def trouble_of(link: RelayLink) -> WorkerError:
    """What `check` raises within a while."""
    async with asyncio.timeout(5):
        while True:
            try:
                link.check()
            except WorkerError as error:
                return error
            await asyncio.sleep(0.01)


def test_the_relays_address_follows_from_the_servers() -> None:
    assert relay_url("http://127.0.0.1:8000") == "ws://127.0.0.1:8000/relay/"
    assert relay_url("https://swarm.example/a") == "wss://swarm.example/a/relay/"


async def test_it_connects_when_there_is_something_to_serve(
    relay: PlayedRelay, link: RelayLink, holdings: Holdings
) -> None:
    link.update("token")
    await asyncio.sleep(0.1)
    early = len(relay.hellos)
    holdings.add(a_holding())
    link.update("token")
    await relay.until(lambda: bool(relay.of(FrameType.STATUS)))

    (hello,) = relay.hellos
    assert early == 0
    assert (hello.token, hello.build, hello.kernel_class, hello.name) == ("token", BUILD, "numpy", "phone")
    assert [replica.claim_id for replica in hello.replicas] == [70]
    assert [replica.claim_id for replica in read_status(relay.of(FrameType.STATUS)[0]).replicas] == [70]


async def test_it_answers_requests(relay: PlayedRelay, link: RelayLink, holdings: Holdings) -> None:
    holdings.add(a_holding())
    link.update("token")
    await relay.until(lambda: bool(relay.sockets))
    pairs = np.array([[0, 5], [1, 7]], np.uint16)
    request = dispatch_frame(
        layer=LAYER, session=9, request=1, lease=Lease(4, 70), pairs=pairs, rows=random_rows(2)
    )._replace(stream=3)

    await relay.sockets[0].send(encode_frame(request))
    await relay.until(lambda: bool(relay.of(FrameType.RESULT)))

    (result,) = relay.of(FrameType.RESULT)
    expected = NumpyKernel(built_slice()).compute(random_rows(2), np.array([5, 7], np.int32))
    assert result.stream == 3
    assert np.array_equal(read_result(result, 2, N_EMBD), expected)
    await relay.until(lambda: bool(relay.of(FrameType.CREDIT)))


async def test_new_slices_are_reported(relay: PlayedRelay, link: RelayLink, holdings: Holdings) -> None:
    holdings.add(a_holding(70))
    link.update("token")
    await relay.until(lambda: bool(relay.of(FrameType.STATUS)))

    holdings.add(a_holding(71))
    link.update("token")
    await relay.until(lambda: len(relay.of(FrameType.STATUS)) == 2)

    assert [replica.claim_id for replica in read_status(relay.of(FrameType.STATUS)[1]).replicas] == [70, 71]
    assert len(relay.hellos) == 1


async def test_it_hangs_up_when_nothing_is_left_to_serve(
    relay: PlayedRelay, link: RelayLink, holdings: Holdings
) -> None:
    holding = a_holding()
    holdings.add(holding)
    link.update("token")
    await relay.until(lambda: bool(relay.sockets))

    link.drop(holding)
    link.update("token")
    await relay.until(lambda: not relay.sockets)

    assert len(relay.hellos) == 1


@pytest.mark.parametrize(("token", "build"), [("other", BUILD), ("token", "cd" * 16)], ids=["token", "build"])
async def test_another_token_or_build_is_another_connection(
    relay: PlayedRelay, link: RelayLink, holdings: Holdings, token: str, build: str
) -> None:
    old = a_holding(70)
    holdings.add(old)
    link.update("token")
    await relay.until(lambda: bool(relay.sockets))

    link.drop(old)
    holdings.add(a_holding(71, build))
    link.update(token)
    await relay.until(lambda: len(relay.hellos) == 2)

    assert (relay.hellos[1].token, relay.hellos[1].build) == (token, build)


async def test_draining_is_told_before_the_end(relay: PlayedRelay, link: RelayLink, holdings: Holdings) -> None:
    holdings.add(a_holding())
    link.update("token")
    await relay.until(lambda: bool(relay.of(FrameType.STATUS)))

    await link.drain(1)
    await link.close()

    await relay.until(lambda: not relay.sockets)
    assert relay.frames[-1].type is FrameType.DRAIN


@pytest.mark.parametrize(
    ("code", "kind", "fatal"),
    [
        ("bad_token", UnknownToken, False),
        ("suspended", RelayRefused, False),
        ("build_mismatch", RelayRefused, False),
        ("replaced", RelayRefused, True),
        ("protocol_version", RelayRefused, True),
        ("wrong_role", RelayRefused, True),
    ],
)
async def test_a_refusal_is_told_once_and_a_later_update_tries_again(
    relay: PlayedRelay, link: RelayLink, holdings: Holdings, code: str, kind: type[Any], fatal: bool
) -> None:
    relay.rejection = reject_frame(code, "because of this")
    holdings.add(a_holding())
    link.update("token")

    error = await trouble_of(link)
    link.check()
    relay.rejection = None
    link.update("token")
    await relay.until(lambda: bool(relay.sockets))

    assert isinstance(error, kind)
    assert (error.code, error.fatal) == (code, fatal)
    assert len(relay.hellos) == 2


async def test_a_lost_connection_comes_back_by_itself(relay: PlayedRelay, link: RelayLink, holdings: Holdings) -> None:
    holdings.add(a_holding())
    link.update("token")
    await relay.until(lambda: bool(relay.sockets))

    await relay.sockets[0].close()
    await relay.until(lambda: len(relay.hellos) == 2)

    link.check()
