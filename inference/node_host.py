"""What one backbone process runs: model and lanes, relay link, dispatcher, verifier, bookkeeper, token writer.

Made from the settings by the Celery bootstep, or from values by tests; it owns the threads and stops them in order. It
is the one place of `inference` where the pure parts meet the market's commands (through `inference.tasks`).
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import redis

from inference import backbone_status, token_stream
from inference.engine import STOPPED, Engine
from inference.errors import InferenceError
from inference.generation import GenerationRequest, TokenEvent
from inference.gguf_index import open_index
from inference.host_settings import HostSettings, MarketPort
from inference.kernel import kernel_class_name
from inference.ring.directory import StageDirectory
from inference.ring.policy import Rings
from inference.ring.sources import RingSources
from inference.stage_market import StageMarket, stages_of
from inference.swarm_host import SwarmParts
from inference.token_stream import StreamedToken
from inference.token_writer import TokenWriter
from inference.trace_folder import make_room

logger = logging.getLogger(__name__)


class CancelListener:
    """Hears which generations to cancel (Redis publish/subscribe) and tells the engine."""

    def __init__(self, client: "redis.Redis", cancel: Callable[[str], object]) -> None:
        self._pubsub: Any = client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._cancel = cancel
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cancel-listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._pubsub.close()

    def _run(self) -> None:
        subscribed = False
        while not self._stopping.is_set():
            try:
                if not subscribed:
                    self._pubsub.subscribe(token_stream.CANCEL_CHANNEL)
                    subscribed = True
                message: Any = self._pubsub.get_message(timeout=0.5)
                if message is not None:
                    self._cancel(message["data"].decode())
            except redis.RedisError as error:
                logger.warning("cannot hear cancellations: %s", error)
                subscribed = False
                self._stopping.wait(1.0)


class NodeHost:
    """A backbone. `current()` is the one of this process, which tasks submit to."""

    _current: ClassVar["NodeHost | None"] = None

    def __init__(self, settings: HostSettings, market: MarketPort) -> None:
        self.settings = settings
        self.market = market
        self.boot = secrets.token_hex(8)
        self.name = f"backbone-{self.boot[:6]}"
        self.started = time.time()
        self.index = open_index(settings.model_path)
        self.redis = redis.Redis.from_url(settings.redis_url)
        self._stop_status = threading.Event()
        self._status_thread = threading.Thread(target=self._publish_status, name="status", daemon=True)
        self._build_parts()

    @classmethod
    def from_settings(cls) -> "NodeHost":
        """The backbone that config/settings.py describes; raises InferenceError with what to do."""
        from inference.reports import host_settings, market_port

        return cls(host_settings(), market_port())

    @classmethod
    def current(cls) -> "NodeHost | None":
        return cls._current

    def _build_parts(self) -> None:
        settings, index = self.settings, self.index
        self.swarm = SwarmParts(settings, self.market, index, self.redis, boot=self.boot, name=self.name)
        self.stages = StageDirectory(
            settings.stages,
            settings.stage_secret,
            fingerprint=index.fingerprint,
            layers=index.trunk_layers,
            step_seconds=settings.ring_step_seconds,
        )
        source = stages_of(index) if settings.offers_stages else None
        self.stage_market = None if source is None else StageMarket(
            settings, self.market, source, self.redis, boot=self.boot, name=self.name
        )  # fmt: skip
        self.ring_sources = RingSources(
            [*([self.stages] if settings.stages else []), *([self.stage_market.stages] if self.stage_market else [])]
        )
        dispatcher = self.swarm.dispatcher
        self.engine = Engine(
            settings.model_path,
            lanes=settings.lanes,
            sequences=settings.sequences,
            context_tokens=settings.context_tokens,
            threads=settings.threads,
            gpu_layers=settings.gpu_layers,
            lane_context=self.swarm.backend.lane,
            # A folder for each boot: a trace that is begun again would lose what it should prove.
            trace_dir=settings.trace_dir / self.boot if settings.trace_dir else None,
            trace_bytes=settings.trace_bytes / 2,
            on_unwanted=dispatcher.abort,
            row_places=dispatcher.row_places,
            trusted_lanes=dispatcher.trusted_lanes,
            prefill_tokens=settings.prefill_tokens,
            kept_sequences=settings.kept_sequences,
            rings=self._rings(),
        )
        self.writer = TokenWriter(self.redis)
        self.cancels = CancelListener(self.redis, self.engine.cancel)

    def _rings(self) -> Rings | None:
        settings = self.settings
        if settings.offers_stages and not settings.lanes:
            raise InferenceError("BACKBONE_OFFERS_STAGES needs lanes of its own (BACKBONE_LANES), which check stages")
        if not self.ring_sources:
            if not settings.lanes:
                raise InferenceError("a backbone needs lanes of its own (BACKBONE_LANES) or stages (STAGES)")
            return None
        return Rings(
            self.ring_sources.open_line, self.ring_sources.has_ring, settings.ring_lanes, settings.ring_sequences,
            settings.ring_threads, settings.ring_patience_seconds, has_strangers=self.stage_market is not None,
        )  # fmt: skip

    def start(self) -> None:
        """Publishes the build, starts every thread; raises InferenceError or redis.RedisError."""
        if self.settings.trace_dir:
            alive = {self.boot, *backbone_status.alive_boots(self.redis)}
            make_room(self.settings.trace_dir, self.settings.trace_bytes // 2, alive=alive)
        self.market.publish_build(self.index)
        self.writer.start()
        self.stages.start()
        if self.stage_market:
            self.stage_market.start()
        self.engine.start()
        self.swarm.start()
        self.cancels.start()
        self._status_thread.start()
        NodeHost._current = self

    def stop(self, drain_seconds: float) -> None:
        """Takes no new generations, waits up to `drain_seconds` for the running ones, sends the credit that is due."""
        NodeHost._current = None
        self._stop_status.set()
        self.stages.stop()
        self.ring_sources.stop()  # open rings go on; nobody waits for a lost stage any more
        self.engine.stop(drain_seconds)
        if self.stage_market:
            self.stage_market.stop()
        self.cancels.stop()
        self.swarm.stop()
        self.writer.stop()
        try:
            backbone_status.withdraw(self.redis, self.boot)
        except redis.RedisError as error:
            logger.warning("the status stays in Redis until it expires: %s", error)
        self.redis.close()

    def submit(
        self, generation_id: str, attempt: int, request: GenerationRequest, on_end: Callable[[str, int, str], None]
    ) -> None:
        """Starts a generation; its tokens go to the Redis stream. Raises what `Engine.submit` raises.

        on_end(finish, tokens generated, error): called once, from a lane's thread. With the error STOPPED the stream
        gets no end: another backbone may go on.
        """

        def on_event(event: TokenEvent) -> None:
            if event.error != STOPPED:
                self.writer.put(generation_id, streamed(attempt, event))
            if event.finish is not None:
                generated = event.index + (event.token >= 0)
                on_end(event.finish, generated, event.error)

        self.engine.submit(request, on_event)

    def status(self) -> backbone_status.Status:
        """What `/api/stats` shows of this backbone."""
        stats = self.engine.stats()
        return {
            "started": self.started,
            "build": self.index.fingerprint,
            "model": self.index.name,
            "kernel_class": kernel_class_name(),
            "layers": self.index.trunk_layers,
            "experts_per_layer": self.index.experts_per_layer,
            "sequences_active": stats.sequences_active,
            "sequences_waiting": stats.sequences_waiting,
            "sequences_limit": stats.sequences_limit,
            "tokens_generated": stats.tokens_generated,
            "prompt_tokens": stats.prompt_tokens,
            "reused_tokens": stats.reused_tokens,
            "tokens_per_second": stats.tokens_per_second,
            "decodes": stats.decodes,
            "failed_decodes": stats.failed_decodes,
            "rings": self._ring_status() if self.ring_sources else None,
            **self.swarm.status(),
        }

    def _ring_status(self) -> dict[str, Any]:
        counts = self.engine.ring_counts()
        leased = self.stage_market.status() if self.stage_market else {"stages": {}, "audits": {}}
        named = {address: [stage.first, stage.last] for address, stage in self.stages.known.items()}
        return {
            "is_whole": self.ring_sources.has_ring(),
            "stages": named | leased["stages"],
            "stage_audits": leased["audits"],
            "steps": counts.steps,
            "rings_lost": counts.losses,
            "replayed_tokens": counts.replayed_tokens,
        }

    def _publish_status(self) -> None:
        while True:
            try:
                backbone_status.publish(self.redis, self.boot, self.status())
            except redis.RedisError as error:
                logger.warning("cannot publish the status: %s", error)
            if self._stop_status.wait(backbone_status.PUBLISH_SECONDS):
                return


def streamed(attempt: int, event: TokenEvent) -> StreamedToken:
    """The stream's entry of a token event."""
    return StreamedToken(
        attempt=attempt,
        index=event.index,
        token=event.token,
        text=event.text,
        finish=event.finish or "",
        logprob=event.logprob,
        top=event.top_logprobs,
        error=event.error,
        places=event.places,
    )
