"""Runs readers of strangers' bytes in a process of their own, with little memory: a crash or a bomb is seen, and ends
nobody else. Linux: the limit is one of address space.
"""

import multiprocessing
import random
import resource
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What a reader may take beyond what importing it took.
ROOM_BYTES = 768 << 20
SLOW_SECONDS = 2.0
BATCH = 2000
MOST_FAULTS = 20


@dataclass
class Findings:
    """cases: inputs tried; refused: with an error of ours; faults: what else happened, with seed and case number;
    peak_bytes: most resident memory of the process; slowest_seconds: one case."""

    cases: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)
    first_bytes: int = 0
    peak_bytes: int = 0
    slowest_seconds: float = 0.0

    def add(self, other: "Findings") -> None:
        self.cases += other.cases
        self.refused += other.refused
        self.faults += other.faults
        self.first_bytes = self.first_bytes or other.first_bytes
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)
        self.slowest_seconds = max(self.slowest_seconds, other.slowest_seconds)


class Reader(ABC):
    """One kind of input. `make` returns case `number`'s input; `read` reads it as the product would."""

    refusals: tuple[type[Exception], ...] = ()

    @abstractmethod
    def make(self, dice: random.Random) -> Any:
        """One input, drawn with `dice`."""

    @abstractmethod
    def read(self, case: Any) -> None:
        """Raises one of `refusals`, and nothing else, for what is no valid input."""

    def close(self) -> None:  # noqa: B027 - most kinds have nothing to close
        """Leaves nothing behind."""


def peak_resident_bytes() -> int:
    """Of this process alone: ru_maxrss would count the one that it was started from."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) << 10


def try_cases(reader: Reader, seed: int, first: int, last: int) -> Findings:
    """Cases [first, last), each with dice of its own: any can be tried alone."""
    found = Findings(first_bytes=peak_resident_bytes())
    for number in range(first, last):
        case = reader.make(random.Random(f"{seed}/{number}"))
        began = time.perf_counter()
        try:
            reader.read(case)
        except reader.refusals:
            found.refused += 1
        except Exception:  # noqa: BLE001  (whatever it is, it is the fault that is looked for)
            if len(found.faults) < MOST_FAULTS:
                found.faults.append(f"{type(reader).__name__} {seed}/{number}: {traceback.format_exc(limit=-4)}")
        seconds = time.perf_counter() - began
        found.slowest_seconds = max(found.slowest_seconds, seconds)
        if seconds > SLOW_SECONDS:
            found.faults.append(f"{type(reader).__name__} {seed}/{number} took {seconds:.1f} s")
        found.cases += 1
    found.peak_bytes = peak_resident_bytes()
    return found


_reader: Reader | None = None


def _enter(make_reader: Callable[[], Reader]) -> None:
    global _reader
    _reader = make_reader()
    used = _address_space_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM_BYTES, used + ROOM_BYTES))


def _address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _work(seed: int, first: int, last: int) -> Findings:
    assert _reader is not None
    return try_cases(_reader, seed, first, last)


def _leave() -> None:
    if _reader is not None:
        _reader.close()


def confined(make_reader: Callable[[], Reader], seed: int, count: int) -> Iterator[Findings]:
    """Batches of findings. A process that dies is a fault, and a new one goes on behind its batch."""
    context = multiprocessing.get_context("spawn")
    first = 0
    while first < count:
        with ProcessPoolExecutor(1, context, _enter, (make_reader,)) as pool:
            try:
                while first < count:
                    last = min(first + BATCH, count)
                    yield pool.submit(_work, seed, first, last).result()
                    first = last
                pool.submit(_leave).result()
            except BrokenProcessPool:
                yield Findings(cases=last - first, faults=[f"the reader died in cases {seed}/{first} to {last}"])
                first = last
