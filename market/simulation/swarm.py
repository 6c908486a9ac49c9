"""The loop: a queue of what happens next, each happening turned into the events that the market would append."""

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np

from market import events as e
from market import rows as r
from market.builds import BuildDescription
from market.claim_rules import grants, within_budget
from market.commands.claims import RANGES_LIMIT
from market.commands.ending import end_events, expiry_events
from market.coverage import Replicas, held_experts
from market.demand import pack_counts
from market.errors import BudgetExhausted
from market.placement import BuildMarket, best_runs
from market.policy import Policy
from market.presence import SILENT_SHARE
from market.pricing import priced_budget
from market.simulation import devices as d
from market.simulation.coverage_log import CoverageLog
from market.simulation.credits import work_credited
from market.simulation.event_log import EventLog
from market.simulation.traffic import Traffic

START = datetime(2026, 1, 1, tzinfo=UTC)
LEASE_SECONDS, UPKEEP_SECONDS = 120.0, 5.0
DEMAND_SECONDS = CREDIT_SECONDS = 300.0
SAMPLE_SECONDS, WARM_UP_SECONDS = 10.0, 1800.0
DIGEST = "0" * 64
Progress = Callable[[float], object]


class Swarm:
    """`devices` of them are online all the time: each leaver is replaced at once by a newcomer that holds nothing."""

    def __init__(self, build: BuildDescription, policy: Policy, devices: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.build, self.policy = build, policy
        self.log = EventLog(policy)
        self.coverage = CoverageLog((len(build.layers), build.experts_per_layer), WARM_UP_SECONDS)
        self.crowd = d.Crowd(random)
        self.traffic = Traffic(build, random)
        self.refused_for_budget = self.vanished = self.departures = 0
        self.target_bytes_share = 0.0
        self.online: dict[str, d.Device] = {}
        self.live_since: dict[int, float] = {}
        self._count = devices
        self._absent: list[d.Device] = []
        self._silent: Replicas = np.zeros(self.coverage.shape, np.uint16)
        self._sizes = np.array(build.expert_bytes, np.int64)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self.now = 0.0

    def run(self, hours: float, progress: Progress = lambda _share: None) -> None:
        end = hours * 3600
        self._open()
        while self._queue and self._queue[0][0] <= end:
            self.now, _, happening = heapq.heappop(self._queue)
            happening()
            progress(self.now / end)
        self.now = end
        self.coverage.finish(end)

    def _open(self) -> None:
        policy = self.policy
        self.log.append(
            [
                e.BuildPublished(self.build, START),
                e.PolicyChanged(
                    policy.budget_microcredits_per_hour,
                    policy.price_ceiling_microcredits_per_teraflop,
                    policy.target_replicas,
                    policy.maximum_replicas,
                    policy.target_bytes_percent,
                    policy.standby_percent,
                    "operator",
                    "simulated",
                    START,
                ),
            ]
        )
        self._layers = [self.log.state.layers[self.build.fingerprint, layer] for layer in self.build.layers]
        for _ in range(self._count):
            self._at(self.crowd.between((0.0, d.POLL_SECONDS[1])), self._arrive)
        self._every(UPKEEP_SECONDS, self._upkeep)
        self._every(DEMAND_SECONDS, self._observe)
        self._every(CREDIT_SECONDS, lambda: self._credit(list(self.online.values())))
        self._every(SAMPLE_SECONDS, self._sample)

    def _at(self, moment: float, happening: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (moment, self._sequence, happening))

    def _every(self, seconds: float, happening: Callable[[], None]) -> None:
        def again() -> None:
            happening()
            self._at(self.now + seconds, again)

        self._at(seconds, again)

    def moment(self, seconds: float | None = None) -> datetime:
        return START + timedelta(seconds=self.now if seconds is None else seconds)

    def replicas(self) -> Replicas:
        """What the market believes: pending and live claims."""
        return np.stack([layer.replicas for layer in self._layers])

    # --- a device's life ----------------------------------------------------------------------------------------------
    def _arrive(self) -> None:
        device = self.crowd.arrive(self.now)
        self.online[device.node_id] = device
        token = device.node_id.rjust(64, "0")
        self.log.append([e.NodeRegistered(device.node_id, "numpy", device.capacity_bytes, token, self.moment())])
        self._at(self.now + self.crowd.between(d.DECIDES_SECONDS), lambda: self._claim(device))
        self._at(device.leaves_at, lambda: self._leave(device))

    def _market(self, device: d.Device) -> BuildMarket:
        state, build = self.log.state, self.build
        own = [state.claims[claim_id] for claim_id in device.claims]
        ranges = [(build.row_of(claim.layer) or 0, claim.first, claim.last) for claim in own]
        demand = state.demand.get(build.fingerprint)
        return BuildMarket(
            build=build,
            replicas=self.replicas(),
            rows_per_hour=np.zeros(self.coverage.shape) if demand is None else demand.rows_per_hour,
            held=held_experts(ranges, *self.coverage.shape),
            computable=np.ones(self.coverage.shape[0], np.bool_),
            policy=self.policy,
            budget_microcredits_per_hour=priced_budget(self.policy.budget_microcredits_per_hour),
            silent=self._silent,
        )

    def _claim(self, device: d.Device) -> None:
        """What POST /api/claims does with `best_for_budget_bytes`, and the downloads that follow."""
        if device.gone:
            return
        runs = best_runs(self._market(device), device.free_bytes, RANGES_LIMIT)
        try:
            runs = within_budget(runs, self.log.purse(self.moment()), all_or_none=False) if runs else []
        except BudgetExhausted:
            self.refused_for_budget += 1
            runs = []
        granted = grants(
            self.build.fingerprint, device.node_id, runs, self.log.last_claim_id, self.log.state.versions, self.moment()
        )
        self.log.append(granted)
        device.downloading_until = max(device.downloading_until, self.now)
        for grant in sorted(granted, key=lambda grant: grant.claim_id):
            device.claims.append(grant.claim_id)
            device.free_bytes -= grant.size_bytes
            device.downloading_until += grant.size_bytes / device.bytes_per_second
            self._at(device.downloading_until, lambda claim=grant.claim_id: self._delivered(device, claim))  # type: ignore[misc]
        if device.free_bytes >= self._sizes.min():
            self._at(self.now + self.crowd.between(d.POLL_SECONDS), lambda: self._claim(device))

    def _delivered(self, device: d.Device, claim_id: int) -> None:
        if device.gone:
            return
        claim = self.log.state.claims[claim_id]
        self.log.append([e.SliceDelivered(claim_id, claim.build, claim.layer, DIGEST, self.moment())])
        self._at(self.now + self.crowd.between(d.CHALLENGE_SECONDS), lambda: self._verified(device, claim_id))

    def _verified(self, device: d.Device, claim_id: int) -> None:
        if device.gone:
            return
        claim = self.log.state.claims[claim_id]
        self.log.append([e.ReplicaVerified(claim_id, claim.build, claim.layer, DIGEST, "backbone", self.moment())])
        self.live_since[claim_id] = self.now
        self.coverage.take(self.now, self.build.row_of(claim.layer) or 0, claim.first, claim.last)

    def _leave(self, device: d.Device) -> None:
        self._credit([device])
        device.gone = True
        self.departures += 1
        del self.online[device.node_id]
        claims = [self.log.state.claims[claim_id] for claim_id in device.claims]
        for claim in claims:
            if self.live_since.pop(claim.claim_id, None) is not None:
                self.coverage.drop(self.now, self.build.row_of(claim.layer) or 0, claim.first, claim.last)
        if device.leaves != "releasing":
            self.vanished += 1
            device.last_seen = self.now - self.crowd.between((0.0, d.PING_SECONDS))
            self._absent.append(device)
        else:
            for claim in claims:
                self.log.append(end_events(claim, "owner", self.moment()))
        self._arrive()

    # --- the market's timers ------------------------------------------------------------------------------------------
    def _upkeep(self) -> None:
        """What the timer of `market.tasks` does: silent devices are no coverage, dead leases end."""
        quiet = SILENT_SHARE * LEASE_SECONDS
        silent = [one for one in self._absent if one.leaves == "closing" or self.now - one.last_seen >= quiet]
        expired = [device for device in silent if self.now - device.last_seen >= LEASE_SECONDS]
        for device in expired:
            for claim_id in device.claims:
                claim, last_seen = self.log.state.claims[claim_id], self.moment(device.last_seen)
                self.log.append(expiry_events(claim, last_seen, self.moment()))
        self._absent = [device for device in self._absent if device not in expired]
        self._silent = np.zeros(self.coverage.shape, np.uint16)
        for device in silent:
            for claim_id in device.claims:
                claim = self.log.state.claims[claim_id]
                if claim.state in r.OPEN_STATES:
                    self._silent[self.build.row_of(claim.layer) or 0, claim.first : claim.last] += 1

    def _observe(self) -> None:
        packed, scale = pack_counts(self.traffic.observed(DEMAND_SECONDS))
        start = self.moment(self.now - DEMAND_SECONDS)
        event = e.DemandObserved(self.build.fingerprint, *self.coverage.shape, scale, packed, start, self.moment())
        self.log.append([event])

    def _credit(self, devices: list[d.Device]) -> None:
        for event in work_credited(self, devices):
            self.log.append([event])

    def _sample(self) -> None:
        """Compares what is held with the targets, and these with what is online."""
        if not self.online:
            return
        targets = self._market(next(iter(self.online.values()))).targets
        self.coverage.sample(self.now, targets)
        if (targets > self.policy.target_replicas).any():
            online = sum(device.capacity_bytes for device in self.online.values())
            wanted = int((targets.astype(np.int64) * self._sizes[:, None]).sum())
            self.target_bytes_share = max(self.target_bytes_share, wanted / online)
