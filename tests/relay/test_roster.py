"""relay/roster.py: routing, leases, credit and the roster that backbones see, without any socket."""

import pytest

from relay.codes import CloseCode, RejectCode
from relay.credit import CREDIT_BYTES, CREDIT_LIMIT_BYTES, STAGE_CREDIT_BYTES, STAGE_CREDIT_LIMIT_BYTES, cost
from relay.errors import CreditExceeded, ProtocolViolation
from relay.frames import CHUNK_BYTES, FLAG_MORE, FLAG_RELAY, Body, Frame, FrameType, Role, encode_frame
from relay.messages import LEASE, Lease, credit_frame, read_credit, read_refusal, read_roster, step_frame
from relay.records import RosterChange
from relay.roster import MAX_OPEN_REQUESTS, Backbone, Roster, Worker
from tests.relay.builders import BUILD, STAGES, replica


class FakeLink:
    """A client that reads at once, unless a test says otherwise."""

    def __init__(self) -> None:
        self.read_bytes = 1 << 30
        self.unread_bytes = 0
        self.probes = 0
        self.frames: list[Frame] = []
        self.passed: list[bytes] = []
        self.counted = 0
        self.ended: tuple[CloseCode, RejectCode | None] | None = None

    def push(self, frame: Frame, *, counted: bool = False) -> None:
        self.frames.append(frame)
        self.counted += counted

    def pass_on(self, frames: Body, message: bytes) -> None:
        assert len(frames) <= len(message)
        self.passed.append(bytes(frames))

    def end(self, code: CloseCode, message: str, reject: RejectCode | None = None) -> None:
        assert message
        self.ended = (code, reject)

    def probe(self) -> None:
        self.probes += 1

    def take(self, kind: FrameType) -> list[Frame]:
        taken = [frame for frame in self.frames if frame.type is kind]
        self.frames = [frame for frame in self.frames if frame.type is not kind]
        return taken

    def changes(self) -> list[RosterChange]:
        return [read_roster(frame) for frame in self.take(FrameType.ROSTER)]


class Swarm:
    """A roster with backbones and workers that join on request."""

    def __init__(self) -> None:
        self.roster = Roster()

    def backbone(self, build: str = BUILD, stages: str = "") -> tuple[int, FakeLink]:
        link, stream = FakeLink(), self.roster.new_number()
        self.roster.join_backbone(Backbone(stream, build, link, stages))
        return stream, link

    def stage(self, node_id: str = "dora", build: str = STAGES) -> tuple[int, FakeLink]:
        link, session = FakeLink(), self.roster.new_number()
        held = (replica(claim_id=9, layer=0, last=4),)
        self.roster.join_worker(Worker(session, node_id, "Dora", build, "ggml", {}, link, held, role=Role.STAGE))
        return session, link

    def worker(self, node_id: str = "bob", build: str = BUILD) -> tuple[int, FakeLink]:
        link, session = FakeLink(), self.roster.new_number()
        self.roster.join_worker(Worker(session, node_id, "Bob", build, "numpy", {}, link, (replica(),)))
        return session, link


@pytest.fixture
def swarm() -> Swarm:
    return Swarm()


def dispatch(session: int, *, claim_id: int = 7, layer: int = 3, request: int = 1, size: int = 100) -> Frame:
    body = LEASE.pack(1, claim_id) + bytes(size - LEASE.size)
    return Frame(FrameType.DISPATCH, layer=layer, session=session, request=request, rows=1, pairs=1, body=body)


def result(stream: int, size: int = 100) -> Frame:
    return Frame(FrameType.RESULT, session=999, request=1, stream=stream, rows=1, pairs=1, body=bytes(size))


def test_a_backbone_sees_who_is_here_then_who_joins_changes_and_leaves(swarm: Swarm) -> None:
    first, _ = swarm.worker("bob")
    _, link = swarm.backbone()
    second, _ = swarm.worker("carol")
    swarm.roster.set_replicas(second, ())
    swarm.roster.set_replicas(second, ())
    swarm.roster.leave_worker(first)
    swarm.roster.leave_worker(first)

    changes = link.changes()

    assert [(change.full, [s.session for s in change.joined], change.left) for change in changes] == [
        (True, [first], ()),
        (False, [second], ()),
        (False, [second], ()),
        (False, [], (first,)),
    ]
    assert changes[0].joined[0].replicas == (replica(),)
    assert changes[2].joined[0].replicas == ()


def test_a_backbone_sees_only_workers_of_its_build(swarm: Swarm) -> None:
    session, worker_link = swarm.worker(build="other")
    stream, link = swarm.backbone()

    swarm.roster.to_worker(stream, [dispatch(session)])
    swarm.roster.to_backbone(session, [result(stream)])

    assert [change.joined for change in link.changes()] == [()]
    assert read_refusal(link.frames[0]).code == "no_session"
    assert worker_link.frames == []


def step(session: int, *, claim_id: int = 9, size: int = 100) -> Frame:
    return step_frame(layer=0, session=session, request=1, lease=Lease(1, claim_id), rows=1, step=bytes(size))


def test_a_backbone_sees_the_stages_that_it_asked_for_beside_its_workers(swarm: Swarm) -> None:
    worker, _ = swarm.worker()
    stage, _ = swarm.stage()
    swarm.stage("erin", "another build")
    _, link = swarm.backbone(stages=STAGES)
    _, without = swarm.backbone()
    later, _ = swarm.stage("frank")
    swarm.roster.leave_worker(stage)

    changes = link.changes()

    assert [{one.session: one.role for one in change.joined} for change in changes] == [
        {worker: "worker", stage: "stage"},
        {later: "stage"},
        {},
    ]
    assert changes[-1].left == (stage,)
    assert [[one.session for one in change.joined] for change in without.changes()] == [[worker]]


def test_a_stage_gets_steps_and_a_worker_never_does(swarm: Swarm) -> None:
    worker, worker_link = swarm.worker()
    stage, stage_link = swarm.stage()
    stream, link = swarm.backbone(stages=STAGES)

    swarm.roster.to_worker(stream, [step(stage)])
    swarm.roster.to_worker(stream, [step(worker, claim_id=7)])
    swarm.roster.to_worker(stream, [dispatch(stage, claim_id=9, layer=0)])
    swarm.roster.to_worker(stream, [dispatch(stage, claim_id=9, layer=0)._replace(type=FrameType.CHALLENGE)])

    assert [frame.type for frame in stage_link.frames] == [FrameType.STEP]
    assert worker_link.frames == []
    assert [read_refusal(frame).code for frame in link.take(FrameType.ERROR)] == ["wrong_role"] * 3
    assert sum(map(read_credit, link.take(FrameType.CREDIT))) == cost(step(worker)) + 2 * cost(dispatch(stage))


def test_a_step_needs_the_lease_that_it_names(swarm: Swarm) -> None:
    stage, stage_link = swarm.stage()
    stream, link = swarm.backbone(stages=STAGES)

    swarm.roster.to_worker(stream, [step(stage, claim_id=8)])
    swarm.roster.set_replicas(stage, ())
    swarm.roster.to_worker(stream, [step(stage)])

    assert [read_refusal(frame).code for frame in link.take(FrameType.ERROR)] == ["not_leased"] * 2
    assert stage_link.frames == []


def test_a_backbone_that_asked_for_no_stages_reaches_none(swarm: Swarm) -> None:
    stage, stage_link = swarm.stage()
    stream, link = swarm.backbone()

    swarm.roster.to_worker(stream, [step(stage)])

    assert read_refusal(link.take(FrameType.ERROR)[0]).code == "no_session"
    assert stage_link.frames == []


def test_windows_of_a_stage_are_larger_and_end_where_they_end(swarm: Swarm) -> None:
    stage, _ = swarm.stage()
    worker, _ = swarm.worker()
    stream, _ = swarm.backbone(stages=STAGES)
    chunk = step(stage, size=CHUNK_BYTES - LEASE.size)
    count = STAGE_CREDIT_BYTES // cost(chunk)

    for _ in range(count):
        swarm.roster.to_worker(stream, [chunk])
        swarm.roster.to_backbone(stage, [result(stream, CHUNK_BYTES)])

    with pytest.raises(CreditExceeded):
        swarm.roster.to_worker(stream, [chunk])
    with pytest.raises(CreditExceeded):
        swarm.roster.to_backbone(stage, [result(stream, CHUNK_BYTES)])
    swarm.roster.grant_by_worker(stage, credit_frame(STAGE_CREDIT_LIMIT_BYTES - STAGE_CREDIT_BYTES, stream=stream))
    with pytest.raises(CreditExceeded, match=str(STAGE_CREDIT_LIMIT_BYTES)):
        swarm.roster.grant_by_worker(stage, credit_frame(STAGE_CREDIT_LIMIT_BYTES, stream=stream))
    swarm.roster.to_worker(stream, [dispatch(worker)])
    with pytest.raises(CreditExceeded, match=str(CREDIT_LIMIT_BYTES)):
        swarm.roster.grant_by_worker(worker, credit_frame(CREDIT_LIMIT_BYTES, stream=stream))


def test_it_routes_there_and_back_with_both_numbers_stamped(swarm: Swarm) -> None:
    session, worker_link = swarm.worker()
    stream, link = swarm.backbone()

    swarm.roster.to_worker(stream, [dispatch(session)._replace(stream=12345)])
    swarm.roster.to_worker(stream, [Frame(FrameType.CANCEL, session=session, request=1)])
    swarm.roster.to_backbone(session, [result(stream)])

    assert [(frame.type, frame.session, frame.stream) for frame in worker_link.frames] == [
        (FrameType.DISPATCH, session, stream),
        (FrameType.CANCEL, session, stream),
    ]
    assert [(frame.session, frame.stream) for frame in link.take(FrameType.RESULT)] == [(session, stream)]
    assert (worker_link.counted, link.counted) == (1, 1)


def test_frames_that_say_the_right_numbers_go_on_as_they_came(swarm: Swarm) -> None:
    session, worker_link = swarm.worker()
    stream, link = swarm.backbone()
    requests = [dispatch(session, request=request)._replace(stream=stream) for request in (1, 2)]
    answer = result(stream)._replace(session=session)
    there, back = b"".join(map(encode_frame, requests)), encode_frame(answer)

    swarm.roster.to_worker(stream, requests, (there, there))
    swarm.roster.to_backbone(session, [answer], (back, back))

    assert worker_link.passed == [there]
    assert link.passed == [back]
    assert (worker_link.frames, link.take(FrameType.RESULT)) == ([], [])
    assert swarm.roster.counters["frames_to_workers"] == 2
    assert swarm.roster.counters["bytes_to_workers"] == len(there)


@pytest.mark.parametrize("wrong", [{"claim_id": 8}, {"layer": 4}])
def test_what_may_not_pass_is_taken_out_of_frames_that_came_together(swarm: Swarm, wrong: dict[str, int]) -> None:
    session, worker_link = swarm.worker()
    stream, link = swarm.backbone()
    requests = [dispatch(session, request=1), dispatch(session, request=2, **wrong), dispatch(session, request=3)]
    requests = [request._replace(stream=stream) for request in requests]
    message = b"".join(map(encode_frame, requests))

    swarm.roster.to_worker(stream, requests, (message, message))

    assert worker_link.passed == []
    assert [frame.request for frame in worker_link.frames] == [1, 3]
    assert [read_refusal(frame).code for frame in link.take(FrameType.ERROR)] == ["not_leased"]


def test_frames_with_another_number_are_stamped_even_where_they_came_together(swarm: Swarm) -> None:
    session, worker_link = swarm.worker()
    stream, link = swarm.backbone()
    request, answer = dispatch(session), result(stream)

    swarm.roster.to_worker(stream, [request, request], (b"x", b"x"))
    swarm.roster.to_backbone(session, [answer], (b"x", b"x"))

    assert [frame.stream for frame in worker_link.frames] == [stream, stream]
    assert [frame.session for frame in link.take(FrameType.RESULT)] == [session]
    assert (worker_link.passed, link.passed) == ([], [])


def test_a_second_session_of_a_node_replaces_the_first_visibly(swarm: Swarm) -> None:
    _, backbone_link = swarm.backbone()
    first, first_link = swarm.worker("bob")
    second, second_link = swarm.worker("bob")

    swarm.roster.leave_worker(first)

    assert first_link.ended == (CloseCode.REPLACED, RejectCode.REPLACED)
    assert second_link.ended is None
    assert list(swarm.roster.workers) == [second]
    assert [(c.left, [s.session for s in c.joined]) for c in backbone_link.changes()][1:] == [
        ((), [first]),
        ((first,), []),
        ((), [second]),
    ]


@pytest.mark.parametrize("wrong", [{"claim_id": 8}, {"layer": 4}])
def test_a_request_outside_the_lease_is_answered_by_the_relay_and_costs_nothing(
    swarm: Swarm, wrong: dict[str, int]
) -> None:
    session, worker_link = swarm.worker()
    stream, link = swarm.backbone()
    frame = dispatch(session, **wrong)

    swarm.roster.to_worker(stream, [frame._replace(flags=FLAG_MORE)])
    swarm.roster.to_worker(stream, [frame._replace(chunk=1)])

    assert worker_link.frames == []
    (error,) = link.take(FrameType.ERROR)
    assert (error.flags, error.request, error.stream) == (FLAG_RELAY, 1, stream)
    assert read_refusal(error).code == "not_leased"
    assert [read_credit(credit) for credit in link.take(FrameType.CREDIT)] == [cost(frame)] * 2


def test_later_chunks_follow_an_accepted_first_one_only(swarm: Swarm) -> None:
    session, worker_link = swarm.worker()
    stream, _ = swarm.backbone()
    first = dispatch(session)._replace(flags=FLAG_MORE)
    later = Frame(FrameType.DISPATCH, session=session, request=1, rows=1, pairs=1, chunk=1, body=b"x")

    swarm.roster.to_worker(stream, [later])
    swarm.roster.to_worker(stream, [first])
    swarm.roster.to_worker(stream, [later])
    swarm.roster.to_worker(stream, [later._replace(chunk=2)])

    assert [frame.chunk for frame in worker_link.frames] == [0, 1]
    assert swarm.roster.backbones[stream].open == set()


def test_a_backbone_cannot_leave_any_number_of_requests_open(swarm: Swarm) -> None:
    session, _ = swarm.worker()
    stream, _ = swarm.backbone()

    for request in range(1, MAX_OPEN_REQUESTS + 1):
        swarm.roster.to_worker(stream, [dispatch(session, request=request)._replace(flags=FLAG_MORE)])
    with pytest.raises(ProtocolViolation):
        swarm.roster.to_worker(stream, [dispatch(session, request=5000)._replace(flags=FLAG_MORE)])


def test_the_first_byte_above_the_credit_is_a_violation_in_either_direction(swarm: Swarm) -> None:
    session, worker_link = swarm.worker()
    stream, link = swarm.backbone()
    half = CREDIT_BYTES // 2 - 32

    for _ in range(2):
        swarm.roster.to_worker(stream, [dispatch(session, size=half)])
        swarm.roster.to_backbone(session, [result(stream, half)])
    with pytest.raises(CreditExceeded):
        swarm.roster.to_worker(stream, [dispatch(session, size=13)])
    with pytest.raises(CreditExceeded):
        swarm.roster.to_backbone(session, [result(stream, 1)])

    assert worker_link.counted == link.counted == 2


def test_grants_are_passed_on_stamped_and_open_the_window(swarm: Swarm) -> None:
    session, worker_link = swarm.worker()
    stream, link = swarm.backbone()
    swarm.roster.to_worker(stream, [dispatch(session, size=CREDIT_BYTES - 32)])
    swarm.roster.to_backbone(session, [result(stream, CREDIT_BYTES - 32)])

    swarm.roster.grant_by_worker(session, credit_frame(132, stream=stream))
    swarm.roster.grant_by_backbone(stream, credit_frame(132, session=session))
    swarm.roster.to_worker(stream, [dispatch(session)])
    swarm.roster.to_backbone(session, [result(stream)])

    (to_backbone,) = link.take(FrameType.CREDIT)
    (to_worker,) = worker_link.take(FrameType.CREDIT)
    assert (to_backbone.session, read_credit(to_backbone)) == (session, 132)
    assert (to_worker.stream, read_credit(to_worker)) == (stream, 132)


def test_a_grant_above_the_limit_is_a_violation(swarm: Swarm) -> None:
    session, _ = swarm.worker()
    stream, _ = swarm.backbone()
    swarm.roster.to_worker(stream, [dispatch(session)])

    with pytest.raises(CreditExceeded):
        swarm.roster.grant_by_worker(session, credit_frame(CREDIT_LIMIT_BYTES, stream=stream))
    with pytest.raises(CreditExceeded):
        swarm.roster.grant_by_backbone(stream, credit_frame(CREDIT_LIMIT_BYTES, session=session))


def test_grants_and_results_for_peers_that_left_are_dropped(swarm: Swarm) -> None:
    session, worker_link = swarm.worker()
    stream, link = swarm.backbone()
    swarm.roster.to_worker(stream, [dispatch(session)])
    swarm.roster.leave_backbone(stream)

    swarm.roster.to_backbone(session, [result(stream)])
    swarm.roster.grant_by_worker(session, credit_frame(5, stream=stream))
    swarm.roster.grant_by_backbone(stream, credit_frame(5, session=session))

    assert swarm.roster.counters["dropped_no_stream"] == 1
    assert link.take(FrameType.RESULT) == []
    (cancel,) = worker_link.take(FrameType.CANCEL)
    assert (cancel.request, cancel.stream) == (0, stream)


def test_each_backbone_has_its_own_credit_with_a_shared_worker(swarm: Swarm) -> None:
    session, worker_link = swarm.worker()
    streams = [swarm.backbone()[0] for _ in range(3)]

    for stream in streams:
        swarm.roster.to_worker(stream, [dispatch(session, size=CREDIT_BYTES - 32)])

    assert worker_link.counted == 3


def test_a_draining_worker_is_announced_once_and_hidden_from_newcomers(swarm: Swarm) -> None:
    session, _ = swarm.worker()
    stream, link = swarm.backbone()

    swarm.roster.drain(session)
    swarm.roster.drain(session)
    swarm.roster.set_replicas(session, ())
    _, late_link = swarm.backbone()
    swarm.roster.to_backbone(session, [result(stream)])

    assert [(frame.session, frame.stream) for frame in link.take(FrameType.DRAIN)] == [(session, stream)]
    assert len(link.changes()) == 1
    assert late_link.changes()[0].joined == ()
    assert len(link.take(FrameType.RESULT)) == 1


def test_numbers_are_never_zero_and_never_repeat_soon(swarm: Swarm) -> None:
    swarm.roster._last_number = (1 << 32) - 2

    assert [swarm.roster.new_number() for _ in range(3)] == [(1 << 32) - 1, 1, 2]


def granted(link: FakeLink) -> int:
    return sum(read_credit(frame) for frame in link.take(FrameType.CREDIT))


def test_grants_of_a_worker_that_does_not_read_are_held_back_until_it_does(swarm: Swarm) -> None:
    stream, alice = swarm.backbone()
    session, bob = swarm.worker()
    big = dispatch(session, size=CHUNK_BYTES)
    bob.read_bytes = 0
    swarm.roster.to_worker(stream, [big])
    bob.unread_bytes = cost(big)

    swarm.roster.grant_by_worker(session, credit_frame(4 * CREDIT_BYTES, stream=stream))
    at_first = granted(alice)
    bob.read_bytes, bob.unread_bytes = cost(big), 0
    swarm.roster.release_grants(session)
    after_reading = granted(alice)
    bob.read_bytes = 100 * CREDIT_BYTES
    swarm.roster.release_grants(session)

    assert at_first == 0
    assert bob.probes
    assert after_reading == 2 * cost(big)
    assert at_first + after_reading + granted(alice) == 4 * CREDIT_BYTES


def test_a_grant_above_the_limit_is_a_fault_also_while_others_are_held_back(swarm: Swarm) -> None:
    stream, _ = swarm.backbone()
    session, bob = swarm.worker()
    bob.read_bytes = 0
    swarm.roster.to_worker(stream, [dispatch(session)])
    swarm.roster.grant_by_worker(session, credit_frame(CREDIT_LIMIT_BYTES - CREDIT_BYTES, stream=stream))

    with pytest.raises(CreditExceeded):
        swarm.roster.grant_by_worker(session, credit_frame(1000, stream=stream))
