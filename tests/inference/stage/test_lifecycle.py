"""What a stage of the market does with requests of the relay: steps, refusals, and backbones that go."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from inference.errors import InferenceError
from inference.llama import ContextSettings
from inference.ring.steps import Close, Open, Opened, read_message, write_message
from inference.stage.joining import OpenedStage, parse
from inference.stage.lifecycle import STAGE_ANSWERS, forget
from inference.worker.holdings import Holding, Holdings
from inference.worker.market_client import Claim
from inference.worker.serve import ExpertService
from relay.frames import Frame, FrameType
from relay.messages import Lease, cancel_frame, read_refusal, step_frame
from tests.inference.models import DEMO_MODEL
from tests.inference.stage_chain import cut

CLAIM = Claim(9, "5" * 32, 0, 0, 4, 1, 100, "/a", "/b", 1, live=True, role="stage")
SETTINGS = ContextSettings(sequence_tokens=64, sequences=1, batch_tokens=8, threads=1, outputs=1)


class ToyStage:
    """Answers backwards; `fault` is raised instead."""

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.forgotten: list[int | None] = []

    def answer(self, data: bytes, asker: int) -> bytes:
        if self.fault is not None:
            raise self.fault
        return data[::-1] + bytes([asker])

    def forget(self, asker: int | None) -> None:
        self.forgotten.append(asker)

    def close(self) -> None:
        pass


class Outlet:
    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self.consumed_bytes = 0

    def send(self, frame: Frame) -> None:
        self.sent.append(frame)

    def consumed(self, frame: Frame) -> None:
        self.consumed_bytes += len(frame.body)


class Desk:
    def __init__(self) -> None:
        self.stage, self.outlet, self.holdings = ToyStage(), Outlet(), Holdings()
        self.holdings.add(Holding(CLAIM, "ab" * 32, self.stage))
        self.service = ExpertService(self.holdings, self.outlet, answers=STAGE_ANSWERS, on_gone=forget)

    async def asked(self, frame: Frame) -> Frame:
        self.service.receive(frame)
        assert await self.service.finish(5)
        return self.outlet.sent[-1]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    yield desk
    desk.service.close()


def step(message: bytes = b"step", *, claim_id: int = 9, fence: int = 1, request: int = 1) -> Frame:
    lease = Lease(fence, claim_id)
    frame = step_frame(layer=0, session=7, request=request, lease=lease, rows=3, step=message)
    return frame._replace(stream=5)


async def test_a_step_is_answered_to_where_it_came_from(desk: Desk) -> None:
    answer = await desk.asked(step())

    assert (answer.type, answer.request, answer.stream, answer.session) == (FrameType.RESULT, 1, 5, 7)
    assert bytes(answer.body) == b"pets\x05"
    assert desk.outlet.consumed_bytes == len(step().body)
    assert desk.service.counters.rows == 3


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (step(claim_id=8), "stale_fence"),
        (step(fence=2), "stale_fence"),
        (step()._replace(layer=3), "unknown_expert"),
        (step()._replace(body=bytes(5)), "bad_body"),
        (step(b""), "bad_body"),
    ],
)
async def test_a_step_outside_of_the_lease_is_refused(desk: Desk, frame: Frame, code: str) -> None:
    assert read_refusal(await desk.asked(frame)).code == code


async def test_experts_are_none_of_a_stage_s_business(desk: Desk) -> None:
    desk.service.receive(step()._replace(type=FrameType.DISPATCH))
    desk.service.receive(step()._replace(type=FrameType.CHALLENGE))

    assert (desk.service.waiting, desk.outlet.sent) == (0, [])


@pytest.mark.parametrize(("fault", "code"), [(InferenceError("no such ring"), "bad_body"), (MemoryError(), "internal")])
async def test_a_step_that_fails_fails_alone(desk: Desk, fault: Exception, code: str) -> None:
    desk.stage.fault = fault
    refused = await desk.asked(step())
    desk.stage.fault = None

    assert read_refusal(refused).code == code
    assert (await desk.asked(step(request=2))).type is FrameType.RESULT


async def test_rings_of_a_backbone_that_is_gone_are_forgotten_after_its_steps(desk: Desk) -> None:
    desk.service.receive(step())
    desk.service.receive(cancel_frame(0, session=7, stream=5))

    await desk.until(lambda: desk.stage.forgotten == [5])


async def test_without_the_relay_all_are_forgotten(desk: Desk) -> None:
    desk.service.abandon_all()

    await desk.until(lambda: desk.stage.forgotten == [None])


def test_contexts_of_who_is_gone_are_freed_and_those_of_others_stay(tmp_path: Path) -> None:
    stage = OpenedStage(cut(DEMO_MODEL, tmp_path, 2)[0], rings=3, gpu_layers=0)
    rings = [bytes([number]) * 16 for number in range(3)]
    for asker, ring in zip((1, 1, 2), rings, strict=True):
        opened = read_message(stage.answer(write_message(ring, 0, Open(SETTINGS)), asker)).body
        assert isinstance(opened, Opened)

    stage.answer(write_message(rings[0], 1, Close()), 1)
    stage.forget(1)
    left = stage._service.ring_count
    stage.forget(None)

    assert (left, stage._service.ring_count) == (1, 0)
    stage.close()


def test_the_command_line_is_a_worker_s_without_what_is_about_experts(capsys: pytest.CaptureFixture[str]) -> None:
    options, opener = parse(["--server", "http://swarm.example/", "--budget", "40GB", "--name", "Dora"])

    assert (options.server, options.budget_bytes, options.name) == ("http://swarm.example", 40 * 10**9, "Dora")
    assert opener.types is None
    with pytest.raises(SystemExit):
        parse(["--server", "http://swarm.example/", "--experts", "3"])
    assert "a stage holds layers" in capsys.readouterr().err
