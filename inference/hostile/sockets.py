"""A thousand sockets that say nothing and three hundred that never stop, while somebody honest uses the server."""

import asyncio
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import httpx
from websockets.exceptions import WebSocketException

from inference.hostile import frames
from inference.hostile.relay_socket import Socket, dial, hello_fields, opened
from inference.hostile.tenants import SECONDS, Tenant
from inference.hostile.wire import ask, request_bytes
from relay.codes import CloseCode
from relay.errors import FrameError
from relay.frames import CHUNK_BYTES, FLAG_MORE, MESSAGE_BYTES, Frame, FrameType, Role, encode_frame
from relay.messages import credit_frame, ping_frame, status_frame

OPEN_AT_ONCE = 20
# Messages of one flooder's round; a relay closes most of them earlier.
ROUND_MESSAGES = 300
WORST_ANSWER_SECONDS = 30.0
SILENT_SECONDS = 20.0
PAUSE_SECONDS = 0.2
GONE = (OSError, TimeoutError, WebSocketException)
# 1006 of ours is none: the socket dropped without a word.
NO_CODE = "none"

Flood = Callable[[Socket, random.Random], Awaitable[None]]


@dataclass
class SocketFindings:
    """opened: sockets by kind; messages: sent by flooders; closes: code -> how often; answers: seconds of each honest
    request meanwhile; problems: why it is not ok."""

    opened: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    closes: Counter[str] = field(default_factory=Counter)
    answers: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def _sender(make: Callable[[random.Random, int], bytes]) -> Flood:
    async def flood(socket: Socket, dice: random.Random) -> None:
        for number in range(ROUND_MESSAGES):
            await socket.send(make(dice, number))

    return flood


def _junk(dice: random.Random, number: int) -> bytes:
    return frames.odd_message(dice, _VALID) or b"\0"


def _result(dice: random.Random, number: int) -> bytes:
    """Nobody asked for it, of a stream that may be somebody's."""
    return encode_frame(
        Frame(
            FrameType.RESULT, session=dice.randrange(99), request=number + 1, stream=dice.randrange(99), rows=1,
            pairs=1, body=dice.randbytes(4096),
        )
    )  # fmt: skip


def _open_chunks(dice: random.Random, number: int) -> bytes:
    """Bodies that begin and never end."""
    body = bytes(CHUNK_BYTES)
    return encode_frame(
        Frame(FrameType.RESULT, flags=FLAG_MORE, request=number + 1, stream=1, rows=1, pairs=1, body=body)
    )


def _reports(dice: random.Random, number: int) -> bytes:
    return encode_frame(status_frame({"replicas": [frames.REPLICA] * 200, "load": 1.0}))


async def _text(socket: Socket, dice: random.Random) -> None:
    for _ in range(ROUND_MESSAGES):
        await socket.send("{}")


async def _giants(socket: Socket, dice: random.Random) -> None:
    for _ in range(4):
        await socket.send(bytes(MESSAGE_BYTES + dice.choice((0, 1, 4 << 20))))


async def _pings_unread(socket: Socket, dice: random.Random) -> None:
    """Asks for answers and reads none of them."""
    ping = encode_frame(ping_frame(b"12345678"))
    for _ in range(ROUND_MESSAGES):
        await socket.send(ping * 500)


_VALID = frames.samples()
FLOODS: dict[str, Flood] = {
    "junk": _sender(_junk),
    "results": _sender(_result),
    "chunks": _sender(_open_chunks),
    "reports": _sender(_reports),
    "credit": _sender(lambda dice, number: encode_frame(credit_frame((1 << 32) - 1, stream=1))),
    "hellos": _sender(lambda dice, number: _VALID[0]),
    "pings": _pings_unread,
    "text": _text,
    "giants": _giants,
}
"""After WELCOME; of strangers, who have no token, before it."""


def use(port: int, token: str, seconds: float) -> list[tuple[int, float]]:
    """An honest device's heartbeats, one after another: status and seconds of each. For a process of its own: the one
    that floods has no time to measure."""
    beat = request_bytes("POST", "/api/heartbeat", {"Authorization": f"Bearer {token}"})
    stopping, answers = time.monotonic() + seconds, []
    while time.monotonic() < stopping:
        began = time.perf_counter()
        answer = asyncio.run(ask(port, beat, WORST_ANSWER_SECONDS))
        answers.append((answer.status, time.perf_counter() - began))
        time.sleep(PAUSE_SECONDS)
    return answers


class Crowd:
    """All sockets of one run against one server."""

    def __init__(self, port: int, url: str, build: str, honest: Tenant, seed: int) -> None:
        self._port, self._url, self._build, self._honest, self._seed = port, url, build, honest, seed
        self.found = SocketFindings()

    async def run(self, idle: int, flooding: int, seconds: float, done: Callable[[float], None]) -> SocketFindings:
        """Half of the idle ones never say who they are. Flooding ones come back for so many seconds."""
        tokens = await asyncio.to_thread(self._register, idle // 2 + flooding // 2)
        async with AsyncExitStack() as stack:
            silent = await self._open_idle(stack, tokens[: idle // 2], idle)
            stopping = time.monotonic() + seconds
            pool = stack.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn")))
            honest = asyncio.get_running_loop().run_in_executor(pool, use, self._port, self._honest.node_token, seconds)
            flooders = [
                asyncio.create_task(self._flood(number, token, stopping))
                for number, token in enumerate(self._flooders(tokens[idle // 2 :], flooding))
            ]
            while (left := stopping - time.monotonic()) > 0:
                done(1 - left / seconds)
                await asyncio.sleep(min(1.0, left))
            await asyncio.gather(*flooders)
            self._note_use(await honest)
            await self._expect_closed(silent)
        return self.found

    def _register(self, count: int) -> list[str]:
        with httpx.Client(base_url=self._url, timeout=SECONDS) as client:
            wish = {"name": "crowd", "kernel_class": "numpy"}
            made = [client.post("/api/nodes", json=wish) for _ in range(count)]
        refused = Counter(answer.status_code for answer in made if answer.status_code != 201)
        if refused:
            self.found.problems.append(f"devices were not registered: {dict(refused)}")
        return [answer.json()["token"] for answer in made if answer.status_code == 201]

    def _flooders(self, tokens: Sequence[str], count: int) -> list[str]:
        """Those with a token, and as many strangers as are still missing."""
        return [*tokens, *[""] * (count - len(tokens))][:count]

    async def _open_idle(self, stack: AsyncExitStack, tokens: Sequence[str], count: int) -> list[Socket]:
        """Opens all; the ones that stay silent."""
        turns, silent = asyncio.Semaphore(OPEN_AT_ONCE), []

        async def one(token: str | None) -> None:
            async with turns:
                try:
                    if token is None:
                        silent.append(await stack.enter_async_context(opened(self._port)))
                        self.found.opened["silent"] += 1
                        return
                    fields = hello_fields(token, self._build)
                    socket = await stack.enter_async_context(dial(self._port, Role.WORKER, fields))
                    kind = (await socket.frame()).type
                    self.found.opened["idle" if kind is FrameType.WELCOME else "refused"] += 1
                except GONE as error:
                    self.found.problems.append(f"an idle socket could not be opened: {error!r}")

        await asyncio.gather(*map(one, [*tokens, *[None] * (count - len(tokens))]))
        return silent

    async def _flood(self, number: int, token: str, stopping: float) -> None:
        """Connects, floods, is thrown out, connects again."""
        dice = random.Random(f"{self._seed}/flood/{number}")
        name = list(FLOODS)[number % len(FLOODS)]
        while time.monotonic() < stopping:
            try:
                async with asyncio.timeout(max(1.0, stopping - time.monotonic() + 1.0)):
                    await self._round(FLOODS[name], token, dice, name)
            except GONE:
                self.found.closes[NO_CODE] += 1
            except FrameError as error:
                self.found.problems.append(f"{name}: the relay's own bytes cannot be read: {error}")
                return
            await asyncio.sleep(PAUSE_SECONDS * dice.random())

    async def _round(self, flood: Flood, token: str, dice: random.Random, name: str) -> None:
        address = dial(self._port, Role.WORKER, hello_fields(token, self._build)) if token else opened(self._port)
        async with address as socket:
            self.found.opened[f"flooding with {name}"] += 1
            counted = _Counted(socket, self.found)
            try:
                if token:
                    await socket.frame()
                await flood(counted, dice)
            finally:
                code = await socket.closed(2.0)
                self.found.closes[NO_CODE if code is None else str(code)] += 1

    def _note_use(self, answers: Sequence[tuple[int, float]]) -> None:
        self.found.answers = [seconds for _, seconds in answers]
        wrong = Counter(status or "nothing" for status, _ in answers if status != 200)
        if wrong or not answers:
            self.found.problems.append(f"an honest device was answered {dict(wrong)} in the flood")

    async def _expect_closed(self, silent: Sequence[Socket]) -> None:
        """Whoever never says HELLO is put out."""
        codes = Counter(await asyncio.gather(*(socket.closed(SILENT_SECONDS) for socket in silent)))
        self.found.closes.update({f"silent {code}": count for code, count in codes.items()})
        stayed = len(silent) - codes[CloseCode.REJECTED]
        if stayed:
            self.found.problems.append(f"{stayed} of {len(silent)} silent sockets were not put out: {dict(codes)}")


class _Counted(Socket):
    """A socket whose messages are counted."""

    def __init__(self, socket: Socket, found: SocketFindings) -> None:
        super().__init__(socket.connection)
        self._found = found

    async def send(self, message: bytes | str) -> None:
        await super().send(message)
        self._found.messages += 1
