"""relay/backbone_link.py against a real relay and real workers in this process."""

import queue
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from relay.backbone_link import BackboneLink, SessionKey, Sessions
from relay.credit import CREDIT_BYTES
from relay.frames import CHUNK_BYTES, Frame, FrameType
from relay.messages import result_frame
from relay.records import Json
from relay.work import Dispatch, Outcome, Result
from tests.relay.builders import BUILD, FakeMarket, replica_json
from tests.relay.dispatches import dispatch_of, rows
from tests.relay.live_relay import LiveRelay, ToyWorker, live_relay, refuse, wait_until


class Alice:
    """A backbone whose outcomes arrive in a queue."""

    def __init__(self, *urls: str, **fields: str) -> None:
        self.rosters: list[Sessions] = []
        self.outcomes: queue.Queue[Outcome] = queue.Queue()
        self.threads: set[str] = set()
        options = {"token": "alice-token", "build": BUILD, "kernel_class": "ggml", **fields}
        self.link = BackboneLink(urls, on_roster=self.rosters.append, **options)  # type: ignore[arg-type]
        self.link.start()

    def done(self, outcome: Outcome) -> None:
        self.threads.add(threading.current_thread().name)
        self.outcomes.put(outcome)

    def meet(self, count: int = 1) -> list[SessionKey]:
        wait_until(lambda: len(self.link.sessions) == count)
        return list(self.link.sessions)

    def ask(self, key: object, values: np.ndarray, **fields: object) -> int:
        return self.link.submit(dispatch_of(key, values, **fields), self.done)

    def outcome(self) -> Outcome:
        return self.outcomes.get(timeout=10)

    def failure(self) -> str:
        outcome = self.outcome()
        assert not isinstance(outcome, Result)
        assert outcome.message
        return outcome.code


@pytest.fixture
def relay() -> Iterator[LiveRelay]:
    with live_relay(FakeMarket()) as running:
        yield running


@pytest.fixture
def bob(relay: LiveRelay) -> Iterator[ToyWorker]:
    worker = ToyWorker(relay.url)
    yield worker
    worker.close()


@pytest.fixture
def alice(relay: LiveRelay, bob: ToyWorker) -> Iterator[Alice]:
    backbone = Alice(relay.url)
    yield backbone
    backbone.link.stop()


def test_it_sees_the_worker_with_its_leased_replicas(alice: Alice) -> None:
    (key,) = alice.meet()
    session = alice.link.sessions[key]

    assert (session.node_id, session.name, session.kernel_class) == ("bob", "Bob", "numpy")
    assert [(replica.claim_id, replica.state) for replica in session.replicas] == [(7, "live")]
    assert alice.rosters[-1] is alice.link.sessions
    with pytest.raises(TypeError):
        alice.link.sessions[key] = session  # type: ignore[index]


def test_a_request_comes_back_computed_in_the_link_s_thread(alice: Alice) -> None:
    (key,) = alice.meet()
    values = rows(5)

    alice.ask(key, values)
    outcome = alice.outcome()

    assert isinstance(outcome, Result)
    assert np.array_equal(outcome.values, 2 * values)
    assert alice.threads == {"relay-link"}


def test_a_challenge_travels_as_a_challenge(alice: Alice, bob: ToyWorker) -> None:
    (key,) = alice.meet()

    alice.ask(key, rows(2), kind="challenge")

    assert isinstance(alice.outcome(), Result)
    assert bob.frames[-1].type is FrameType.CHALLENGE


def test_rows_of_q8_blocks_travel_as_they_are(alice: Alice, bob: ToyWorker) -> None:
    (key,) = alice.meet()
    blocks = np.arange(3 * 520, dtype=np.uint8).reshape(3, 520)

    alice.ask(key, blocks, row_dtype=1)
    outcome = alice.outcome()

    assert isinstance(outcome, Result)
    assert outcome.values.shape == (3, 512)
    assert bytes(bob.frames[-1].body).endswith(blocks.tobytes())


def test_many_requests_at_once_each_come_back_once(alice: Alice) -> None:
    (key,) = alice.meet()
    inputs = {count: rows(count) for count in range(1, 65)}
    answers: queue.Queue[tuple[int, Outcome]] = queue.Queue()

    def keep(count: int) -> None:
        wanted.append((dispatch_of(key, inputs[count]), lambda outcome: answers.put((count, outcome))))

    wanted: list[tuple[Dispatch, object]] = []
    for count in inputs:
        keep(count)
    ids = alice.link.submit_many(wanted)  # type: ignore[arg-type]
    got = dict(answers.get(timeout=10) for _ in inputs)

    assert len(set(ids)) == 64
    assert set(got) == set(inputs)
    for count, outcome in got.items():
        assert isinstance(outcome, Result)
        assert np.array_equal(outcome.values, 2 * inputs[count])
    assert alice.link.counters["results"] == 64


@pytest.mark.parametrize("width", [CHUNK_BYTES // 4 - 8, CHUNK_BYTES // 4, CHUNK_BYTES // 4 + 1, 200_000])
def test_bodies_around_and_above_one_chunk_survive_both_directions(alice: Alice, width: int) -> None:
    (key,) = alice.meet()
    values = rows(1, width)

    alice.ask(key, values)
    outcome = alice.outcome()

    assert isinstance(outcome, Result)
    assert np.array_equal(outcome.values, 2 * values)


def test_an_answer_far_above_the_window_arrives_as_credit_comes_back(alice: Alice, bob: ToyWorker) -> None:
    (key,) = alice.meet()
    values = rows(1, 50_000)
    pairs = np.zeros((60, 2), np.uint16)

    alice.ask(key, values, pairs=pairs)
    outcome = alice.outcome()

    assert isinstance(outcome, Result)
    assert outcome.values.nbytes > 10 * CREDIT_BYTES
    assert np.array_equal(outcome.values, np.repeat(2 * values, 60, axis=0))


def test_a_steady_stream_far_above_the_window_never_runs_out_of_credit(alice: Alice) -> None:
    (key,) = alice.meet()
    values = rows(100, 1_000)

    for _ in range(30):
        alice.ask(key, values)
        assert isinstance(alice.outcome(), Result)

    assert alice.link.counters["sent_bytes"] > 10 * CREDIT_BYTES
    assert alice.link.counters["failed_no_credit"] == 0


def test_a_worker_that_takes_nothing_costs_no_waiting(alice: Alice, bob: ToyWorker) -> None:
    (key,) = alice.meet()
    bob.consumes = False
    bob.answer = lambda frame: None
    values = rows(100, 1_000)

    for _ in range(4):
        alice.ask(key, values)

    assert [alice.failure() for _ in range(2)] == ["no_credit"] * 2
    assert alice.outcomes.empty()


@pytest.mark.parametrize("code", ["stale_fence", "unknown_expert", "bad_body", "overloaded", "internal"])
def test_an_error_of_the_worker_is_the_outcome(alice: Alice, bob: ToyWorker, code: str) -> None:
    (key,) = alice.meet()
    bob.answer = refuse(code)

    alice.ask(key, rows(1))

    assert alice.failure() == code


@pytest.mark.parametrize("wrong", [{"claim_id": 8}, {"layer": 4}])
def test_a_request_outside_the_lease_fails_at_the_relay_and_gives_its_credit_back(alice: Alice, wrong: Json) -> None:
    (key,) = alice.meet()
    values = rows(100, 1_000)

    for _ in range(10):
        alice.ask(key, values, **wrong)
        assert alice.failure() == "not_leased"
    alice.ask(key, values)

    assert isinstance(alice.outcome(), Result)


@pytest.mark.parametrize(
    "values",
    [np.zeros((1, 0), np.float32), np.zeros((0, 4), np.float32), np.zeros((1, 100), np.uint8), rows(0xFFFF + 1, 1)],
)
def test_arrays_that_do_not_fit_the_wire_fail_at_once(alice: Alice, values: np.ndarray) -> None:
    (key,) = alice.meet()

    alice.ask(key, values, row_dtype=int(values.dtype == np.uint8))

    assert alice.failure() == "bad_body"


def test_a_session_that_nobody_knows_fails_at_once(alice: Alice) -> None:
    for key in (SessionKey(0, 1), SessionKey(9, 1), "nobody"):
        alice.ask(key, rows(1))
        assert alice.failure() == "session_left"


@pytest.mark.parametrize("shape", [(2, 16), (3, 15), (3, 17), (4, 16)])
def test_an_answer_of_another_shape_is_a_bad_result(alice: Alice, bob: ToyWorker, shape: tuple[int, int]) -> None:
    (key,) = alice.meet()
    bob.answer = lambda frame: result_frame(frame, np.zeros(shape, np.float32))

    alice.ask(key, rows(3))

    assert alice.failure() == "bad_result"


def test_a_worker_that_leaves_fails_its_requests_at_once(alice: Alice, bob: ToyWorker) -> None:
    (key,) = alice.meet()
    bob.answer = lambda frame: None
    for _ in range(3):
        alice.ask(key, rows(2))
    wait_until(lambda: len(bob.frames) == 3)

    bob.close()

    assert [alice.failure() for _ in range(3)] == ["session_left"] * 3
    wait_until(lambda: not alice.link.sessions)
    bob.close = lambda: None  # type: ignore[method-assign]


def test_a_worker_that_drains_gets_nothing_new_and_finishes_the_rest(alice: Alice, bob: ToyWorker) -> None:
    (key,) = alice.meet()
    bob.answer = lambda frame: None
    alice.ask(key, rows(2))
    asked = wait_until(lambda: bob.frames)[0]

    bob.send(Frame(FrameType.DRAIN))
    wait_until(lambda: not alice.link.sessions)
    alice.ask(key, rows(2))
    assert alice.failure() == "session_left"
    bob.send(result_frame(asked, np.ones((2, 16), np.float32)))

    assert isinstance(alice.outcome(), Result)


def test_a_cancelled_request_is_silent_and_its_late_answer_is_counted(alice: Alice, bob: ToyWorker) -> None:
    (key,) = alice.meet()
    bob.answer = lambda frame: None
    number = alice.ask(key, rows(2))
    asked = wait_until(lambda: bob.frames)[0]

    alice.link.cancel([number])
    cancel = wait_until(lambda: [frame for frame in bob.frames if frame.type is FrameType.CANCEL])[0]
    bob.send(result_frame(asked, np.ones((2, 16), np.float32)))
    wait_until(lambda: alice.link.counters["late"])
    alice.link.cancel([number, 12345])
    alice.link.cancel([])

    assert cancel.request == number
    assert alice.outcomes.empty()
    assert alice.link.counters["cancelled"] == 1


def test_one_worker_cannot_answer_for_another(alice: Alice, bob: ToyWorker, relay: LiveRelay) -> None:
    carol = ToyWorker(relay.url, token="carol-token", replicas=[])
    keys = alice.meet(2)
    key = next(key for key in keys if alice.link.sessions[key].node_id == "bob")
    bob.answer = lambda frame: None
    alice.ask(key, rows(2))
    asked = wait_until(lambda: bob.frames)[0]

    carol.client._session._peer(asked.stream)  # type: ignore[union-attr]
    carol.send(result_frame(asked._replace(session=carol.session), np.ones((2, 16), np.float32)))
    wait_until(lambda: alice.link.counters["unasked"])

    assert alice.outcomes.empty()
    carol.close()


def test_a_worker_that_sends_what_nobody_asked_for_runs_out_of_credit(
    alice: Alice, bob: ToyWorker, relay: LiveRelay
) -> None:
    (key,) = alice.meet()
    alice.ask(key, rows(1))
    assert isinstance(alice.outcome(), Result)
    session, asked = bob.session, bob.frames[0]

    for number in range(100, 120):
        bob.send(result_frame(asked._replace(request=number), np.zeros((100, 1_000), np.float32)))
    wait_until(lambda: alice.link.counters["received_bytes"] > CREDIT_BYTES // 2)

    assert bob.session == session
    assert alice.link.counters["received_bytes"] <= CREDIT_BYTES + 64
    assert alice.link.counters["late"] == 0


def test_a_relay_that_goes_away_fails_everything_and_is_found_again(
    alice: Alice, bob: ToyWorker, relay: LiveRelay
) -> None:
    (key,) = alice.meet()
    bob.answer = lambda frame: None
    alice.ask(key, rows(2))
    wait_until(lambda: bob.frames)

    relay.stop()
    assert alice.failure() in {"relay_lost", "session_left"}
    wait_until(lambda: not alice.link.sessions)
    relay.start()

    assert alice.meet() != [key]


def test_two_relays_give_one_roster_and_the_loss_of_one_leaves_the_other(relay: LiveRelay, bob: ToyWorker) -> None:
    with live_relay(FakeMarket()) as other:
        carol = ToyWorker(other.url, token="carol-token", replicas=[])
        alice = Alice(relay.url, other.url)
        keys = alice.meet(2)

        other.stop()
        (left,) = alice.meet(1)

        assert {key.relay for key in keys} == {0, 1}
        assert left.relay == 0
        alice.ask(left, rows(1))
        assert isinstance(alice.outcome(), Result)
        alice.link.stop()
        carol.close()


def test_a_wrong_credential_is_reported_and_the_link_keeps_answering(relay: LiveRelay) -> None:
    alice = Alice(relay.url, token="bob-token")

    rejected = wait_until(lambda: alice.link.rejected)
    alice.ask(SessionKey(0, 1), rows(1))

    assert rejected.code == "wrong_role"
    assert alice.failure() == "session_left"
    alice.link.stop()


def test_a_stopped_link_fails_what_is_pending_and_whatever_comes_later(alice: Alice, bob: ToyWorker) -> None:
    (key,) = alice.meet()
    bob.answer = lambda frame: None
    alice.ask(key, rows(1))
    wait_until(lambda: bob.frames)

    alice.link.stop()
    alice.ask(key, rows(1))

    assert alice.failure() in {"relay_lost", "stopped"}
    assert alice.failure() == "session_left"


def test_a_link_that_was_never_started_fails_what_it_got() -> None:
    link = BackboneLink(["ws://127.0.0.1:1/"], token="t", build=BUILD, kernel_class="k")
    outcomes: list[Outcome] = []
    link.submit(dispatch_of(SessionKey(0, 1), rows(1)), outcomes.append)

    link.stop()

    assert len(outcomes) == 1


def test_a_callback_that_fails_does_not_stop_the_link(alice: Alice, caplog: pytest.LogCaptureFixture) -> None:
    (key,) = alice.meet()

    def broken(outcome: Outcome) -> None:
        raise ZeroDivisionError

    alice.link.submit(dispatch_of(key, rows(1)), broken)
    alice.ask(key, rows(1))

    assert isinstance(alice.outcome(), Result)
    assert "a callback failed" in caplog.text


def test_many_threads_may_submit_at_once(alice: Alice) -> None:
    (key,) = alice.meet()

    def lane() -> None:
        for _ in range(50):
            alice.ask(key, rows(3))

    lanes = [threading.Thread(target=lane) for _ in range(4)]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join()

    assert all(isinstance(alice.outcome(), Result) for _ in range(200))


def test_relays_may_come_and_go_while_requests_run(relay: LiveRelay, bob: ToyWorker) -> None:
    market = FakeMarket()
    with live_relay(market) as second:
        carol = ToyWorker(second.url, token="carol-token", replicas=[replica_json(claim_id=8)])
        alice = Alice()
        alice.link.set_relays([relay.url])
        alice.meet(1)
        alice.link.set_relays([relay.url, second.url])
        first_key, second_key = sorted(alice.meet(2))
        carol.answer = lambda frame: None
        alice.ask(second_key, rows(1), claim_id=8)
        wait_until(lambda: carol.frames)

        alice.link.set_relays([relay.url])
        failure = alice.failure()
        alice.ask(first_key, rows(2))

        assert failure == "relay_lost"
        assert isinstance(alice.outcome(), Result)
        assert list(alice.link.sessions) == [first_key]
        assert alice.link.relay_urls == (relay.url,)
        wait_until(lambda: not second.roster.backbones)
        alice.link.stop()
        carol.close()


def test_a_relay_that_comes_back_has_a_new_number(relay: LiveRelay, bob: ToyWorker, alice: Alice) -> None:
    (before,) = alice.meet()
    alice.link.set_relays([])
    wait_until(lambda: not alice.link.sessions)

    alice.link.set_relays([relay.url, relay.url])
    (after,) = alice.meet()

    assert before.relay != after.relay
    assert alice.link.relays_connected == [True]


def test_two_backbones_share_one_worker(relay: LiveRelay, bob: ToyWorker, alice: Alice) -> None:
    other = Alice(relay.url)
    (key,), (same,) = alice.meet(), other.meet()

    for number in range(20):
        alice.ask(key, rows(number + 1))
        other.ask(same, rows(number + 21))

    for backbone, first in ((alice, 1), (other, 21)):
        sizes = sorted(len(outcome.values) for outcome in (backbone.outcome() for _ in range(20)))  # type: ignore[union-attr]
        assert sizes == list(range(first, first + 20))
    other.link.stop()
