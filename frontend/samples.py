"""Figures of the server over time: a sample every few seconds, in Redis, in two rings of bounded length.

Counters are stored as they are and become rates when they are read: a lost sample costs resolution, not truth. A
counter that fell (a backbone restarted) gives no rate for that step.
"""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import redis
from django.db.models import Sum
from django.utils import timezone

from config.celery import SAMPLE_SECONDS
from inference import stats as server_stats
from inference.stats import Stats
from market import holders
from market.hours import start_of_hour
from market.models import Claim

# An hour in steps of five seconds, a day in steps of a minute.
FINE_LENGTH, COARSE_LENGTH, COARSE_STEP = 720, 1440, 12
FINE_KEY, COARSE_KEY = "samples.fine", "samples.coarse"
COUNT_KEY, NODES_KEY, MOVES_KEY = "samples.count", "samples.nodes", "samples.moves"
FINE_MINUTES = FINE_LENGTH * SAMPLE_SECONDS / 60
SPEND_SECONDS, MOVE_SECONDS = 300.0, 300.0
PLACES = ("remote", "local", "hot", "fallback")

Values = list[float | None]


@dataclass(frozen=True)
class Sample:
    """at: Unix time. rows (by PLACES), tokens, moved_bytes, joined, left: running sums. answer_p50 and p99: of the
    workers' smoothed answer times, each counted by its answers, in ms. spent: microcredits earned in this clock hour.
    """

    at: float
    tokens_per_second: float
    active: int
    waiting: int
    rows: tuple[int, ...]
    tokens: int
    moved_bytes: int
    answer_p50: float | None
    answer_p99: float | None
    nodes: int
    joined: int
    left: int
    spent: int


_NAMES = {field.name for field in fields(Sample)}


def take(client: "redis.Redis", now: float | None = None) -> Sample:
    """Measures, appends to the rings and returns the sample. Raises RedisError, DatabaseError."""
    stats = server_stats.snapshot()
    joined, left, nodes = _moves(client)
    sample = sample_of(stats, time.time() if now is None else now, (joined, left, nodes), _spent())
    text = as_text(sample)
    with client.pipeline() as pipeline:
        pipeline.lpush(FINE_KEY, text)
        pipeline.ltrim(FINE_KEY, 0, FINE_LENGTH - 1)
        pipeline.incr(COUNT_KEY)
        count = int(pipeline.execute()[-1])
    if count % COARSE_STEP == 0:
        client.lpush(COARSE_KEY, text)
        client.ltrim(COARSE_KEY, 0, COARSE_LENGTH - 1)
    return sample


def as_text(sample: Sample) -> str:
    """What is stored of a sample."""
    return json.dumps(asdict(sample), separators=(",", ":"))


def sample_of(stats: Stats, now: float, moves: tuple[int, int, int], spent: int) -> Sample:
    engine, places, moments = stats["engine"], stats["rows"], stats["moments"]
    joined, left, nodes = moves
    hot = places.get("local_hot", 0)
    rows = (
        stats["row_totals"]["remote"],
        stats["row_totals"]["local"] - hot,
        hot,
        stats["row_totals"]["fallback"],
    )
    middle, worst = answer_percentiles(stats["owners"])
    return Sample(
        at=round(now, 1),
        tokens_per_second=round(engine["tokens_per_second"], 2),
        active=engine["sequences_active"],
        waiting=engine["sequences_waiting"],
        rows=rows,
        tokens=engine["tokens_generated"] + engine["prompt_tokens"],
        moved_bytes=moments.get("sent_bytes", 0) + moments.get("received_bytes", 0),
        answer_p50=middle,
        answer_p99=worst,
        nodes=nodes,
        joined=joined,
        left=left,
        spent=spent,
    )


def answer_percentiles(owners: Sequence[Stats]) -> tuple[float | None, float | None]:
    """Median and 99th percentile in ms over all answers, each at its worker's smoothed time; None without any."""
    times = sorted((owner["seconds"], owner["answers"]) for owner in owners if owner["answers"])
    total = sum(answers for _, answers in times)
    if not total:
        return None, None
    return _percentile(times, 0.5 * total), _percentile(times, 0.99 * total)


def _percentile(times: Iterable[tuple[float, int]], rank: float) -> float:
    passed, reached = 0, 0.0
    for seconds, answers in times:
        passed, reached = passed + answers, seconds
        if passed >= rank:
            break
    return round(1000 * reached, 2)


def _moves(client: "redis.Redis") -> tuple[int, int, int]:
    """(joined, left) since the first sample, and how many devices hold a claim now."""
    now = holders.holding_nodes()
    known: Any = client.get(NODES_KEY)
    before = set(json.loads(known)) if known else now
    with client.pipeline() as pipeline:
        pipeline.set(NODES_KEY, json.dumps(sorted(now)))
        pipeline.hincrby(MOVES_KEY, "joined", len(now - before))
        pipeline.hincrby(MOVES_KEY, "left", len(before - now))
        _, joined, left = pipeline.execute()
    return int(joined), int(left), len(now)


def _spent() -> int:
    """Microcredits that claims have earned in this clock hour."""
    hour = start_of_hour(timezone.now())
    return Claim.objects.filter(hour=hour).aggregate(total=Sum("hour_microcredits"))["total"] or 0


# --- reading ----------------------------------------------------------------------------------------------------------
def read(client: "redis.Redis", minutes: float) -> list[Sample]:
    """Samples of the last minutes, oldest first; those of another version with other fields are left out.

    Raises RedisError.
    """
    fine = minutes <= FINE_MINUTES
    step = SAMPLE_SECONDS * (1 if fine else COARSE_STEP)
    texts: Any = client.lrange(FINE_KEY if fine else COARSE_KEY, 0, int(minutes * 60 / step) - 1)
    bodies = (json.loads(text) for text in reversed(texts))
    return [Sample(**{**body, "rows": tuple(body["rows"])}) for body in bodies if set(body) == _NAMES]


def rates(samples: Sequence[Sample], counter: Sequence[int], per_seconds: float = 1.0) -> Values:
    """Growth of a counter per `per_seconds` between one sample and the next; None for the first and where it fell."""
    found: Values = [None] * len(samples)
    for i in range(1, len(samples)):
        seconds = samples[i].at - samples[i - 1].at
        grown = counter[i] - counter[i - 1]
        if grown >= 0 and seconds > 0:
            found[i] = round(per_seconds * grown / seconds, 3)
    return found


def quotients(over: Sequence[int], under: Sequence[int]) -> Values:
    """Growth of one counter for each step of another; None where the other stood still or either fell."""
    found: Values = [None] * len(over)
    for i in range(1, len(over)):
        upper, lower = over[i] - over[i - 1], under[i] - under[i - 1]
        if upper >= 0 and lower > 0:
            found[i] = round(upper / lower, 1)
    return found


def trailing_rates(samples: Sequence[Sample], counter: Sequence[int], window: float, per_seconds: float) -> Values:
    """Growth per `per_seconds` over the last `window` seconds: for what comes in lumps. A counter that fell began anew
    from zero, so all that it shows then is new."""
    found: Values = []
    grown = [0] * len(samples)
    first = 0
    for i, sample in enumerate(samples):
        if i:
            step = counter[i] - counter[i - 1]
            grown[i] = grown[i - 1] + (step if step >= 0 else counter[i])
        while sample.at - samples[first].at > window:
            first += 1
        seconds = sample.at - samples[first].at
        # The first samples say too little: one device that joins would look like a crowd.
        is_long = seconds >= window / 5
        found.append(round(per_seconds * (grown[i] - grown[first]) / seconds, 4) if is_long else None)
    return found


def spend_per_hour(samples: Sequence[Sample]) -> Values:
    """Credits per hour. Pay arrives once a minute, so a shorter window would be a comb."""
    rates = trailing_rates(samples, [sample.spent for sample in samples], SPEND_SECONDS, 3600)
    return [None if rate is None else round(rate / 1e6, 4) for rate in rates]
