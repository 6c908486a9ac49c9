"""Who may send what, when: six explicit state machines over frames. No I/O and no time.

Three machines belong to the relay (what it accepts from a worker, a stage, a backbone) and three to clients (what each
of them accepts from the relay). `receive(state, frame)` returns the next state and what to do, or raises
ProtocolViolation; whatever is missing in `TRANSITIONS` is a violation. docs/protocol.md holds the same table.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from relay.errors import BadPreamble, ProtocolViolation
from relay.frames import CHUNK_BYTES, FLAG_MORE, FLAG_RELAY, Body, Frame, FrameType, ResultDtype, Role
from relay.messages import LEASE, PAIR_BYTES
from relay.records import HELLO_BYTES, SMALL_JSON_BYTES


class _Name(Enum):
    """Members are looked up for every frame; hashed by identity, not (as Enum does, in Python) by name."""

    __hash__ = object.__hash__


class Machine(_Name):
    RELAY_WORKER = "relay, of a worker"
    RELAY_STAGE = "relay, of a stage"
    RELAY_BACKBONE = "relay, of a backbone"
    CLIENT_WORKER = "worker, of the relay"
    CLIENT_STAGE = "stage, of the relay"
    CLIENT_BACKBONE = "backbone, of the relay"


class Phase(_Name):
    OPENING = "opening"  # HELLO is due (relay) or was sent (client)
    CHECKING = "checking"  # only the relay: the credentials of HELLO are looked up
    READY = "ready"
    DRAINING = "draining"  # the peer said DRAIN: no new work, what is under way is finished
    CLOSED = "closed"  # whatever still arrives is discarded


class State(NamedTuple):
    machine: Machine
    phase: Phase


class Action(Enum):
    """What the caller has to do with the frame."""

    AUTHENTICATE = "look the credentials up, then `welcomed` or `closed`"
    START = "the session is open"
    STOP = "the relay ended the session: read the code, tell a person"
    TO_WORKER = "route to the session in the header"
    TO_BACKBONE = "route to the stream in the header"
    DELIVER = "hand to the layer above"
    GRANT = "add to what may be sent"
    UPDATE_ROSTER = "read the change of sessions"
    RECHECK = "read claims again, then tell backbones"
    ANNOUNCE_DRAIN = "tell backbones that this worker takes no new work"
    MOVE_AWAY = "the relay wants to close: finish, then connect elsewhere"
    ANSWER_PING = "send PONG with the same token"
    NOTE_PONG = "all that was sent before its PING has been read"


_T, _M, _P, _A = FrameType, Machine, Phase, Action
Transition = tuple[Phase, tuple[Action, ...]]
Key = tuple[Machine, Phase, FrameType]


def _alive(machine: Machine, phase: Phase) -> dict[Key, Transition]:
    """What every open session understands in either direction."""
    return {
        (machine, phase, _T.PING): (phase, (_A.ANSWER_PING,)),
        (machine, phase, _T.PONG): (phase, (_A.NOTE_PONG,)),
        (machine, phase, _T.CREDIT): (phase, (_A.GRANT,)),
    }


def _relay_side() -> dict[Key, Transition]:
    table: dict[Key, Transition] = {}
    for machine in (_M.RELAY_WORKER, _M.RELAY_STAGE, _M.RELAY_BACKBONE):
        table[machine, _P.OPENING, _T.HELLO] = (_P.CHECKING, (_A.AUTHENTICATE,))
        table |= _alive(machine, _P.READY)
    for kind in (_T.DISPATCH, _T.CHALLENGE, _T.STEP, _T.CANCEL):
        table[_M.RELAY_BACKBONE, _P.READY, kind] = (_P.READY, (_A.TO_WORKER,))
    for machine in (_M.RELAY_WORKER, _M.RELAY_STAGE):
        table |= _alive(machine, _P.DRAINING)
        for phase in (_P.READY, _P.DRAINING):
            for kind in (_T.RESULT, _T.ERROR):
                table[machine, phase, kind] = (phase, (_A.TO_BACKBONE,))
            table[machine, phase, _T.STATUS] = (phase, (_A.RECHECK,))
        table[machine, _P.READY, _T.DRAIN] = (_P.DRAINING, (_A.ANNOUNCE_DRAIN,))
        table[machine, _P.DRAINING, _T.DRAIN] = (_P.DRAINING, ())
    return table


def _client_side() -> dict[Key, Transition]:
    delivered = {
        _M.CLIENT_WORKER: (_T.DISPATCH, _T.CHALLENGE, _T.CANCEL),
        _M.CLIENT_STAGE: (_T.STEP, _T.CANCEL),
        _M.CLIENT_BACKBONE: (_T.RESULT, _T.ERROR, _T.STATUS),
    }
    table: dict[Key, Transition] = {}
    for machine, kinds in delivered.items():
        table[machine, _P.OPENING, _T.WELCOME] = (_P.READY, (_A.START,))
        for phase in (_P.OPENING, _P.READY, _P.DRAINING):
            table[machine, phase, _T.REJECT] = (_P.CLOSED, (_A.STOP,))
        for phase in (_P.READY, _P.DRAINING):
            table |= _alive(machine, phase)
            for kind in kinds:
                table[machine, phase, kind] = (phase, (_A.DELIVER,))
            # DRAIN with session 0 speaks of the relay itself, see `receive`.
            table[machine, phase, _T.DRAIN] = (_P.DRAINING, (_A.MOVE_AWAY,) if phase is _P.READY else ())
    for phase in (_P.READY, _P.DRAINING):
        table[_M.CLIENT_BACKBONE, phase, _T.ROSTER] = (phase, (_A.UPDATE_ROSTER,))
    return table


TRANSITIONS: dict[Key, Transition] = _relay_side() | _client_side()


class Shape(NamedTuple):
    """What a frame of one kind must look like in itself: body bytes per chunk, and which fields it may use."""

    least: int
    most: int
    chunked: bool = False
    rows: bool = False
    request: bool = False


# A first chunk of a request holds its lease at least; the smallest body of all is checked where it is read whole.
SHAPES = {
    _T.HELLO: Shape(2, HELLO_BYTES),
    _T.WELCOME: Shape(2, SMALL_JSON_BYTES),
    _T.REJECT: Shape(2, SMALL_JSON_BYTES),
    _T.ROSTER: Shape(2, CHUNK_BYTES),
    _T.DISPATCH: Shape(1, CHUNK_BYTES, chunked=True, rows=True, request=True),
    _T.CHALLENGE: Shape(1, CHUNK_BYTES, chunked=True, rows=True, request=True),
    _T.STEP: Shape(1, CHUNK_BYTES, chunked=True, rows=True, request=True),
    _T.CANCEL: Shape(0, 0),
    _T.RESULT: Shape(1, CHUNK_BYTES, chunked=True, rows=True, request=True),
    _T.ERROR: Shape(2, SMALL_JSON_BYTES, request=True),
    _T.CREDIT: Shape(4, 4),
    _T.PING: Shape(8, 8),
    _T.PONG: Shape(8, 8),
    _T.STATUS: Shape(2, HELLO_BYTES),
    _T.DRAIN: Shape(0, 0),
}
_REQUESTS = (_T.DISPATCH, _T.CHALLENGE, _T.STEP)
_RESULT_DTYPES = frozenset(map(int, ResultDtype))


def check_shape(frame: Frame) -> None:
    """Raises ProtocolViolation when the header contradicts itself or the kind of the frame."""
    shape = SHAPES[frame.type]
    size = len(frame.body)
    if not shape.least <= size <= shape.most:
        raise ProtocolViolation(f"{frame.type.name} has {size} body bytes; {shape.least} to {shape.most} are allowed")
    if (frame.flags & FLAG_MORE or frame.chunk) and not shape.chunked:
        raise ProtocolViolation(f"{frame.type.name} cannot be sent in chunks")
    if shape.rows != bool(frame.pairs) or shape.rows != bool(frame.rows):
        raise ProtocolViolation(f"{frame.type.name} with {frame.rows} rows and {frame.pairs} pairs")
    if shape.request and not frame.request:
        raise ProtocolViolation(f"{frame.type.name} needs a request number")
    if frame.result_dtype not in _RESULT_DTYPES:
        raise ProtocolViolation(f"result dtype {frame.result_dtype} is not defined")
    if frame.type in _REQUESTS and not frame.chunk and size < LEASE.size + PAIR_BYTES * (not frame.flags & FLAG_MORE):
        raise ProtocolViolation(f"{frame.type.name} of {size} bytes does not hold its lease")
    if frame.flags & FLAG_RELAY and frame.type is not _T.ERROR:
        raise ProtocolViolation(f"{frame.type.name} cannot be made by the relay for a request")


def receive(state: State, frame: Frame) -> tuple[State, tuple[Action, ...]]:
    """The next state and what to do. Raises ProtocolViolation when this frame may not come now, or not like this."""
    return receive_run(state, (frame,))


def receive_run(state: State, run: Sequence[Frame]) -> tuple[State, tuple[Action, ...]]:
    """The same for frames of one kind that came side by side; what to do is to be done with each of them.

    For kinds that leave the phase as it is.
    """
    machine, phase = state
    if phase is _P.CLOSED:
        return state, ()
    first = run[0]
    transition = TRANSITIONS.get((machine, phase, first.type))
    if transition is None:
        raise ProtocolViolation(f"{first.type.name} may not be sent to the {machine.value}, in phase {phase.value}")
    assert transition[0] is phase or len(run) == 1
    for frame in run:
        check_shape(frame)
    if machine in _RELAY_MACHINES:
        for frame in run:
            if frame.flags & FLAG_RELAY:
                raise ProtocolViolation("only the relay may set its flag")
            if frame.type is _T.CANCEL and not frame.request:
                raise ProtocolViolation("only the relay may cancel a whole stream")
    elif machine is _M.CLIENT_BACKBONE and first.type is _T.DRAIN and first.session:
        return state, (_A.DELIVER,)
    return (state if transition[0] is phase else State(machine, transition[0])), transition[1]


_OPENING = {Role.WORKER: _M.RELAY_WORKER, Role.STAGE: _M.RELAY_STAGE, Role.BACKBONE: _M.RELAY_BACKBONE}
_CLIENT = {Role.WORKER: _M.CLIENT_WORKER, Role.STAGE: _M.CLIENT_STAGE, Role.BACKBONE: _M.CLIENT_BACKBONE}
_RELAY_MACHINES = tuple(_OPENING.values())


def read_preamble(message: Body) -> tuple[Role, memoryview]:
    """The role in the first byte of the first message, and the frames after it. Raises BadPreamble."""
    view = memoryview(message)
    try:
        return Role(view[0]), view[1:]
    except (IndexError, ValueError):
        first = f"0x{view[0]:02x}" if view else "nothing"
        known = "0x42 (backbone), 0x53 (stage) or 0x57 (worker)"
        raise BadPreamble(f"the first byte must be {known}, not {first}") from None


def accepted(role: Role) -> State:
    """The relay's state once the preamble is read."""
    return State(_OPENING[role], _P.OPENING)


def dialled(role: Role) -> State:
    """A client's state once it has sent its preamble and HELLO."""
    return State(_CLIENT[role], _P.OPENING)


def welcomed(state: State) -> State:
    """The relay found the credentials right. Raises ProtocolViolation unless it was checking them."""
    if state.phase is not _P.CHECKING:
        raise ProtocolViolation(f"WELCOME cannot be sent in phase {state.phase.value}")
    return State(state.machine, _P.READY)


def closed(state: State) -> State:
    return State(state.machine, _P.CLOSED)
