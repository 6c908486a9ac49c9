"""`/metrics`: the figures of `stats` as Prometheus text. Names and labels are an interface: docs/metrics.md."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inference.stats import Stats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "expertswarm_"

# (name in the status of a backbone, metric, help): counters grow until that backbone restarts, so each has its boot.
BACKBONE_COUNTERS = (
    ("tokens_generated", "generated_tokens", "Tokens generated."),
    ("prompt_tokens", "prompt_tokens", "Prompt tokens read."),
    ("reused_tokens", "reused_prompt_tokens", "Prompt tokens whose state was kept and not read again."),
    ("decodes", "decodes", "Calls of llama_decode."),
    ("failed_decodes", "failed_decodes", "Calls of llama_decode that failed."),
)
BACKBONE_GAUGES = (
    ("tokens_per_second", "tokens_per_second", "Tokens generated per second, averaged over about ten seconds."),
    ("sequences_limit", "sequences_limit", "Sequences that may run at once."),
    ("sessions", "worker_sessions", "Worker sessions that the backbone can use."),
)

HOT_SET_GAUGES = (
    ("experts", "hot_experts", "Covered experts that the backbone computes itself."),
    ("bytes", "hot_bytes", "Their bytes."),
    ("pinned_bytes", "hot_pinned_bytes", "Of them locked in RAM."),
    ("seconds_per_call", "hot_seconds_per_call", "Expected local time per layer call."),
    ("budget_seconds_per_call", "hot_budget_seconds_per_call", "Wait for workers that it may fill."),
)


def render(stats: Stats, *others: Collector) -> bytes:
    """The Prometheus text of a snapshot, and of what else there is."""
    registry = CollectorRegistry()
    for collector in (StatsCollector(stats), *others):
        registry.register(collector)
    return generate_latest(registry)


class StatsCollector(Collector):
    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        yield from self._of_backbones()
        yield from self._of_rows()
        yield from self._of_market()

    def _of_backbones(self) -> Iterator[Metric]:
        backbones = self._stats["backbones"]
        yield gauge("backbones", "Backbones that spoke within the last seconds.", len(backbones))
        sequences = GaugeMetricFamily(PREFIX + "sequences", "Sequences by state.", labels=("backbone", "state"))
        for backbone in backbones:
            sequences.add_metric((backbone["boot"], "active"), backbone["sequences_active"] or 0)
            sequences.add_metric((backbone["boot"], "waiting"), backbone["sequences_waiting"] or 0)
        yield sequences
        for name, metric, text in BACKBONE_COUNTERS:
            counter = CounterMetricFamily(PREFIX + metric, text, labels=("backbone",))
            for backbone in backbones:
                counter.add_metric((backbone["boot"],), backbone[name] or 0)
            yield counter
        for name, metric, text in BACKBONE_GAUGES:
            family = GaugeMetricFamily(PREFIX + metric, text, labels=("backbone",))
            for backbone in backbones:
                family.add_metric((backbone["boot"],), backbone[name] or 0)
            yield family
        yield from self._of_hot_sets()

    def _of_hot_sets(self) -> Iterator[Metric]:
        for name, metric, text in HOT_SET_GAUGES:
            family = GaugeMetricFamily(PREFIX + metric, text, labels=("backbone",))
            for hot_set in self._stats["hot_sets"]:
                family.add_metric((hot_set["backbone"],), hot_set[name])
            yield family

    def _of_rows(self) -> Iterator[Metric]:
        rows = CounterMetricFamily(
            PREFIX + "expert_rows", "Rows ((token, expert) pairs) by where they were computed.", labels=("place",)
        )
        for place, count in self._stats["rows"].items():
            rows.add_metric((place,), count)
        yield rows
        moments = CounterMetricFamily(
            PREFIX + "dispatch_moments", "What the dispatcher met: retries, audits, bytes.", labels=("moment",)
        )
        for moment, count in self._stats["moments"].items():
            moments.add_metric((moment,), count)
        yield moments
        audits = CounterMetricFamily(PREFIX + "audits", "Audits and audited rows by outcome.", labels=("outcome",))
        for outcome, count in self._stats["audits"].items():
            audits.add_metric((outcome,), count)
        yield audits
        failures = CounterMetricFamily(PREFIX + "worker_failures", "Failed requests.", labels=("node", "code"))
        for failure in self._stats["failures"]:
            failures.add_metric((failure["node"], failure["code"]), failure["count"])
        yield failures
        seconds = GaugeMetricFamily(
            PREFIX + "worker_answer_seconds", "Smoothed time until a worker's answer.", labels=("backbone", "node")
        )
        answers = CounterMetricFamily(PREFIX + "worker_answers", "Answers.", labels=("backbone", "node"))
        for owner in self._stats["owners"]:
            seconds.add_metric((owner["backbone"], owner["node"]), owner["seconds"])
            answers.add_metric((owner["backbone"], owner["node"]), owner["answers"])
        yield seconds
        yield answers

    def _of_market(self) -> Iterator[Metric]:
        stats = self._stats
        yield gauge("workers_live", "Workers that a backbone uses.", stats["workers"]["live"])
        claims = GaugeMetricFamily(PREFIX + "claims", "Open claims by state.", labels=("state",))
        for state, count in stats["claims"].items():
            claims.add_metric((state,), count)
        yield claims
        experts = GaugeMetricFamily(PREFIX + "experts", "Experts by how far they are covered.", labels=("state",))
        for state in ("offered", "claimed", "live"):
            experts.add_metric((state,), stats["experts"][state])
        yield experts
        yield gauge("replicas_live", "Verified replicas of experts.", stats["experts"]["replicas_live"])
        generations = GaugeMetricFamily(
            PREFIX + "generations_open", "Generations that have not ended.", labels=("state",)
        )
        for state in ("queued", "running"):
            generations.add_metric((state,), stats["queue"].get(state, 0))
        yield generations
        reachable = GaugeMetricFamily(PREFIX + "store_reachable", "1 when the store answers.", labels=("store",))
        for store, answers in stats["reachable"].items():
            reachable.add_metric((store,), int(answers))
        yield reachable


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)
