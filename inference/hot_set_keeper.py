"""Plans the hot set anew every few seconds while a backbone runs: reads the loads, tells the dispatcher, pins.

`step` is the unit of work; a thread repeats it. Knows the dispatcher's counts and the model's index; nothing of claims,
money or Django.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from inference.dispatch import Dispatcher
from inference.gguf_index import ModelIndex
from inference.hot_set import HotBudget, HotPlan, pack_flags, plan_hot_set
from inference.hot_set_meter import LoadMeter
from inference.hot_set_pins import Pins, memory_bytes

logger = logging.getLogger(__name__)

PLAN_SECONDS = 5.0
# RAM beside the model's file that a backbone needs: contexts, buffers, the other processes of a small host.
RESERVED_BYTES = 1 << 30


@dataclass(frozen=True)
class HostMemory:
    """ram_bytes: what this process may use; file_bytes: the model's tensors; routed_bytes: its experts."""

    ram_bytes: int
    file_bytes: int
    routed_bytes: int

    @property
    def is_scarce(self) -> bool:
        """Whether a part of the file stays on disk."""
        return self.file_bytes + RESERVED_BYTES > self.ram_bytes

    def pinnable_bytes(self, wanted: int) -> int:
        """`wanted`, cut to what is left beside the dense part where the file does not fit."""
        if not self.is_scarce:
            return wanted
        return max(0, min(wanted, self.ram_bytes - RESERVED_BYTES - (self.file_bytes - self.routed_bytes)))

    def disk_bytes(self) -> int:
        """Bytes of the file that do not fit."""
        return max(0, self.file_bytes + RESERVED_BYTES - self.ram_bytes)


class HotSetKeeper:
    """budget.bytes 0: no hot set, and no thread. Stop it before the dispatcher's transport."""

    def __init__(
        self,
        index: ModelIndex,
        dispatcher: Dispatcher,
        budget: HotBudget,
        *,
        memory: HostMemory | None = None,
        plan_seconds: float = PLAN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.memory = memory or HostMemory(memory_bytes(), index.total_bytes, index.routed_bytes)
        self.budget = replace(
            budget, bytes=self.memory.pinnable_bytes(budget.bytes), uncovered_first=self.memory.is_scarce
        )
        self._dispatcher = dispatcher
        layers, experts = dispatcher.shape
        self._expert_bytes = np.zeros(layers, np.int64)
        for number, layer in index.layers.items():
            self._expert_bytes[number] = layer.expert_bytes
        self._meter = LoadMeter(self._expert_bytes, experts)
        self._pins = Pins(index)
        self._plan_seconds, self._clock = plan_seconds, clock
        self._read_at = clock()
        nothing = np.zeros((layers, experts), bool)
        self.plan = HotPlan(nothing, np.zeros(layers), np.zeros(layers), 0)
        self.changes = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hot-set", daemon=True)

    @property
    def is_on(self) -> bool:
        return self.budget.bytes > 0

    def start(self) -> None:
        if self.is_on:
            self._thread.start()

    def stop(self) -> None:
        """Releases the pages; the dispatcher computes nothing more here because it is hot."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._dispatcher.set_hot(None)
        self._pins.close()

    def step(self) -> None:
        """One plan."""
        now = self._clock()
        seconds, self._read_at = max(now - self._read_at, 1e-3), now
        loads = self._meter.read(self._dispatcher.layer_counts(), seconds)
        covered = self._dispatcher.covered()
        plan = plan_hot_set(loads, covered, self._expert_bytes, self.plan.flags, self.budget)
        changed = int((plan.flags ^ self.plan.flags).sum())
        self.plan = plan
        if changed:
            self.changes += changed
            self._dispatcher.set_hot(plan.flags)
            self._pins.keep(plan.flags)

    def status(self) -> dict[str, Any]:
        """What `/api/stats` shows; flags: bits of (layers, experts), see `hot_set.unpack_flags`."""
        plan, busy = self.plan, self.plan.budget_seconds > 0
        return {
            "on": self.is_on,
            "experts": plan.experts,
            "bytes": plan.bytes,
            "budget_bytes": self.budget.bytes,
            "pinned_bytes": self._pins.bytes,
            "pin_error": self._pins.error,
            "seconds_per_call": float(plan.seconds[busy].mean()) if busy.any() else 0.0,
            "budget_seconds_per_call": float(plan.budget_seconds[busy].mean()) if busy.any() else 0.0,
            "changes": self.changes,
            "ram_bytes": self.memory.ram_bytes,
            "on_disk_bytes": self.memory.disk_bytes(),
            "layers": plan.flags.shape[0],
            "flags": pack_flags(plan.flags),
        }

    def _run(self) -> None:
        while not self._stopping.wait(self._plan_seconds):
            try:
                self.step()
            except Exception:
                logger.exception("the hot set stays as it is")


def core_share(lanes: int, threads: int) -> float:
    """The part of a lane's wait in which its threads find free cores: less than 1 where lanes outnumber cores.

    threads: cores over all lanes together, 0: all of this process.
    """
    cores, lanes = len(os.sched_getaffinity(0)), max(1, lanes)
    per_lane = max(1, (threads or cores) // lanes)
    return min(1.0, cores / (lanes * per_lane))
