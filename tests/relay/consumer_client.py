"""A client at the relay's consumer, through Channels' communicator, with a market that the test owns."""

from collections import deque
from collections.abc import Callable
from typing import Any

from channels.testing import WebsocketCommunicator

from relay.frames import Frame, FrameType, Role, decode_frames, encode_frame, take_message
from relay.messages import LEASE, hello_frame, pong_frame, read_refusal, read_welcome
from relay.records import Json, Welcome
from tests.relay.builders import hello_json


class Client:
    """One end of a communicator that answers PINGs by itself and keeps frames that nobody waited for yet."""

    def __init__(self, application: Any) -> None:
        self.socket = WebsocketCommunicator(application, "/relay/")
        self.welcome: Welcome | None = None
        self.answers_pings = True
        self._frames: list[Frame] = []

    async def open(self) -> None:
        assert await self.socket.connect() == (True, None)

    async def send(self, *frames: Frame) -> None:
        queue = deque(map(encode_frame, frames))
        while (message := take_message(queue)) is not None:
            await self.socket.send_to(bytes_data=message)

    async def hello(self, role: Role, **fields: object) -> None:
        await self.socket.send_to(bytes_data=bytes([role]) + encode_frame(hello_frame(hello_json(**fields))))

    async def join(self, role: Role, **fields: object) -> Welcome:
        await self.open()
        await self.hello(role, **fields)
        self.welcome = read_welcome(await self.next(FrameType.WELCOME))
        return self.welcome

    async def event(self, timeout: float = 2) -> Json:
        event: Json = await self.socket.receive_output(timeout)
        return event

    async def next(self, *kinds: FrameType) -> Frame:
        """The next frame of one of these kinds; others are kept."""
        while True:
            for index, frame in enumerate(self._frames):
                if frame.type in kinds:
                    return self._frames.pop(index)
            event = await self.event()
            assert event["type"] == "websocket.send", event
            await self._keep(decode_frames(event["bytes"]))

    async def _keep(self, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.type is FrameType.PING and self.answers_pings:
                await self.send(pong_frame(frame))
            else:
                self._frames.append(frame)

    async def closed(self) -> tuple[int, list[Frame]]:
        """The close code, and the frames before it."""
        while True:
            event = await self.event()
            if event["type"] == "websocket.close":
                return event["code"], self._frames
            await self._keep(decode_frames(event["bytes"]))

    async def rejected(self) -> tuple[int, str]:
        code, frames = await self.closed()
        (reject,) = [frame for frame in frames if frame.type is FrameType.REJECT]
        assert len(read_refusal(reject).message) > 15
        return code, read_refusal(reject).code

    async def leave(self) -> None:
        await self.socket.disconnect()


Dial = Callable[..., Client]

ALICE: dict[str, object] = {"token": "alice-token", "replicas": []}


def dispatch(session: int, *, request: int = 1, claim_id: int = 7, body_bytes: int = 100) -> Frame:
    body = LEASE.pack(1, claim_id) + bytes(body_bytes - LEASE.size)
    return Frame(FrameType.DISPATCH, layer=3, session=session, request=request, rows=1, pairs=1, body=body)


def result(stream: int, body_bytes: int = 100) -> Frame:
    return Frame(FrameType.RESULT, request=1, stream=stream, rows=1, pairs=1, body=bytes(body_bytes))
