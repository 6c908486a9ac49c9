"""A stage of an operator whose experts the swarm computes: stage file, listening socket, and the parts of a backbone
that deal with workers (`inference.swarm_host`). Its own experts are the fallback, where the file has them.

It counts, audits and credits as a backbone does, under a boot of its own, for the layers that it holds.
"""

import itertools
import logging
import secrets
from contextlib import AbstractContextManager
from pathlib import Path

import redis

from inference.errors import NotAStage
from inference.gguf_index import open_index
from inference.host_settings import HostSettings, MarketPort
from inference.llama import ContextSettings, Model
from inference.stage.program import serve, service_of
from inference.stage_context import StageInfo
from inference.swarm_host import SwarmParts

logger = logging.getLogger(__name__)


class StageHost:
    """A stage until SIGINT or SIGTERM. Raises NotAStage for a file that was not cut from the model of the settings."""

    def __init__(self, settings: HostSettings, market: MarketPort, path: Path, *, rings: int) -> None:
        self._settings, self._market, self._path, self._rings = settings, market, path, rings
        self.index = open_index(settings.model_path)
        self.boot = secrets.token_hex(8)
        self._numbers = itertools.count()

    def run(self, listen: tuple[str, int]) -> None:
        """Raises InferenceError, OSError, redis.RedisError."""
        with Model(self._path, gpu_layers=self._settings.gpu_layers) as model:
            info = StageInfo.of(model)
            if info.model != self.index.fingerprint:
                raise NotAStage(f"{self._path} was cut from another model than {self.index.path}")
            client = redis.Redis.from_url(self._settings.redis_url)
            swarm = SwarmParts(
                self._settings, self._market, self.index, client, boot=self.boot, name=f"stage-{self.boot[:6]}",
                own_layers=range(info.first_layer, info.last_layer),
            )  # fmt: skip
            swarm.backend.first_layer = info.first_layer
            swarm.backend.has_weights = info.has_experts

            def lane_context(settings: ContextSettings) -> AbstractContextManager[object]:
                return swarm.backend.lane(next(self._numbers), settings.threads)

            # While a step waits for workers another one computes.
            service = service_of(model, rings=self._rings, at_once=self._rings, lane_context=lane_context)
            swarm.start()
            try:
                serve(service, listen, self._settings.stage_secret)
            finally:
                swarm.stop()
                client.close()
