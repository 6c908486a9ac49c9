"""The Celery bootstep that hosts the engine in the worker of queue `backbone`, from before its first task to its last.

Order: the pool starts, then the engine, then the consumer asks for tasks. On SIGTERM Celery stops in reverse: no new
task arrives, the engine gets BACKBONE_DRAIN_SECONDS to finish its sequences (other backbones resume the rest), then the
pool waits for tasks that have ended.
"""

import logging
from typing import TYPE_CHECKING, Any

from celery import bootsteps
from django.conf import settings

if TYPE_CHECKING:
    from inference.node_host import NodeHost

logger = logging.getLogger(__name__)

QUEUE = "backbone"


class Backbone(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery's classes carry no types
    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self.host: NodeHost | None = None

    def include_if(self, parent: Any) -> bool:
        """Only the worker that consumes the queue hosts the engine; `upkeep` never loads it."""
        return QUEUE in parent.app.amqp.queues.consume_from

    def start(self, parent: Any) -> None:
        # Imported here: loading llama.cpp is not for every process that knows the Celery application.
        from inference.node_host import NodeHost

        self.host = NodeHost.from_settings()
        try:
            self.host.start()
        except Exception:
            # Celery would drop a half-started worker without stopping its steps.
            self.stop(parent)
            raise
        logger.info("the backbone is ready")

    def stop(self, parent: Any) -> None:
        self._stop(settings.BACKBONE_DRAIN_SECONDS)

    def terminate(self, parent: Any) -> None:
        """A cold shutdown: nothing is waited for."""
        self._stop(0.0)

    def _stop(self, drain_seconds: float) -> None:
        host, self.host = self.host, None
        if host is not None:
            host.stop(drain_seconds)
