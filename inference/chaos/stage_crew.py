"""The stages of a chaotic run: processes that are killed and hang, and come back at the same address."""

import os
import random
import signal
import threading
import time
from pathlib import Path

from inference.gguf_index import open_index
from inference.synthetic import SMALL, full122b
from inference.verify.stage_processes import StageProcesses, cut_stages

# The layers of one stage: three recurrent ones and one of full attention.
LAYERS_PER_STAGE = 4
# Somebody notices and starts another one.
REPLACED_AFTER_SECONDS = 1.5


def model_for(folder: Path, stages: int) -> Path:
    """A small hybrid model that can be cut into so many stages: the demo model has two."""
    return full122b(folder / f"small-{stages}-stages.gguf", layers=LAYERS_PER_STAGE * stages, shape=SMALL)


class StageCrew(StageProcesses):
    """One process per stage of the model, struck from time to time. Call `tick` often. lanes: of the server on them."""

    def __init__(self, model: Path, stages: int, folder: Path, seed: int, lanes: int) -> None:
        # Those of a backbone that was killed may not be gone yet when the next one comes.
        super().__init__(cut_stages(open_index(model), folder, stages), folder, options=["--rings", str(2 * lanes)])
        self._lanes = lanes
        self._chance = random.Random(seed)
        self._resume: dict[int, float] = {}
        self._replacing: dict[int, threading.Thread] = {}

    def environment(self, clients: int) -> dict[str, str]:
        """What a server must be told to serve rings over them."""
        return {
            "STAGES": ",".join(self.addresses),
            "STAGE_SECRET": self.secret.decode(),
            "RING_LANES": str(self._lanes),
            "RING_SEQUENCES": str(clients),
            "RING_STEP_SECONDS": "4",
        }

    def strike_dead(self) -> None:
        """SIGKILL to a stage, which is replaced a moment later."""
        number = self._someone()
        if number is not None:
            self.kill(number)
            self._replacing[number] = threading.Thread(target=self._replace_later, args=(number,), daemon=True)
            self._replacing[number].start()

    def hang(self, seconds: float) -> None:
        number = self._someone()
        if number is not None:
            os.kill(self.stages[number].process.pid, signal.SIGSTOP)
            self._resume[number] = time.monotonic() + seconds

    def tick(self) -> None:
        """Wakes who has hung long enough."""
        for number in [number for number, moment in self._resume.items() if time.monotonic() >= moment]:
            self._wake(number)

    def calm(self) -> None:
        """Everybody is awake and whoever is missing is back."""
        for number in list(self._resume):
            self._wake(number)
        for thread in self._replacing.values():
            thread.join()

    def _wake(self, number: int) -> None:
        del self._resume[number]
        os.kill(self.stages[number].process.pid, signal.SIGCONT)

    def _replace_later(self, number: int) -> None:
        time.sleep(REPLACED_AFTER_SECONDS)
        self.replace(number)

    def _someone(self) -> int | None:
        """A stage that is well."""
        busy = {number for number, thread in self._replacing.items() if thread.is_alive()} | set(self._resume)
        well = [number for number in range(len(self.stages)) if number not in busy]
        return self._chance.choice(well) if well else None
