"""What a played backbone reports of the work it used, priced by the market's rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from market import events as e
from market.hours import allowance, hour_of
from market.ledger import credit_postings
from market.pricing import work_price

if TYPE_CHECKING:
    from market.simulation.devices import Device
    from market.simulation.swarm import Swarm


def work_credited(swarm: Swarm, devices: Sequence[Device]) -> Iterator[e.WorkCredited]:
    """One event per device that had live replicas since its last credit; the replicas of an expert share its rows."""
    shared = swarm.traffic.rows_per_hour / np.maximum(swarm.coverage.held, 1)
    sums = np.zeros((shared.shape[0], shared.shape[1] + 1))
    np.cumsum(shared, axis=1, out=sums[:, 1:])
    for device in devices:
        since, device.credited_until = device.credited_until, swarm.now
        work = [
            line
            for claim_id in device.claims
            if claim_id in swarm.live_since and (line := _line(swarm, claim_id, since, sums)).rows
        ]
        if work:
            yield e.WorkCredited(
                key=f"{device.node_id}/{swarm.now}",
                build=swarm.build.fingerprint,
                node_id=device.node_id,
                window_start=swarm.moment(since),
                window_end=swarm.moment(),
                work=tuple(work),
                counted_by_claim=True,
                postings=credit_postings(device.node_id, sum(line.amount_microcredits for line in work)),
                at=swarm.moment(),
            )


def _line(swarm: Swarm, claim_id: int, since: float, sums: np.ndarray) -> e.WorkLine:
    claim = swarm.log.state.claims[claim_id]
    row = swarm.build.row_of(claim.layer) or 0
    seconds = swarm.now - max(since, swarm.live_since[claim_id])
    rows = int((sums[row, claim.last] - sums[row, claim.first]) * seconds / 3600)
    hour = hour_of(swarm.moment())
    earned = claim.hour_microcredits if claim.hour == hour else 0
    allowed = allowance(claim.cap_microcredits_per_hour, claim.first_hour_microcredits, claim.granted_at, hour)
    price = work_price(rows, swarm.build.flops_per_row, claim.rate_microcredits_per_teraflop)
    return e.WorkLine(claim.layer, rows, claim_id, min(price, max(0, allowed - earned)))
