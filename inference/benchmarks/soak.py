"""`manage.py bench soak --minutes 20`: a swarm that works for a while keeps its memory and its descriptors.

Requests keep arriving; relay, slow lines, workers and backbone are looked at every half minute. `value` is the slope of
resident memory over the second half (the first fills caches and heaps), in megabytes per hour; descriptors beside it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import psutil

from inference.benchmarks.mixed import serving_backbone
from inference.benchmarks.progress import Progress
from inference.benchmarks.report import Result
from inference.benchmarks.rig.serving import Load

DEFAULT_MINUTES = 20.0
PART_SECONDS = 25.0
LOAD = Load(rate=2.0, seconds=PART_SECONDS, kinds=(("short", 0.8, 16, 32), ("long", 0.2, 400, 32)))
MEGABYTE = 1e6


@dataclass(frozen=True)
class Sample:
    """One look at one process; at: seconds since the start."""

    at: float
    resident_bytes: int
    descriptors: int


def soak(
    cache: Path, *, quick: bool, threads: int, progress: Progress, minutes: float = DEFAULT_MINUTES
) -> list[Result]:
    """Raises SideFailed."""
    load = replace(LOAD, seconds=0.4, rate=8.0, kinds=(("short", 1.0, 8, 4),)) if quick else LOAD
    seconds = 2.0 if quick else 60.0 * minutes
    with serving_backbone(cache, threads) as (here, child, _):
        watched = {"backbone": psutil.Process(child.pid)}
        for kind, processes in here.processes.items():
            watched |= {f"{kind} {number}": process for number, process in enumerate(processes, start=1)}
        samples: dict[str, list[Sample]] = {name: [] for name in watched}
        began, answers, failed, part = time.monotonic(), 0, 0, 0
        while (passed := time.monotonic() - began) < seconds or part < 4:
            progress(min(1.0, passed / seconds), f"{answers} answers")
            answer = child.ask(load=asdict(replace(load, seed=part)))
            answers += len(answer["answers"])
            failed += sum(one["finish"] != "length" for one in answer["answers"])
            part += 1
            for name, process in watched.items():
                look = Sample(time.monotonic() - began, process.memory_info().rss, process.num_fds())
                samples[name].append(look)
    return list(as_results(samples, answers, failed))


def as_results(samples: dict[str, list[Sample]], answers: int, failed: int) -> Iterator[Result]:
    for name, looks in samples.items():
        late = looks[len(looks) // 2 :]
        memory = slope_per_hour(late, [look.resident_bytes / MEGABYTE for look in late])
        descriptors = slope_per_hour(late, [float(look.descriptors) for look in late])
        last = looks[-1]
        growth = (last.resident_bytes - late[0].resident_bytes) / MEGABYTE
        yield Result(
            f"{name}/memory",
            "MB/hour",
            [memory],
            extra={
                "megabytes": [round(look.resident_bytes / MEGABYTE, 1) for look in looks],
                "descriptors": [look.descriptors for look in looks],
                "descriptors_per_hour": descriptors,
                "minutes": last.at / 60,
                "answers": answers,
                "failed": failed,
                "note": f"{growth:+.1f} MB in the second half of {last.at / 60:.1f} minutes, "
                f"{last.resident_bytes / MEGABYTE:.0f} MB at the end; descriptors {looks[0].descriptors} to "
                f"{last.descriptors}; {answers} answers, {failed} failed",
            },
        )


def slope_per_hour(looks: list[Sample], values: list[float]) -> float:
    """Of the straight line that fits best."""
    if len(looks) < 2:
        return 0.0
    return float(np.polyfit([look.at / 3600 for look in looks], values, 1)[0])
