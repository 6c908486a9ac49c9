"""Stages as child processes on this host: cut from a model, started, killed, replaced at the same address."""

from __future__ import annotations

import json
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from inference.errors import InferenceError
from inference.gguf_index import ModelIndex
from inference.ring.directory import StageDirectory
from inference.slices import write_slice
from inference.stage_file import open_stages

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 15.0
STAGE_MODULE = "inference.stage"


class StageNotStarted(InferenceError):
    """A stage process did not come up."""

    code = "stage_not_started"


def cut_stages(index: ModelIndex, folder: Path, stages: int, *, hollow: bool = False) -> list[Path]:
    """The files of so many stages over all layers, as even as the model allows; kept. hollow: without experts. Raises
    GGUFError."""
    folder.mkdir(parents=True, exist_ok=True)
    source = open_stages(index)
    paths = []
    for first, last in source.cuts.even(stages):
        path = folder / f"{index.path.stem}-{first}-{last}{'-hollow' if hollow else ''}.gguf"
        if not path.exists():
            write_slice(source.plan(*source.cuts.units_of(first, last), without_experts=hollow), path)
        paths.append(path)
    return paths


@dataclass
class StageProcess:
    """A stage that listens at 127.0.0.1:port."""

    path: Path
    process: subprocess.Popen[str]
    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


class StageProcesses:
    """One process per stage file; a context manager. Raises StageNotStarted.

    module, options: another program than `python -m inference.stage`, and what it is told beside model, address and
    secret; it must print a line that ends with its port.
    """

    def __init__(
        self, paths: Sequence[Path], folder: Path, *, module: str = STAGE_MODULE, options: Sequence[str] = ()
    ) -> None:
        self._paths = tuple(paths)
        self._module, self._options = module, tuple(options)
        self.secret = secrets.token_hex(16).encode()
        folder.mkdir(parents=True, exist_ok=True)
        self.secret_file = folder / "stage.secret"
        self.stages: list[StageProcess] = []

    def __enter__(self) -> Self:
        self.secret_file.touch(0o600)
        self.secret_file.write_bytes(self.secret)
        try:
            for path in self._paths:
                self.stages.append(self._start(path, 0))
            for stage in self.stages:
                self._wait(stage)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stage in self.stages:
            stage.process.kill()
            stage.process.communicate()

    @property
    def addresses(self) -> list[str]:
        return [stage.address for stage in self.stages]

    def directory(self, index: ModelIndex, addresses: Sequence[str] = ()) -> StageDirectory:
        """Rings over these stages; addresses: other ways to them."""
        return StageDirectory(
            addresses or self.addresses, self.secret, fingerprint=index.fingerprint, layers=index.trunk_layers
        )

    def kill(self, number: int) -> None:
        """SIGKILL, as a machine that loses power."""
        stage = self.stages[number]
        stage.process.kill()
        stage.process.communicate()

    def replace(self, number: int) -> None:
        """A new process with the same stage at the same address."""
        old = self.stages[number]
        self.stages[number] = self._start(old.path, old.port)
        self._wait(self.stages[number])

    def stop(self) -> list[dict[str, Any]]:
        """SIGTERM to all; what each printed last, if that was a JSON object. Raises StageNotStarted when one hangs."""
        for stage in self.stages:
            stage.process.send_signal(signal.SIGTERM)
        told = []
        for stage in self.stages:
            try:
                output, _ = stage.process.communicate(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise StageNotStarted(f"the stage {stage.path.name} does not stop") from error
            lines = [line for line in output.splitlines() if line.startswith("{")]
            told.append(json.loads(lines[-1]) if lines else {})
        return told

    def _start(self, path: Path, port: int) -> StageProcess:
        command = [
            *(sys.executable, "-m", self._module, "--model", str(path), "--listen", f"127.0.0.1:{port}"),
            *("--secret", str(self.secret_file), "--log-level", "warning", *self._options),
        ]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        return StageProcess(path, process, port)

    def _wait(self, stage: StageProcess) -> None:
        """Its first line tells where it listens."""
        assert stage.process.stdout is not None
        ready, _, _ = select.select([stage.process.stdout], [], [], START_SECONDS)
        line = stage.process.stdout.readline() if ready else ""
        if not line:
            raise StageNotStarted(f"the stage {stage.path.name} does not listen (status {stage.process.poll()})")
        stage.port = int(line.rpartition(":")[2])
