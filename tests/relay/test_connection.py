"""relay/connection.py: what two clients say to each other goes through, both ways."""

from relay.codes import CloseCode
from relay.credit import CREDIT_BYTES, CREDIT_LIMIT_BYTES, STAGE_CREDIT_BYTES, STAGE_CREDIT_LIMIT_BYTES
from relay.frames import Frame, FrameType, Role, split_frame
from relay.messages import Lease, credit_frame, ping_frame, read_roster, step_frame, step_result_frame
from relay.records import Welcome
from relay.roster import Roster
from tests.relay.builders import STAGES, replica, replica_json, stage_hello_json
from tests.relay.consumer_client import ALICE, Dial, dispatch, result


async def test_a_worker_and_a_backbone_are_welcomed_and_meet(dial: Dial) -> None:
    bob, alice = dial(), dial()

    session = (await bob.join(Role.WORKER)).session
    stream = (await alice.join(Role.BACKBONE, **ALICE)).stream
    change = read_roster(await alice.next(FrameType.ROSTER))

    assert session
    assert stream
    stage_credit = (STAGE_CREDIT_BYTES, STAGE_CREDIT_LIMIT_BYTES)
    assert alice.welcome == Welcome(0, stream, 5.0, CREDIT_BYTES, CREDIT_LIMIT_BYTES, (), *stage_credit)
    assert change.full
    (joined,) = change.joined
    assert (joined.session, joined.node_id, joined.name, joined.kernel_class) == (session, "bob", "Bob", "numpy")
    assert joined.replicas == (replica().with_state("live"),)


async def test_a_stage_has_larger_windows_and_is_shown_to_backbones_that_asked_for_stages(dial: Dial) -> None:
    dora, alice, carol = dial(), dial(), dial()

    session = (await dora.join(Role.STAGE, **stage_hello_json())).session
    await alice.join(Role.BACKBONE, **ALICE, stages=STAGES)
    await carol.join(Role.BACKBONE, **ALICE)
    seen = read_roster(await alice.next(FrameType.ROSTER)).joined
    unseen = read_roster(await carol.next(FrameType.ROSTER)).joined

    assert dora.welcome == Welcome(session, 0, 5.0, STAGE_CREDIT_BYTES, STAGE_CREDIT_LIMIT_BYTES)
    assert [(one.session, one.node_id, one.role, one.replicas[0].claim_id) for one in seen] == [
        (session, "dora", "stage", 9)
    ]
    assert unseen == ()


async def test_a_step_of_many_chunks_goes_to_the_stage_and_its_answer_back(dial: Dial) -> None:
    dora, alice = dial(), dial()
    session = (await dora.join(Role.STAGE, **stage_hello_json())).session
    stream = (await alice.join(Role.BACKBONE, **ALICE, stages=STAGES)).stream
    step = step_frame(layer=0, session=session, request=5, lease=Lease(1, 9), rows=512, step=bytes(6 << 20))

    await alice.send(*split_frame(step))
    chunks = [await dora.next(FrameType.STEP) for _ in split_frame(step)]
    await dora.send(step_result_frame(chunks[0], b"computed"))
    answer = await alice.next(FrameType.RESULT)

    assert b"".join(chunk.body for chunk in chunks) == step.body
    assert {(chunk.session, chunk.stream, chunk.rows) for chunk in chunks} == {(session, stream, 512)}
    assert (answer.request, bytes(answer.body), answer.flags, answer.chunk) == (5, b"computed", 0, 0)


async def test_a_request_and_its_result_are_routed_and_stamped(dial: Dial) -> None:
    bob, alice = dial(), dial()
    session = (await bob.join(Role.WORKER)).session
    stream = (await alice.join(Role.BACKBONE, **ALICE)).stream

    await alice.send(dispatch(session))
    got = await bob.next(FrameType.DISPATCH)
    await bob.send(result(got.stream), Frame(FrameType.DRAIN))
    answer = await alice.next(FrameType.RESULT)
    drain = await alice.next(FrameType.DRAIN)

    assert (got.session, got.stream, got.body) == (session, stream, dispatch(session).body)
    assert (answer.session, answer.stream, len(answer.body)) == (session, stream, 100)
    assert drain.session == session


async def test_frames_that_share_a_message_arrive_in_order_for_whomever_they_are(dial: Dial) -> None:
    bob, carol, alice = dial(), dial(), dial()
    first = (await bob.join(Role.WORKER)).session
    second = (await carol.join(Role.WORKER, token="carol-token", replicas=[replica_json(claim_id=8)])).session
    stream = (await alice.join(Role.BACKBONE, **ALICE)).stream
    sent = [(first, 1), (first, 2), (second, 3), (first, 4), (second, 5)]
    frames = [
        dispatch(session, request=request, claim_id=7 if session == first else 8)._replace(stream=stream)
        for session, request in sent
    ]

    await alice.send(ping_frame(b"12345678"), *frames[:3], credit_frame(32, session=first), *frames[3:])
    got = [await client.next(FrameType.DISPATCH) for client in (bob, bob, bob, carol, carol)]
    answers = [result(stream)._replace(request=request) for request in (1, 2, 4)]
    await bob.send(answers[0]._replace(session=first), *answers[1:])
    back = [await alice.next(FrameType.RESULT) for _ in answers]

    assert [(frame.session, frame.request) for frame in got] == [(s, r) for s, r in sent if s == first] + [
        (s, r) for s, r in sent if s == second
    ]
    assert [frame.stream for frame in got] == [stream] * 5
    assert [(frame.session, frame.request) for frame in back] == [(first, 1), (first, 2), (first, 4)]
    assert (await alice.next(FrameType.PONG)).body == b"12345678"


async def test_credit_is_granted_end_to_end(dial: Dial) -> None:
    bob, alice = dial(), dial()
    session = (await bob.join(Role.WORKER)).session
    stream = (await alice.join(Role.BACKBONE, **ALICE)).stream
    await alice.send(dispatch(session))
    await bob.next(FrameType.DISPATCH)
    await bob.send(credit_frame(132, stream=stream), result(stream))
    await alice.next(FrameType.RESULT)

    await alice.send(credit_frame(132, session=session))

    assert (await alice.next(FrameType.CREDIT)).session == session
    assert (await bob.next(FrameType.CREDIT)).stream == stream


async def test_a_worker_may_not_send_what_only_a_backbone_may(dial: Dial) -> None:
    bob = dial()
    session = (await bob.join(Role.WORKER)).session

    await bob.send(dispatch(session))

    assert (await bob.closed())[0] == CloseCode.VIOLATION


async def test_a_backbone_that_leaves_cancels_its_work(dial: Dial, roster: Roster) -> None:
    bob, alice = dial(), dial()
    session = (await bob.join(Role.WORKER)).session
    stream = (await alice.join(Role.BACKBONE, **ALICE)).stream
    await alice.send(dispatch(session))
    await bob.next(FrameType.DISPATCH)

    await alice.leave()
    cancel = await bob.next(FrameType.CANCEL)

    assert (cancel.request, cancel.stream) == (0, stream)
    assert not roster.backbones


async def test_a_worker_that_leaves_is_announced(dial: Dial) -> None:
    bob, alice = dial(), dial()
    session = (await bob.join(Role.WORKER)).session
    await alice.join(Role.BACKBONE, **ALICE)
    await alice.next(FrameType.ROSTER)

    await bob.leave()

    assert read_roster(await alice.next(FrameType.ROSTER)).left == (session,)
