"""Stages that are asked through a transport of this process, as `relay.backbone_link` would ask them."""

import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from inference.gguf_index import open_index
from inference.kernel import kernel_class_name
from inference.llama import Model
from inference.ring.leased import LeasedStages
from inference.ring.relay_line import LeasedStage, Passed, unheard
from inference.stage.joining import OpenedStage
from inference.stage.program import service_of
from inference.stages import stage_cuts
from relay.work import Failed, OnStepDone, StageAnswer, StageStep, StepOutcome


class Loopback:
    """One thread per stage answers in turn. lie: changes an answer before it leaves; gone: sessions that left."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.stages = [OpenedStage(path, rings=4, gpu_layers=0) for path in paths]
        self.lies: dict[int, Callable[[bytes], bytes]] = {}
        self.gone: set[int] = set()
        self.asked: list[int] = []
        self.on_asked: Callable[[int], None] = lambda number: None
        self._queues = [queue.SimpleQueue[tuple[StageStep, OnStepDone] | None]() for _ in paths]
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(len(paths))]
        for thread in self._threads:
            thread.start()

    def submit_step(self, step: StageStep, on_done: OnStepDone) -> int:
        assert isinstance(step.session, int)
        self._queues[step.session].put((step, on_done))
        return 1

    def cancel(self, requests: Sequence[int]) -> None:
        pass

    def _run(self, number: int) -> None:
        while (asked := self._queues[number].get()) is not None:
            step, on_done = asked
            self.asked.append(number)
            self.on_asked(number)
            on_done(self._outcome(number, step))

    def _outcome(self, number: int, step: StageStep) -> StepOutcome:
        if number in self.gone:
            return Failed("session_left", "as the test wished")
        answer = self.stages[number].answer(step.message, 1)
        return StageAnswer(self.lies.get(number, bytes)(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for waiting in self._queues:
            waiting.put(None)
        for thread in self._threads:
            thread.join()
        for stage in self.stages:
            stage.close()


def leased(model: Path, paths: Sequence[Path]) -> list[LeasedStage]:
    """What the backbone would know of the stages in these files: session and claim are their number."""
    cuts = stage_cuts(open_index(model))
    found = []
    for number, path in enumerate(paths):
        with Model(path) as opened:
            here = service_of(opened, rings=1).description
        units = cuts.units_of(here.first, here.last)
        found.append(LeasedStage(number, f"node {number}", kernel_class_name(), number, 1, *units, here))
    return found


def leased_stages(model: Path, transport: Loopback, on_passed: Passed = unheard) -> LeasedStages:
    index = open_index(model)
    return LeasedStages(
        transport, fingerprint=index.fingerprint, layers=index.trunk_layers, step_seconds=20.0, on_passed=on_passed
    )
