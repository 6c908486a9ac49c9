"""A large market at one moment, for pages to show: many devices, uneven coverage, demand, pay, leavers, one liar.

The same sizes and the same moment always give the same history.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from market import events as e
from market import replay
from market.benchmarks import history
from market.builds import BuildDescription
from market.ledger import credit_postings
from market.models import NodeProfile
from market.policy import MICROCREDITS_PER_CREDIT, Policy
from market.simulation.event_log import EventLog

KERNELS = ("ggml-0.25.3+avx2", "ggml-0.25.3+avx512", "wasm-1", "numpy-2", "ggml-0.25.3+neon")
KINDS = ("phone", "laptop", "tablet", "desktop", "old phone", "mini computer")
PEOPLE = ("Ana", "Bo", "Chidi", "Dilek", "Emre", "Fatou", "Grete", "Hana", "Ivo", "Jun", "Kofi", "Lena", "Mei", "Nia")
LONG_NAME = "The very old tablet in the kitchen that is always plugged in"
LONGEST_RUN = 16
ENDED_SHARE = 0.2
DAY = timedelta(days=1)
POLICY = Policy(budget_microcredits_per_hour=5_000 * MICROCREDITS_PER_CREDIT, target_replicas=2)


@dataclass(frozen=True)
class Device:
    node_id: str
    name: str
    at: datetime


def write(build: BuildDescription, devices: int, claims: int, now: datetime) -> None:
    """Fills an empty database: so many devices and so many open claims."""
    log = EventLog(POLICY)
    log.history = []
    made = list(_devices(devices, now))
    rng = np.random.default_rng(7)
    log.append([e.BuildPublished(build, now - DAY), _policy(now - DAY)])
    for number, device in enumerate(made):
        kernel, budget = KERNELS[number % len(KERNELS)], (number % 7 + 1) * 64 * 10**6
        log.append([e.NodeRegistered(device.node_id, kernel, budget, f"{number:064x}", device.at)])
    log.append([_demand(build, rng, now)])
    _claims(log, build, made, claims, rng, now)
    _credits(log, build, made, rng, now)
    _troubles(log, made, now)
    history.write(log.history)
    replay.rebuild()
    NodeProfile.objects.bulk_create(NodeProfile(node_id=device.node_id, name=device.name) for device in made)


def _policy(at: datetime) -> e.PolicyChanged:
    return e.PolicyChanged(
        POLICY.budget_microcredits_per_hour,
        POLICY.price_ceiling_microcredits_per_teraflop,
        POLICY.target_replicas,
        POLICY.maximum_replicas,
        POLICY.target_bytes_percent,
        POLICY.standby_percent,
        by="olga",
        reason="two copies of everything",
        at=at,
    )


def _devices(count: int, now: datetime) -> Iterator[Device]:
    for number in range(count):
        name = f"{PEOPLE[number % len(PEOPLE)]}'s {KINDS[number // len(PEOPLE) % len(KINDS)]}"
        again = number // (len(PEOPLE) * len(KINDS))
        shown = LONG_NAME if number == 3 else f"{name} {again + 1}" if again else name
        yield Device(f"{(number + 1) * 0x9E3779B97F4A7C15 % 2**64:016x}", shown, now - DAY + number * DAY / (2 * count))


def _demand(build: BuildDescription, rng: np.random.Generator, now: datetime) -> e.DemandObserved:
    """A few experts of every layer are asked for much more often than the others."""
    shape = (len(build.layers), build.experts_per_layer)
    counts = np.minimum(rng.gamma(0.6, 400.0, shape), 65_535).astype("<u2")
    text = base64.b64encode(counts.tobytes()).decode()
    return e.DemandObserved(build.fingerprint, *shape, 1, text, now - timedelta(minutes=5), now)


def _claims(
    log: EventLog, build: BuildDescription, devices: list[Device], claims: int, rng: np.random.Generator, now: datetime
) -> None:
    """Open claims, and before them some that have ended. Early layers are covered better; a patch has nobody."""
    ended = int(claims * ENDED_SHARE)
    layers, experts = len(build.layers), build.experts_per_layer
    longest = max(1, min(LONGEST_RUN, experts // 4))
    for number in range(ended + claims):
        row = min(layers - 1, int(layers * rng.beta(1.0, 1.3)))
        run = 1 + int(rng.integers(longest))
        first = int(rng.integers(experts - run + 1))
        if layers * 0.55 < row < layers * 0.7 and abs(first - experts * 0.6) < experts * 0.12:
            row = layers - 1 - row // 2
        device = devices[int(len(devices) * rng.beta(0.8, 1.4)) % len(devices)]
        at = now - timedelta(minutes=50 - 45 * number / (ended + claims))
        _claim(log, build, device, (row, first, first + run), at, ends=number < ended, verified=number % 14 != 0)


def _claim(
    log: EventLog,
    build: BuildDescription,
    device: Device,
    where: tuple[int, int, int],
    at: datetime,
    *,
    ends: bool,
    verified: bool,
) -> None:
    row, first, last = where
    layer, name = build.layers[row], build.fingerprint
    claim_id = log.last_claim_id + 1
    fence = log.state.versions.get(e.layer_stream(name, layer), 0) + 1
    size, cap = (last - first) * build.expert_bytes[row], (last - first) * 40_000
    told: list[e.Event] = [
        e.ClaimGranted(claim_id, fence, device.node_id, name, layer, first, last, size, 900_000, cap, at)
    ]
    if verified:
        told.append(e.ReplicaVerified(claim_id, name, layer, "ab" * 32, "backbone", at + timedelta(seconds=20)))
    if ends:
        gone = at + timedelta(seconds=400)
        if verified:
            told.append(e.ReplicaLost(claim_id, name, layer, "owner", gone))
        told.append(e.ClaimReleased(claim_id, name, layer, "owner", gone))
    log.append(told)


def _credits(
    log: EventLog, build: BuildDescription, devices: list[Device], rng: np.random.Generator, now: datetime
) -> None:
    """One window for each device that holds something, and trust for most."""
    held: dict[str, list[int]] = {}
    for claim in log.state.claims.values():
        if claim.state == "live":
            held.setdefault(claim.node_id, []).append(claim.claim_id)
    for number, device in enumerate(devices):
        lines = tuple(
            e.WorkLine(log.state.claims[claim_id].layer, 100, claim_id, int(rng.integers(1_000, 60_000)))
            for claim_id in held.get(device.node_id, [])[:8]
        )
        if not lines:
            continue
        window = now - timedelta(minutes=3 - 2 * number / len(devices))
        amount = sum(line.amount_microcredits for line in lines)
        log.append(
            [
                e.WorkCredited(f"{build.fingerprint}/b/{number}/{device.node_id}", build.fingerprint, device.node_id,
                               window, window + timedelta(minutes=1), lines, True,
                               credit_postings(device.node_id, amount), window + timedelta(minutes=1)),
                e.NodeAudited(device.node_id, "", number % 40 + 1, 0, "backbone", window),
            ]
        )  # fmt: skip


def _troubles(log: EventLog, devices: list[Device], now: datetime) -> None:
    """What operators have done lately; devices without claims, which therefore end no claim."""
    holding = {claim.node_id for claim in log.state.claims.values()}
    idle = [device for device in devices if device.node_id not in holding]
    told: list[e.Event] = []
    for number, device in enumerate(idle[:4]):
        at = now - timedelta(minutes=40 - 5 * number)
        if number == 0:
            told.append(e.NodeQuarantined(device.node_id, "audit: 3 of 64 rows of layer 12 were wrong", "audit", at))
        elif number == 1:
            told.append(e.NodeSuspended(device.node_id, "answers late in the evening, owner asked", "olga", at))
        elif number == 2:
            told.append(e.NodeLeaving(device.node_id, now + timedelta(hours=2), "new hardware", "olga", at))
        else:
            told.append(e.NodeMessaged(device.node_id, "Your device is on battery most of the day.", "olga", at))
    told.append(e.NodeMessaged(devices[0].node_id, "Thank you for two weeks without a failure.", "olga", now))
    log.append(told)
