"""What `/metrics` says of the very process that is asked: its relay, its version; and the canaries of the queues.

Prometheus asks every web process itself, so these carry no label for it: `instance` is Prometheus' own.
"""

import time
from collections.abc import Iterable, Iterator

import redis
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from config.celery import QUEUES
from config.tasks import canary_age_seconds
from config.version import version
from inference.metrics import PREFIX
from relay.roster import Roster

# Never ran, or so long ago that nobody remembers: an alert compares ages.
NO_CANARY_SECONDS = 3600.0
_TRAFFIC = {
    "workers": ("frames_to_workers", "bytes_to_workers"),
    "backbones": ("frames_to_backbones", "bytes_to_backbones"),
}


class ProcessCollector(Collector):
    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    def collect(self) -> Iterable[Metric]:
        yield InfoMetricFamily(PREFIX + "server", "Version of the server.", value={"version": version()})
        yield from self._of_relay()
        yield canaries()

    def _of_relay(self) -> Iterator[Metric]:
        sessions = GaugeMetricFamily(PREFIX + "relay_sessions", "Sessions at this relay.", labels=("role",))
        sessions.add_metric(("worker",), len(self._roster.workers))
        sessions.add_metric(("backbone",), len(self._roster.backbones))
        yield sessions
        counters = self._roster.counters
        frames = CounterMetricFamily(PREFIX + "relay_frames", "Counted frames passed on.", labels=("to",))
        size = CounterMetricFamily(PREFIX + "relay_bytes", "Their bytes.", labels=("to",))
        for receivers, (frame_counter, byte_counter) in _TRAFFIC.items():
            frames.add_metric((receivers,), counters[frame_counter])
            size.add_metric((receivers,), counters[byte_counter])
        yield frames
        yield size
        events = CounterMetricFamily(
            PREFIX + "relay_events", "What the relay refused, dropped or closed.", labels=("event",)
        )
        traffic = {name for names in _TRAFFIC.values() for name in names}
        for name, count in sorted(counters.items()):
            if name not in traffic:
                events.add_metric((name,), count)
        yield events


def canaries() -> Metric:
    """Empty while Redis is out of reach: its own gauge says so."""
    ages = GaugeMetricFamily(
        PREFIX + "canary_age_seconds", "Since a task of the queue last ran, 3600 at most.", labels=("queue",)
    )
    try:
        for queue in QUEUES:
            age = canary_age_seconds(queue, time.time())
            ages.add_metric((queue,), NO_CANARY_SECONDS if age is None else age)
    except redis.RedisError:
        return ages
    return ages
