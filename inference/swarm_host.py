"""The swarm as one process sees it: relay link, dispatcher, verification, audits, hot set, credit.

What a backbone and a stage of an operator have in common: both compute layers whose experts workers hold. It owns its
threads; reports leave through the market's functions.
"""

import logging
from dataclasses import replace
from functools import partial
from typing import Any

import redis

from inference.audit import Auditor, NodeClass
from inference.backend import SwarmBackend
from inference.bookkeeper import Bookkeeper, NotAcknowledged
from inference.challenge import ExpertOracle
from inference.credit_spool import CreditSpool
from inference.dispatch import Dispatcher
from inference.findings import FindingReporter
from inference.gguf_index import ModelIndex
from inference.host_settings import HostSettings, MarketPort
from inference.hot_set import HotBudget
from inference.hot_set_keeper import HotSetKeeper, core_share
from inference.kernel import CpuRuntime, kernel_class_name
from inference.layer_step import owner_of
from inference.replica_table import ReplicaTable
from inference.verification import Verifier
from relay.backbone_link import BackboneLink
from relay.directory import DirectoryWatch

logger = logging.getLogger(__name__)


class SwarmParts:
    """boot: of this process; own_layers: those that it computes, None: all. Raises what their making raises."""

    def __init__(
        self,
        settings: HostSettings,
        market: MarketPort,
        index: ModelIndex,
        client: "redis.Redis",
        *,
        boot: str,
        name: str,
        own_layers: range | None = None,
    ) -> None:
        self.settings, self.market, self.index, self.boot = settings, market, index, boot
        self.link = BackboneLink(
            settings.relay_urls,
            token=settings.backbone_token,
            build=index.fingerprint,
            kernel_class=kernel_class_name(),
            name=name,
            on_roster=self._on_roster,
        )
        self.relays = DirectoryWatch(client, settings.relay_fallback, self.link.set_relays)
        # Experts of other layers may not even be on this host.
        own = index if own_layers is None else replace(
            index, layers={layer: experts for layer, experts in index.layers.items() if layer in own_layers}
        )  # fmt: skip
        # An oracle of its own: the verifier uses the other one in its thread.
        self.auditor = Auditor(
            ExpertOracle(own, CpuRuntime(1)), kernel_class_name(), lambda finding: self.findings.report(finding)
        )
        self.dispatcher = Dispatcher(
            self.link,
            layers=max(index.layers) + 1,
            experts_per_layer=index.experts_per_layer,
            policy=settings.policy,
            auditor=self.auditor,
        )
        budget = HotBudget(
            settings.hot_set_bytes, settings.hot_set_seconds, core_share(settings.lanes, settings.threads)
        )
        self.hot_set = HotSetKeeper(own, self.dispatcher, budget)
        self.findings = FindingReporter(
            self.dispatcher.ban,
            market.record_finding,
            take_passes=self.auditor.take_passes,
            tell_passes=partial(market.record_passes, boot),
            window_seconds=settings.window_seconds,
        )
        self._trusted: set[NodeClass] = set()
        self.backend = SwarmBackend.install(self.dispatcher)
        self.backend.takes_weights = settings.policy.is_compact
        self.verifier = Verifier(
            own,
            ExpertOracle(own, CpuRuntime(1)),
            self.link,
            on_table=self._on_table,
            on_verdict=market.record_verdict,
            name=name,
        )
        self.bookkeeper = Bookkeeper(
            build=index.fingerprint,
            boot=boot,
            take_report=self.dispatcher.take_report,
            send_credit=market.credit_window,
            send_demand=lambda demand, since, until: market.observe_demand(index, demand, since, until),
            spool=CreditSpool(settings.var_dir / "spool"),
            window_seconds=settings.window_seconds,
            spool_seconds=settings.spool_seconds,
            demand_seconds=settings.demand_seconds,
            note_strain=lambda report: market.note_strain(index, boot, self.dispatcher.strain(report)),
        )

    def start(self) -> None:
        """Starts every thread."""
        for part in (
            self.findings, self.auditor, self.hot_set, self.bookkeeper, self.verifier, self.link
        ):  # fmt: skip
            part.start()
        if not self.settings.relay_urls:
            self.relays.start()

    def stop(self) -> None:
        """Ends them in order and sends the credit that is due; nothing computes any more."""
        self.hot_set.stop()
        if not self.settings.relay_urls:
            self.relays.stop()
        for part in (self.verifier, self.link, self.auditor, self.findings, self.bookkeeper):
            part.stop()

    def status(self) -> dict[str, Any]:
        """What a status tells of workers and of rows by where they were computed."""
        totals = self.bookkeeper.totals
        return {
            "relays_connected": self.link.relays_connected,
            "sessions": len(self.link.sessions),
            "workers": self.dispatcher.worker_count(),
            "replicas": self.dispatcher.replica_count(),
            "rows": {str(place): rows for place, rows in totals.places.items()} if totals else {},
            "moments": {str(moment): count for moment, count in totals.moments.items()} if totals else {},
            "audits": dict(self.auditor.counts),
            "hot_set": self.hot_set.status(),
            "failures": [[node, code, count] for (node, code), count in totals.failures.items()] if totals else [],
            "owners": {
                node: {"seconds": seconds, "deviation_seconds": deviation, "answers": answers}
                for node, (seconds, deviation, answers) in self.dispatcher.owner_times().items()
            },
        }

    def _on_table(self, table: ReplicaTable) -> None:
        """Trust that was earned before comes from the market before a node's first answer; in the verifier's thread."""
        for who in {owner_of(replica) for replica in table.replicas} - self._trusted:
            try:
                self.auditor.trust(who, self.market.trust_of(who))
            except NotAcknowledged as error:
                logger.warning("node %s begins without trust: %s", who.node_id, error)
            self._trusted.add(who)
        self.dispatcher.set_replicas(table)

    def _on_roster(self, roster: Any) -> None:
        self.verifier.set_roster(roster)
