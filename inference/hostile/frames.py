"""Malformed relay messages against everything that reads frames: decoder, state machines, bodies, reassembly."""

import random
from collections.abc import Callable

import numpy as np

from inference.hostile import mutations
from inference.hostile.confined import Reader
from relay import messages
from relay.admission import check_hello
from relay.errors import RelayError
from relay.frames import FLAG_MORE, KNOWN_FLAGS, Frame, FrameType, ResultDtype, Role, decode_frames, encode_frame
from relay.protocol import Machine, Phase, State, read_preamble, receive
from relay.records import dump_json

SHA = "ab" * 32
REPLICA: dict[str, object] = {"claim_id": 7, "fence": 1, "layer": 3, "first": 0, "last": 8, "sha256": SHA}
SESSION: dict[str, object] = {
    "session": 5,
    "node_id": "n1",
    "kernel_class": "numpy",
    "name": "x",
    "replicas": [REPLICA],
    "role": "stage",
}
HELLO: dict[str, object] = {
    "protocol": 1,
    "token": "secret",
    "build": "0" * 32,
    "kernel_class": "numpy",
    "replicas": [REPLICA],
    "stages": "1" * 32,
}
WELCOME: dict[str, object] = {
    "session": 5,
    "stream": 0,
    "ping_seconds": 10,
    "credit_bytes": 1 << 20,
    "credit_limit_bytes": 1 << 22,
    "stage_credit_bytes": 1 << 24,
    "stage_credit_limit_bytes": 1 << 26,
}
JSON_BODIES: dict[FrameType, dict[str, object]] = {
    FrameType.HELLO: HELLO,
    FrameType.WELCOME: WELCOME,
    FrameType.REJECT: {"code": "bad_token", "message": "no"},
    FrameType.ERROR: {"code": "overloaded", "message": "later"},
    FrameType.STATUS: {"replicas": [REPLICA], "load": 0.5, "battery": 1},
    FrameType.ROSTER: {"full": True, "joined": [SESSION], "left": [4]},
}
READERS: dict[FrameType, tuple[Callable[[Frame], object], ...]] = {
    FrameType.HELLO: (check_hello,),
    FrameType.WELCOME: (messages.read_welcome,),
    FrameType.REJECT: (messages.read_refusal,),
    FrameType.ERROR: (messages.read_refusal,),
    FrameType.ROSTER: (messages.read_roster,),
    FrameType.STATUS: (messages.read_status,),
    FrameType.CREDIT: (messages.read_credit,),
    FrameType.DISPATCH: (messages.read_lease, messages.read_dispatch),
    FrameType.CHALLENGE: (messages.read_lease, messages.read_dispatch),
    FrameType.STEP: (messages.read_lease, messages.read_step),
    FrameType.RESULT: (lambda frame: messages.read_result(frame, 2, 32),),
}
STATES = tuple(State(machine, phase) for machine in Machine for phase in Phase)
MAX_BODY_BYTES = 1 << 20


def samples() -> tuple[bytes, ...]:
    """A valid message of every kind."""
    rows = np.ones((2, 32), np.float32)
    pairs = np.array([[0, 1], [1, 2]], np.uint16)
    lease = messages.Lease(1, 7)
    request = messages.dispatch_frame(layer=3, session=5, request=9, lease=lease, pairs=pairs, rows=rows)
    sums = messages.dispatch_frame(
        layer=3, session=5, request=9, lease=lease, pairs=pairs, rows=rows,
        result_dtype=ResultDtype.PARTIAL_F16, weights=np.ones(2, np.float32), kind=FrameType.CHALLENGE,
    )  # fmt: skip
    step = messages.step_frame(layer=0, session=5, request=9, lease=lease, rows=2, step=bytes(64))
    frames = [
        *(Frame(kind, request=9, body=dump_json(body)) for kind, body in JSON_BODIES.items()),
        *(request, sums, request._replace(flags=FLAG_MORE), messages.result_frame(request, rows)),
        *(step, messages.step_result_frame(step, b"answer")),
        *(
            messages.ping_frame(b"12345678"),
            messages.credit_frame(4096, session=5),
            messages.cancel_frame(9, session=5),
        ),
        *(Frame(FrameType.DRAIN), Frame(FrameType.DISPATCH, rows=1, pairs=1, request=9, chunk=1, body=b"x" * 64)),
    ]
    encoded = [encode_frame(frame) for frame in frames]
    return (*encoded, *(bytes([role]) + encoded[0] for role in Role), b"".join(encoded))


def odd_frame(dice: random.Random) -> bytes:
    """A well-formed header whose fields, or whose JSON body, make no sense."""
    kind = dice.choice(tuple(FrameType))

    def number(bits: int) -> int:
        return dice.choice(mutations.EDGES) & (1 << bits) - 1

    body = mutations.odd_json(dice, JSON_BODIES[kind]) if kind in JSON_BODIES else mutations.arbitrary(dice)
    return encode_frame(
        Frame(
            kind, dice.randrange(KNOWN_FLAGS + 1), number(16), number(32), number(64), number(32), number(16),
            number(16), number(8), number(8), number(16), body,
        )
    )  # fmt: skip


def odd_message(dice: random.Random, valid: tuple[bytes, ...]) -> bytes:
    way = dice.random()
    if way < 0.55:
        return mutations.mutated(dice, dice.choice(valid))
    if way < 0.9:
        return b"".join(odd_frame(dice) for _ in range(dice.randint(1, 3)))
    return mutations.arbitrary(dice)


class Frames(Reader):
    """Reads a message as relay, worker and backbone would, in every state that they can be in."""

    refusals = (RelayError,)

    def __init__(self) -> None:
        self._valid = samples()
        self._reassembler = messages.Reassembler(MAX_BODY_BYTES, 4 * MAX_BODY_BYTES)

    def make(self, dice: random.Random) -> bytes:
        return odd_message(dice, self._valid)

    def read(self, case: bytes) -> None:
        """Every part reads all that decodes; the first refusal is raised when all have read."""
        refusal: RelayError | None = None
        message: bytes | memoryview = case
        if case and case[0] in set(Role):
            _, message = read_preamble(case)
        for frame in decode_frames(message):
            parts = (
                *(lambda frame, state=state: receive(state, frame) for state in STATES),
                *READERS.get(frame.type, ()),
                self._reassembler.add,
            )
            for part in parts:
                try:
                    part(frame)
                except RelayError as error:
                    refusal = error
        if refusal is not None:
            raise refusal
