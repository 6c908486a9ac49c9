"""relay/protocol.py: every (machine, phase, kind) triple, every preamble byte, every shape."""

import pytest

from relay.errors import BadPreamble, ProtocolViolation
from relay.frames import FLAG_MORE, FLAG_RELAY, Frame, FrameType, Role
from relay.protocol import (
    SHAPES,
    TRANSITIONS,
    Action,
    Machine,
    Phase,
    State,
    accepted,
    check_shape,
    closed,
    dialled,
    read_preamble,
    receive,
    welcomed,
)

KINDS = FrameType


def well_formed(kind: FrameType) -> Frame:
    shape = SHAPES[kind]
    rows = int(shape.rows)
    size = max(shape.least, 16 if shape.rows else 0)
    return Frame(kind, session=0, request=1, rows=rows, pairs=rows, body=bytes(size))


ANSWERS = ["RESULT", "ERROR", "STATUS", "CREDIT", "PING", "PONG"]
LEGAL: dict[tuple[Machine, Phase], dict[str, Phase | None]] = {
    (Machine.RELAY_WORKER, Phase.OPENING): {"HELLO": Phase.CHECKING},
    (Machine.RELAY_WORKER, Phase.CHECKING): {},
    (Machine.RELAY_WORKER, Phase.READY): dict.fromkeys(ANSWERS) | {"DRAIN": Phase.DRAINING},
    (Machine.RELAY_WORKER, Phase.DRAINING): dict.fromkeys([*ANSWERS, "DRAIN"]),
    (Machine.RELAY_STAGE, Phase.OPENING): {"HELLO": Phase.CHECKING},
    (Machine.RELAY_STAGE, Phase.CHECKING): {},
    (Machine.RELAY_STAGE, Phase.READY): dict.fromkeys(ANSWERS) | {"DRAIN": Phase.DRAINING},
    (Machine.RELAY_STAGE, Phase.DRAINING): dict.fromkeys([*ANSWERS, "DRAIN"]),
    (Machine.RELAY_BACKBONE, Phase.OPENING): {"HELLO": Phase.CHECKING},
    (Machine.RELAY_BACKBONE, Phase.CHECKING): {},
    (Machine.RELAY_BACKBONE, Phase.READY): dict.fromkeys(
        ["DISPATCH", "CHALLENGE", "STEP", "CANCEL", "CREDIT", "PING", "PONG"]
    ),
    (Machine.RELAY_BACKBONE, Phase.DRAINING): {},
    (Machine.CLIENT_WORKER, Phase.OPENING): {"WELCOME": Phase.READY, "REJECT": Phase.CLOSED},
    (Machine.CLIENT_WORKER, Phase.CHECKING): {},
    (Machine.CLIENT_WORKER, Phase.READY): dict.fromkeys(["DISPATCH", "CHALLENGE", "CANCEL", "CREDIT", "PING", "PONG"])
    | {"REJECT": Phase.CLOSED, "DRAIN": Phase.DRAINING},
    (Machine.CLIENT_WORKER, Phase.DRAINING): dict.fromkeys(
        ["DISPATCH", "CHALLENGE", "CANCEL", "CREDIT", "PING", "PONG", "DRAIN"]
    )
    | {"REJECT": Phase.CLOSED},
    (Machine.CLIENT_STAGE, Phase.OPENING): {"WELCOME": Phase.READY, "REJECT": Phase.CLOSED},
    (Machine.CLIENT_STAGE, Phase.CHECKING): {},
    (Machine.CLIENT_STAGE, Phase.READY): dict.fromkeys(["STEP", "CANCEL", "CREDIT", "PING", "PONG"])
    | {"REJECT": Phase.CLOSED, "DRAIN": Phase.DRAINING},
    (Machine.CLIENT_STAGE, Phase.DRAINING): dict.fromkeys(["STEP", "CANCEL", "CREDIT", "PING", "PONG", "DRAIN"])
    | {"REJECT": Phase.CLOSED},
    (Machine.CLIENT_BACKBONE, Phase.OPENING): {"WELCOME": Phase.READY, "REJECT": Phase.CLOSED},
    (Machine.CLIENT_BACKBONE, Phase.CHECKING): {},
    (Machine.CLIENT_BACKBONE, Phase.READY): dict.fromkeys(
        ["RESULT", "ERROR", "STATUS", "ROSTER", "CREDIT", "PING", "PONG"]
    )
    | {"REJECT": Phase.CLOSED, "DRAIN": Phase.DRAINING},
    (Machine.CLIENT_BACKBONE, Phase.DRAINING): dict.fromkeys(
        ["RESULT", "ERROR", "STATUS", "ROSTER", "CREDIT", "PING", "PONG", "DRAIN"]
    )
    | {"REJECT": Phase.CLOSED},
}


@pytest.mark.parametrize("machine", Machine)
@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.CLOSED])
@pytest.mark.parametrize("kind", KINDS)
def test_every_pair_is_a_legal_next_state_or_a_violation(machine: Machine, phase: Phase, kind: FrameType) -> None:
    state = State(machine, phase)
    legal = LEGAL[machine, phase]

    if kind.name in legal:
        after, actions = receive(state, well_formed(kind))
        assert after == State(machine, legal[kind.name] or phase)
        assert all(isinstance(action, Action) for action in actions)
    else:
        with pytest.raises(ProtocolViolation):
            receive(state, well_formed(kind))


@pytest.mark.parametrize("machine", Machine)
@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_connection_discards_whatever_still_arrives(machine: Machine, kind: FrameType) -> None:
    state = closed(State(machine, Phase.READY))

    assert receive(state, well_formed(kind)._replace(chunk=9)) == (state, ())


def test_every_action_is_asked_for_by_some_transition() -> None:
    used = {action for _, actions in TRANSITIONS.values() for action in actions}

    assert used == set(Action)


def test_it_knows_three_roles_and_refuses_the_other_253_preambles() -> None:
    for value in range(256):
        message = bytes([value]) + b"rest"
        if value in (0x42, 0x53, 0x57):
            role, rest = read_preamble(message)
            assert (role, bytes(rest)) == (value, b"rest")
        else:
            with pytest.raises(BadPreamble, match=f"0x{value:02x}"):
                read_preamble(message)
    with pytest.raises(BadPreamble, match="nothing"):
        read_preamble(b"")


def test_a_session_opens_by_hello_and_welcome_only() -> None:
    state = accepted(Role.WORKER)

    checking, actions = receive(state, well_formed(FrameType.HELLO))

    assert actions == (Action.AUTHENTICATE,)
    assert welcomed(checking) == State(Machine.RELAY_WORKER, Phase.READY)
    assert dialled(Role.BACKBONE) == State(Machine.CLIENT_BACKBONE, Phase.OPENING)
    for wrong in (state, welcomed(checking), closed(state)):
        with pytest.raises(ProtocolViolation):
            welcomed(wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_it_refuses_a_body_below_or_above_the_bounds_of_its_kind(kind: FrameType) -> None:
    frame, shape = well_formed(kind), SHAPES[kind]

    check_shape(frame)
    check_shape(frame._replace(body=bytes(shape.most)))
    with pytest.raises(ProtocolViolation):
        check_shape(frame._replace(body=bytes(shape.most + 1)))
    if shape.least:
        with pytest.raises(ProtocolViolation):
            check_shape(frame._replace(body=bytes(shape.least - 1)))


@pytest.mark.parametrize("kind", KINDS)
def test_only_requests_and_results_come_in_chunks_and_have_rows(kind: FrameType) -> None:
    frame = well_formed(kind)
    has_rows = kind in (FrameType.DISPATCH, FrameType.CHALLENGE, FrameType.STEP, FrameType.RESULT)

    for changed in (frame._replace(flags=FLAG_MORE), frame._replace(chunk=1)):
        if has_rows:
            check_shape(changed)
        else:
            with pytest.raises(ProtocolViolation):
                check_shape(changed)
    for changed in (frame._replace(rows=1 - frame.rows), frame._replace(pairs=1 - frame.pairs)):
        with pytest.raises(ProtocolViolation):
            check_shape(changed)


def test_requests_and_answers_need_a_number_and_requests_a_lease() -> None:
    for kind in (FrameType.DISPATCH, FrameType.CHALLENGE, FrameType.STEP, FrameType.RESULT, FrameType.ERROR):
        with pytest.raises(ProtocolViolation):
            check_shape(well_formed(kind)._replace(request=0))
    for kind in (FrameType.DISPATCH, FrameType.CHALLENGE, FrameType.STEP):
        for size in range(16):
            with pytest.raises(ProtocolViolation):
                check_shape(well_formed(kind)._replace(body=bytes(size)))
    with pytest.raises(ProtocolViolation):
        check_shape(well_formed(FrameType.DISPATCH)._replace(result_dtype=3))


def test_only_the_relay_sets_its_flag_and_cancels_whole_streams() -> None:
    error = well_formed(FrameType.ERROR)._replace(flags=FLAG_RELAY)
    cancel = well_formed(FrameType.CANCEL)._replace(request=0)

    receive(State(Machine.CLIENT_BACKBONE, Phase.READY), error)
    receive(State(Machine.CLIENT_WORKER, Phase.READY), cancel)
    with pytest.raises(ProtocolViolation):
        receive(State(Machine.RELAY_WORKER, Phase.READY), error)
    with pytest.raises(ProtocolViolation):
        receive(State(Machine.RELAY_BACKBONE, Phase.READY), cancel)
    with pytest.raises(ProtocolViolation):
        check_shape(well_formed(FrameType.RESULT)._replace(flags=FLAG_RELAY))


def test_a_backbone_tells_the_drain_of_a_worker_from_that_of_the_relay() -> None:
    state = State(Machine.CLIENT_BACKBONE, Phase.READY)
    drain = well_formed(FrameType.DRAIN)

    assert receive(state, drain._replace(session=5)) == (state, (Action.DELIVER,))
    assert receive(state, drain) == (State(Machine.CLIENT_BACKBONE, Phase.DRAINING), (Action.MOVE_AWAY,))
