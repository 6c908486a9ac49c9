"""Stages that listen on loopback, in threads of this process: real contexts, real connections."""

import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from inference.gguf_index import open_index
from inference.llama import Model
from inference.ring.directory import StageDirectory
from inference.stage.program import service_of
from inference.stage.server import StageServer

SECRET = b"a secret of the stages"


class RunningStage:
    """One stage file behind a port. A context manager."""

    def __init__(self, path: Path, port: int = 0, rings: int = 4) -> None:
        self._model = Model(path)
        self.service = service_of(self._model, rings=rings)
        self.server = StageServer(self.service, socket.create_server(("127.0.0.1", port)), SECRET)
        self.address = f"127.0.0.1:{self.server.port}"
        self._thread = threading.Thread(target=self.server.serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """As a process that ends: every connection is closed."""
        self.server.close()
        self._thread.join()
        self._model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            self.stop()


def directory_of(model: Path, addresses: list[str], secret: bytes = SECRET) -> StageDirectory:
    index = open_index(model)
    return StageDirectory(addresses, secret, fingerprint=index.fingerprint, layers=index.trunk_layers)
