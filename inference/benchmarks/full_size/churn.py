"""Arm `churn`: a third of the workers is killed (SIGKILL) in mid-step; every sequence must get its token."""

import json
import signal
import statistics
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psutil

from inference.benchmarks.full_size.plan import Budget, Case, Plan
from inference.benchmarks.full_size.swarm import Swarm, failures, group_of, swarm_of
from inference.benchmarks.progress import Progress
from inference.benchmarks.relay.processes import Client
from inference.benchmarks.report import Result
from inference.benchmarks.rig.site import backbone
from inference.gguf_index import open_index

KILLED_SHARE = 1 / 3
# The kill comes when so much of a step has passed.
MOMENT = 0.4


def churn(plan: Plan, progress: Progress, budget: Budget) -> Iterator[Result]:
    """Cases `churn/W=N/...`, with the limits and the fallback of a real backbone. Raises SideFailed."""
    index = open_index(plan.model)
    for number, workers in enumerate(plan.workers):
        for case in (replace(one, falls_back=True) for one in plan.cases):
            if not budget.allows(f"churn/W={workers}/{case.name}"):
                continue
            progress(number / len(plan.workers), f"W={workers}: {case.name}")
            with (
                swarm_of(plan, index, workers, [case.round_trip_ms]) as one,
                backbone(plan.options("churn", workers, case, one.here.url), one.here) as child,
            ):
                child.ask(prepare=case.sequences)
                child.ask(use=group_of(case.round_trip_ms), workers=workers)
                child.ask(round=2)
                yield _killed(plan, case, one, child)


def _killed(plan: Plan, case: Case, one: Swarm, child: Client) -> Result:
    victims = one.here.processes["workers"][: max(1, int(one.workers * KILLED_SHARE))]
    before = [child.ask(round=1) for _ in range(plan.steps)]
    moment = statistics.median(answer["seconds"] for answer in before) * MOMENT
    killer = threading.Timer(moment, _kill, [victims])
    killer.start()
    during = child.ask(round=1)
    killer.join()
    one.here.processes["workers"] = [worker for worker in one.here.processes["workers"] if worker not in victims]
    after = [child.ask(round=1) for _ in range(plan.steps)]
    everything = [*before, during, *after]
    short = [answer["tokens"] for answer in everything if answer["tokens"] != case.sequences]
    failed = failures(everything)
    return Result(
        f"churn/W={one.workers}/{case.name}",
        "tokens/s",
        [answer["tokens"] / answer["seconds"] for answer in after],
        peer="before the kill",
        peer_samples=[answer["tokens"] / answer["seconds"] for answer in before],
        extra={
            "killed": len(victims),
            "step_of_the_kill_seconds": during["seconds"],
            "steps_with_missing_tokens": len(short),
            "failures": failed,
            "places": {"before": _places(before), "during": _places([during]), "after": _places(after)},
            "note": f"{len(victims)} of {one.workers} killed; that step took {during['seconds']:.2f} s; "
            f"steps with missing tokens: {len(short)}; {json.dumps(failed)}",
        },
    )


def _places(answers: list[dict[str, Any]]) -> dict[str, int]:
    return dict(sum((Counter(answer["places"]) for answer in answers), Counter[str]()))


def _kill(victims: list[psutil.Process]) -> None:
    for process in victims:
        process.send_signal(signal.SIGKILL)
