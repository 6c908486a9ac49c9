"""A history to replay: what the simulation's market appended."""

from collections.abc import Sequence

from market import events as e
from market import rows as r
from market import store
from market.builds import BuildDescription
from market.policy import Policy
from market.simulation.swarm import Swarm

BATCH = 1000
RUN = 4


def ordinary_day(build: BuildDescription, events: int, replicas: int) -> list[e.Recorded]:
    """At least so many events: arrivals, claims, verdicts, demand, credits, departures; at its end so many open claims.

    What the simulated devices do not hold, others hold in runs of RUN experts each.
    """
    hours = 0.25
    while True:
        swarm = Swarm(build, Policy(), 500, seed=1)
        history: list[e.Recorded] = []
        swarm.log.history = history
        swarm.run(hours)
        if len(history) >= events:
            break
        hours *= 2
    claims = sum(claim.state in r.OPEN_STATES for claim in swarm.log.state.claims.values())
    _fill(swarm, max(0, replicas - claims))
    return history


def _fill(swarm: Swarm, claims: int) -> None:
    """That many verified claims more, spread over all experts alike."""
    log, build, at, node = swarm.log, swarm.build, swarm.moment(), "f" * 16
    log.append([e.NodeRegistered(node, "numpy", None, "f" * 64, at)])
    places = [(layer, first) for layer in build.layers for first in range(0, build.experts_per_layer - RUN + 1, RUN)]
    size = RUN * build.expert_bytes[0]
    for number in range(claims):
        layer, first = places[number % len(places)]
        fence = log.state.versions.get(e.layer_stream(build.fingerprint, layer), 0) + 1
        claim_id = log.last_claim_id + 1
        granted = e.ClaimGranted(
            claim_id, fence, node, build.fingerprint, layer, first, first + RUN, size, 1000, 1000, at
        )
        log.append([granted, e.ReplicaVerified(claim_id, build.fingerprint, layer, "0" * 64, "bench", at)])


def write(history: Sequence[e.Recorded]) -> None:
    """Writes a whole history into an empty event table; the read models stay empty."""
    with store.writing():
        for first in range(0, len(history), BATCH):
            store.record([item.event for item in history[first : first + BATCH]], {}, None)
