"""A ring through the relay: its coordinator sends each step to one stage after the other and gets the answers back.

A star on the wire, which costs what a ring would where the relay stands beside the coordinator. Knows messages of rings
and a transport of bytes; nothing of claims or money but the numbers that a request carries.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from inference.llama import ContextSettings
from inference.ring.errors import BadStep, LineBroken, StageFailed
from inference.ring.line import ANSWER_SLACK_BYTES, DEFAULT_STEP_SECONDS, OPEN_SECONDS, RING_BYTES
from inference.ring.steps import (
    Answer,
    Body,
    Close,
    Content,
    Failed,
    Open,
    Opened,
    StageDescription,
    Step,
    read_message,
    write_message,
)
from relay import work
from relay.codes import LinkCode

CREDIT_SECONDS = 0.02


class StepTransport(Protocol):
    """The part of `relay.backbone_link.BackboneLink` that rings need."""

    def submit_step(self, step: work.StageStep, on_done: work.OnStepDone) -> int: ...

    def cancel(self, requests: Sequence[int]) -> None: ...


@dataclass(frozen=True)
class LeasedStage:
    """A stage that may be asked: its session, the claim that it holds, and what lies there: units [first_unit,
    last_unit), which are the layers of `description`."""

    session: Hashable
    node_id: str
    kernel_class: str
    claim_id: int
    fence: int
    first_unit: int
    last_unit: int
    description: StageDescription

    @property
    def name(self) -> str:
        return f"{self.node_id}/{self.claim_id}"


class Passed(Protocol):
    """Told of every step that went through: the stages, the step as the first of them got it, their answers."""

    def __call__(
        self, stages: Sequence[LeasedStage], settings: ContextSettings, step: Step, answers: Sequence[Answer]
    ) -> None: ...


def unheard(stages: Sequence[LeasedStage], settings: ContextSettings, step: Step, answers: Sequence[Answer]) -> None:
    """Nobody keeps accounts."""


class RelayLine:
    """An open ring over stages in the order of their layers; `Line` of `inference.ring.context`.

    Raises RingError when it does not open. on_close(line): called once.
    """

    def __init__(
        self,
        transport: StepTransport,
        stages: Sequence[LeasedStage],
        settings: ContextSettings,
        *,
        step_seconds: float = DEFAULT_STEP_SECONDS,
        on_passed: Passed = unheard,
        on_close: Callable[[RelayLine], None] = lambda line: None,
    ) -> None:
        self.stages = tuple(stages)
        self._transport, self._settings = transport, settings
        self._step_seconds = step_seconds
        self._on_passed, self._on_close = on_passed, on_close
        self._ring = secrets.token_bytes(RING_BYTES)
        self._number = 0
        self._is_closed = False
        try:
            for stage in self.stages:
                opened = self._ask(stage, Open(settings), 1, ANSWER_SLACK_BYTES, OPEN_SECONDS)
                if not isinstance(opened, Opened) or opened.stages != (stage.description,):
                    raise BadStep(f"stage {stage.name} holds something else than its claim says")
        except Exception:
            self._let_go()
            raise

    def exchange(self, step: Step) -> Answer:
        """The last stage's answer, or an earlier one's that refused. Raises LineBroken, StageFailed, BadStep."""
        self._number += 1
        current, answers = step, list[Answer]()
        for stage in self.stages:
            answer = self._ask(stage, current, step.rows, self._answer_bytes(stage, step), self._step_seconds)
            if not isinstance(answer, Answer):
                raise BadStep(f"{type(answer).__name__} instead of an answer of stage {stage.name}")
            answers.append(answer)
            if answer.code != 0:
                break
            self._check(stage, step, answer)
            if stage is not self.stages[-1]:
                current = current.onward(answer)
        seconds = tuple(second for answer in answers for second in answer.seconds)
        if answers[-1].code == 0:
            self._on_passed(self.stages, self._settings, step, answers)
        return Answer(answers[-1].code, answers[-1].content, answers[-1].values, seconds)

    def close(self) -> None:
        """The stages free their contexts; nobody waits for it. Harmless when done twice."""
        if not self._is_closed:
            self._let_go()
            self._on_close(self)

    def _let_go(self) -> None:
        self._is_closed = True
        for stage in self.stages:
            self._transport.submit_step(self._request(stage, Close(), 1, ANSWER_SLACK_BYTES), lambda outcome: None)

    def _ask(self, stage: LeasedStage, body: Body, rows: int, answer_bytes: int, seconds: float) -> Body:
        """Raises LineBroken, StageFailed, BadStep."""
        deadline = time.monotonic() + seconds
        request = self._request(stage, body, rows, answer_bytes)
        while (outcome := self._outcome(stage, request, deadline)) is None:
            # Other rings on this stage fill its window, or it has yet to open it; nothing was sent.
            time.sleep(CREDIT_SECONDS)
        if isinstance(outcome, work.Failed):
            raise LineBroken(f"stage {stage.name}: {outcome.code}: {outcome.message}")
        message = read_message(outcome.message)
        if (message.ring, message.number) != (self._ring, self._number):
            raise BadStep(f"stage {stage.name} answered step {message.number}, step {self._number} was sent")
        if isinstance(message.body, Failed):
            raise StageFailed(f"stage {stage.name}: {message.body.code}: {message.body.reason}")
        return message.body

    def _outcome(self, stage: LeasedStage, request: work.StageStep, deadline: float) -> work.StepOutcome | None:
        """None: no credit yet, ask again. Raises LineBroken when the time is over."""
        done = threading.Event()
        outcomes: list[work.StepOutcome] = []

        def on_done(outcome: work.StepOutcome) -> None:
            outcomes.append(outcome)
            done.set()

        number = self._transport.submit_step(request, on_done)
        if not done.wait(max(0.0, deadline - time.monotonic())):
            self._transport.cancel([number])
            raise LineBroken(f"stage {stage.name} did not answer in time")
        outcome = outcomes[0]
        has_credit = not isinstance(outcome, work.Failed) or outcome.code != LinkCode.NO_CREDIT
        return outcome if has_credit or time.monotonic() >= deadline else None

    def _request(self, stage: LeasedStage, body: Body, rows: int, answer_bytes: int) -> work.StageStep:
        data = write_message(self._ring, self._number, body)
        return work.StageStep(stage.session, stage.fence, stage.claim_id, data, answer_bytes, rows)

    def _answer_bytes(self, stage: LeasedStage, step: Step) -> int:
        here = stage.description
        if here.last < here.layers:
            return 4 * step.rows * here.n_embd + ANSWER_SLACK_BYTES
        return 4 * int(np.count_nonzero(step.wants_logits)) * here.vocabulary_size + ANSWER_SLACK_BYTES

    @staticmethod
    def _check(stage: LeasedStage, step: Step, answer: Answer) -> None:
        """Raises BadStep for values of another kind or shape than were asked for, and for what is no number."""
        here = stage.description
        rows, wanted = step.rows, int(np.count_nonzero(step.wants_logits))
        is_last = here.last == here.layers
        expected = (wanted, here.vocabulary_size) if is_last and wanted else (0, 0) if is_last else (rows, here.n_embd)
        kind = Content.HIDDEN if not is_last else Content.LOGITS if wanted else Content.NOTHING
        if answer.content is not kind or answer.values.shape != expected:
            raise BadStep(f"stage {stage.name} answered {answer.values.shape} values, {expected} were asked for")
        if not np.isfinite(answer.values).all():
            raise BadStep(f"stage {stage.name} answered values that are no numbers")
