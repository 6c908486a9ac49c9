"""relay/backbone_link.py with stages: steps against a real relay and real clients in this process."""

import queue
from collections.abc import Iterator

import pytest

from relay.backbone_link import BackboneLink, SessionKey, Sessions
from relay.client import RelayClient
from relay.credit import STAGE_CREDIT_BYTES
from relay.errors import MessageError, Rejected
from relay.frames import Frame, FrameType, Role
from relay.messages import read_step, step_result_frame
from relay.work import Failed, StageAnswer, StageStep, StepOutcome
from tests.relay.builders import BUILD, STAGES, FakeMarket, hello_json, stage_hello_json
from tests.relay.dispatches import dispatch_of, rows
from tests.relay.live_relay import LiveRelay, ToyStage, ToyWorker, live_relay, refuse, wait_until

ROWS_BYTES = 512 * 3072 * 4
LARGE_BYTES = 512 * 8192 * 4


class Alice:
    """A backbone that sees workers and stages."""

    def __init__(self, url: str, stages: str = STAGES) -> None:
        self.seen: list[Sessions] = []
        self.outcomes: queue.Queue[StepOutcome] = queue.Queue()
        self.link = BackboneLink(
            [url], token="alice-token", build=BUILD, kernel_class="ggml", stages=stages, on_stages=self.seen.append
        )
        self.link.start()

    def meet(self) -> SessionKey:
        wait_until(lambda: self.link.stage_sessions)
        return next(iter(self.link.stage_sessions))

    def ask(self, key: SessionKey, message: bytes, claim_id: int = 9, answer_bytes: int = 1 << 20) -> int:
        step = StageStep(key, 1, claim_id, message, answer_bytes)
        return self.link.submit_step(step, self.outcomes.put)

    def answer(self) -> bytes:
        outcome = self.outcomes.get(timeout=20)
        assert isinstance(outcome, StageAnswer), outcome
        return outcome.message

    def failure(self) -> str:
        outcome = self.outcomes.get(timeout=20)
        assert isinstance(outcome, Failed)
        return outcome.code


@pytest.fixture
def relay() -> Iterator[LiveRelay]:
    with live_relay(FakeMarket()) as running:
        yield running


@pytest.fixture
def dora(relay: LiveRelay) -> Iterator[ToyStage]:
    stage = ToyStage(relay.url)
    yield stage
    stage.close()


@pytest.fixture
def alice(relay: LiveRelay, dora: ToyStage) -> Iterator[Alice]:
    backbone = Alice(relay.url)
    yield backbone
    backbone.link.stop()


def test_stages_and_workers_are_two_lists(relay: LiveRelay, alice: Alice) -> None:
    bob = ToyWorker(relay.url)
    stage = alice.meet()
    wait_until(lambda: alice.link.sessions)

    assert [one.node_id for one in alice.link.sessions.values()] == ["bob"]
    assert [one.node_id for one in alice.link.stage_sessions.values()] == ["dora"]
    assert alice.link.stage_sessions[stage].replicas[0].last == 4
    bob.close()


def test_the_callback_of_stages_is_called_for_stages_only(relay: LiveRelay, alice: Alice) -> None:
    alice.meet()
    bob = ToyWorker(relay.url)
    wait_until(lambda: alice.link.sessions)

    bob.close()

    wait_until(lambda: not alice.link.sessions)
    assert len(alice.seen) == 1


def test_steps_come_back_answered_in_their_order(alice: Alice) -> None:
    key = alice.meet()

    for number in range(20):
        alice.ask(key, b"step %d" % number)

    assert [alice.answer()[::-1] for _ in range(20)] == [b"step %d" % number for number in range(20)]


@pytest.mark.parametrize("size", [255, ROWS_BYTES, LARGE_BYTES])
def test_hidden_states_of_a_whole_prompt_fit_the_first_step(alice: Alice, size: int) -> None:
    message = bytes(range(1, 256)) * (size // 255) + b"end"
    key = alice.meet()

    for _ in range(3):
        alice.ask(key, message, answer_bytes=len(message))

        assert alice.answer() == message[::-1]


def test_an_answer_may_be_larger_than_the_windows(alice: Alice, dora: ToyStage) -> None:
    logits = bytes(2 * STAGE_CREDIT_BYTES)
    dora.answer = lambda frame: step_result_frame(frame, logits)

    alice.ask(alice.meet(), b"logits of many rows", answer_bytes=len(logits))

    assert alice.answer() == logits


def test_a_step_larger_than_the_credit_fails_at_once_and_nothing_is_sent(alice: Alice, dora: ToyStage) -> None:
    alice.ask(alice.meet(), bytes(STAGE_CREDIT_BYTES))

    assert alice.failure() == "no_credit"
    assert dora.frames == []


def test_a_message_that_is_too_short_fails_and_the_session_goes_on(alice: Alice) -> None:
    key = alice.meet()

    alice.ask(key, b"abc")
    refused = alice.failure()
    alice.ask(key, b"abcd")

    assert (refused, alice.answer()) == ("bad_body", b"dcba")


def test_an_answer_larger_than_was_asked_for_is_refused(alice: Alice, dora: ToyStage) -> None:
    dora.answer = lambda frame: step_result_frame(frame, bytes(100_000))

    alice.ask(alice.meet(), b"step", answer_bytes=50_000)

    assert alice.failure() == "bad_result"


def test_a_refusal_of_the_stage_and_one_of_the_relay_reach_the_asker(alice: Alice, dora: ToyStage) -> None:
    dora.answer = refuse("stale_fence")
    key = alice.meet()

    alice.ask(key, b"step")
    first = alice.failure()
    alice.ask(key, b"step", claim_id=8)

    assert (first, alice.failure()) == ("stale_fence", "not_leased")


def test_a_stage_that_is_gone_fails_what_it_was_asked(relay: LiveRelay, alice: Alice, dora: ToyStage) -> None:
    dora.answer = lambda frame: None
    key = alice.meet()
    alice.ask(key, b"step")
    wait_until(lambda: dora.frames)

    del relay.market.standings["dora-token"]
    dora.report(replicas=[])

    assert alice.failure() == "session_left"
    wait_until(lambda: key not in alice.link.stage_sessions)
    alice.ask(key, b"step")
    assert alice.failure() == "session_left"


def test_a_cancelled_step_reaches_the_stage_as_cancel(alice: Alice, dora: ToyStage) -> None:
    dora.answer = lambda frame: None
    request = alice.ask(alice.meet(), b"step")
    wait_until(lambda: dora.frames)

    alice.link.cancel([request])

    wait_until(lambda: dora.frames[-1].type is FrameType.CANCEL)
    assert dora.frames[-1].request == request
    assert alice.outcomes.empty()


def test_a_draining_stage_takes_no_new_steps(alice: Alice, dora: ToyStage) -> None:
    key = alice.meet()

    dora.send(Frame(FrameType.DRAIN))

    wait_until(lambda: not alice.link.stage_sessions)
    alice.ask(key, b"step")
    assert alice.failure() == "session_left"


def test_a_worker_cannot_be_sent_a_step_nor_a_stage_experts(relay: LiveRelay, alice: Alice, dora: ToyStage) -> None:
    bob = ToyWorker(relay.url)
    stage, worker = alice.meet(), wait_until(lambda: list(alice.link.sessions))[0]
    failures: queue.Queue[object] = queue.Queue()

    alice.ask(worker, b"step", claim_id=7)
    alice.link.submit(dispatch_of(stage, rows(1), layer=0, claim_id=9), failures.put)

    assert alice.failure() == "session_left"
    failed = failures.get(timeout=10)
    assert isinstance(failed, Failed)
    assert failed.code == "session_left"
    assert (bob.frames, dora.frames) == ([], [])
    bob.close()


def test_a_backbone_that_asks_for_no_stages_sees_none(relay: LiveRelay, dora: ToyStage) -> None:
    bob, other = ToyWorker(relay.url), Alice(relay.url, stages="")

    wait_until(lambda: other.link.sessions and dora.session)

    assert dict(other.link.stage_sessions) == {}
    other.link.stop()
    bob.close()


async def test_a_worker_s_token_is_no_stage_s_and_the_other_way_round(relay: LiveRelay) -> None:
    as_stage = RelayClient(relay.url, Role.STAGE, hello_json, lambda frame: None)
    as_worker = RelayClient(relay.url, Role.WORKER, stage_hello_json, lambda frame: None)

    codes = []
    for client in (as_stage, as_worker):
        with pytest.raises(Rejected) as caught:
            await client.run()
        codes.append(caught.value.code)

    assert codes == ["wrong_role", "wrong_role"]


def test_a_step_without_a_message_is_refused() -> None:
    frame = Frame(FrameType.STEP, request=1, rows=1, pairs=1, body=bytes(12))

    with pytest.raises(MessageError, match="empty"):
        read_step(frame)
