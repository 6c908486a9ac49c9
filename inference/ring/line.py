"""A ring over direct TCP: steps go in at the first stage, answers come from the last; the coordinator listens nowhere.

It dials the last stage for the answers, then the first one, which dials the next and so on. A stage that dies closes
its connections; the stages behind it close theirs, so the coordinator sees the end at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from inference.llama import ContextSettings
from inference.ring.errors import BadStep, LineBroken, RingError, StageFailed
from inference.ring.steps import (
    Answer,
    Attach,
    Body,
    Describe,
    Failed,
    Open,
    Opened,
    StageDescription,
    Step,
    read_message,
    write_message,
)
from inference.ring.wire import Wire

DESCRIBE_SECONDS = 3.0
# A stage that opens makes its context first: memory for every sequence.
OPEN_SECONDS = 60.0
DEFAULT_STEP_SECONDS = 60.0
RING_BYTES = 16
# Parts of prompts on their way at once: enough for a ring of a few stages, and not much to lose.
MOST_AHEAD = 4
NO_RING = bytes(RING_BYTES)
# What an answer has beside its values.
ANSWER_SLACK_BYTES = 1 << 16


def describe(address: str, secret: bytes) -> StageDescription:
    """What the stage at this address holds. Raises RingError."""
    with Wire.dial(address, secret, DESCRIBE_SECONDS) as wire:
        stages = _ask(wire, NO_RING, Describe(), DESCRIBE_SECONDS).stages
    if len(stages) != 1:
        raise BadStep(f"{address} describes {len(stages)} stages")
    return stages[0]


class TcpLine:
    """An open ring over `route`, addresses in the order of their layers. Raises RingError when it does not open.

    on_close(route): called once, when it is closed.
    """

    def __init__(
        self,
        route: Sequence[str],
        secret: bytes,
        settings: ContextSettings,
        step_seconds: float = DEFAULT_STEP_SECONDS,
        on_close: Callable[[Sequence[str]], None] = lambda route: None,
    ) -> None:
        self.route = tuple(route)
        self._on_close = on_close
        self._ring = secrets.token_bytes(RING_BYTES)
        self._step_seconds = step_seconds
        self._number = self._answered = 0
        self._answers = Wire.dial(route[-1], secret)
        try:
            _ask(self._answers, self._ring, Attach(), DESCRIBE_SECONDS)
            self._first = Wire.dial(route[0], secret)
            try:
                opened = _ask(self._first, self._ring, Open(settings, self.route[1:]), OPEN_SECONDS)
            except RingError:
                self._first.close()
                raise
        except RingError:
            self._answers.close()
            raise
        self.stages = opened.stages
        self._answer_bytes = 4 * settings.outputs * max(s.vocabulary_size for s in self.stages) + ANSWER_SLACK_BYTES

    def exchange(self, step: Step) -> Answer:
        """The answer. Raises LineBroken, StageFailed, BadStep.

        A step that asks for no logits (a part of a prompt) is not waited for: the next one enters the first stage while
        it is in the second. It counts as read; had it failed, a later exchange says so.
        """
        self._number += 1
        self._first.send(write_message(self._ring, self._number, step), self._step_seconds)
        is_wanted = bool(step.wants_logits.any())
        while self._number - self._answered > (1 if is_wanted else MOST_AHEAD):
            earlier = self._answer()
            if earlier.code != 0:
                raise StageFailed(f"step {self._answered} failed with code {earlier.code}")
        return self._answer() if is_wanted else Answer(0)

    def _answer(self) -> Answer:
        """The answer to the oldest step that has none yet."""
        message = read_message(self._answers.receive(self._step_seconds, self._answer_bytes))
        self._answered += 1
        if (message.ring, message.number) != (self._ring, self._answered):
            raise BadStep(f"an answer to step {message.number}, step {self._answered} was due")
        match message.body:
            case Answer():
                return message.body
            case Failed(stage, code, reason):
                raise StageFailed(f"stage {stage} ({self.route[min(stage, len(self.route) - 1)]}): {code}: {reason}")
            case _:
                raise BadStep(f"{type(message.body).__name__} instead of an answer")

    def close(self) -> None:
        self._first.close()
        self._answers.close()
        self._on_close(self.route)


def _ask(wire: Wire, ring: bytes, question: Body, seconds: float) -> Opened:
    """The stage's answer to the first message of a connection. Raises RingError."""
    wire.send(write_message(ring, 0, question), seconds)
    answer = read_message(wire.receive(seconds)).body
    match answer:
        case Opened():
            return answer
        case Failed(_, code, reason):
            raise StageFailed(f"{code}: {reason}")
        case _:
            raise LineBroken(f"{type(answer).__name__} instead of an answer to {type(question).__name__}")
