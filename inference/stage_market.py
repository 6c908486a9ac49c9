"""The stages of the market as one backbone uses them: verified, asked through the relay, audited, paid.

A link of its own: hidden states of whole prompts are large, and requests for experts must not wait behind them.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import redis

from inference.bookkeeper import Bookkeeper, NotAcknowledged
from inference.credit_spool import CreditSpool
from inference.errors import NoStages
from inference.findings import FindingReporter
from inference.gguf_index import ModelIndex
from inference.host_settings import HostSettings, MarketPort
from inference.kernel import kernel_class_name
from inference.llama import ContextSettings
from inference.ring.leased import LeasedStages
from inference.ring.relay_line import LeasedStage
from inference.ring.steps import Answer, Step
from inference.stage_accounts import StageAccounts, StageAuditor, who_is
from inference.stage_file import StageSource, open_stages
from inference.stage_oracle import StageOracle
from inference.stage_verification import StageVerifier
from relay.backbone_link import BackboneLink
from relay.directory import DirectoryWatch

logger = logging.getLogger(__name__)


def stages_of(index: ModelIndex) -> StageSource | None:
    """What can be offered of a model; None for one that cannot be cut. Raises GGUFError."""
    try:
        return open_stages(index)
    except NoStages as error:
        logger.info("no stages of this model are offered: %s", error)
        return None


class StageMarket:
    """boot, name: of the backbone. `stages` opens rings. It owns its threads."""

    def __init__(
        self,
        settings: HostSettings,
        market: MarketPort,
        source: StageSource,
        client: "redis.Redis",
        *,
        boot: str,
        name: str,
    ) -> None:
        self._settings, self._market, self.source = settings, market, source
        build, index = source.cuts.build, source.index
        self.link = BackboneLink(
            settings.relay_urls,
            token=settings.backbone_token,
            build=build,  # no worker has it: this link sees stages only
            kernel_class=kernel_class_name(),
            name=name,
            stages=build,
            on_stages=self._on_sessions,
        )
        self._relays = DirectoryWatch(client, settings.relay_fallback, self.link.set_relays)
        self._oracle = StageOracle(settings.model_path, source.cuts.boundaries[1:-1])
        self._accounts = StageAccounts(source.cuts.units)
        self.auditor = StageAuditor(self._oracle, kernel_class_name(), lambda finding: self._findings.report(finding))
        self.stages = LeasedStages(
            self.link,
            fingerprint=index.fingerprint,
            layers=index.trunk_layers,
            step_seconds=settings.ring_step_seconds,
            on_passed=self._passed,
        )
        self.verifier = StageVerifier(source, self._oracle, self.link, self._on_stages, market.record_verdict, name)
        self._findings = FindingReporter(
            self.verifier.ban,
            market.record_finding,
            take_passes=self.auditor.take_passes,
            tell_passes=partial(market.record_passes, boot),
            window_seconds=settings.window_seconds,
        )
        self._bookkeeper = Bookkeeper(
            build=build,
            boot=boot,
            take_report=self._accounts.take_report,
            send_credit=market.credit_window,
            send_demand=partial(market.observe_stage_demand, build),
            # A folder of its own: windows are told apart by boot and number.
            spool=CreditSpool(settings.var_dir / "spool" / "stages"),
            window_seconds=settings.window_seconds,
            spool_seconds=settings.spool_seconds,
            demand_seconds=settings.demand_seconds,
        )

    def start(self) -> None:
        """Puts the stage build on offer and starts every thread. Raises what publishing raises."""
        self._market.publish_stages(self.source)
        for part in (self._findings, self.auditor, self._bookkeeper, self.verifier, self.link):
            part.start()
        if not self._settings.relay_urls:
            self._relays.start()

    def stop(self) -> None:
        """Ends them in order and sends the credit that is due; no ring is used any more."""
        if not self._settings.relay_urls:
            self._relays.stop()
        self.stages.stop()
        for part in (self.link, self.verifier, self.auditor, self._findings, self._bookkeeper):
            part.stop()
        self._oracle.close()

    def status(self) -> dict[str, Any]:
        """layers [first, last) of every usable stage by its name; what became of audits."""
        known = {name: [stage.description.first, stage.description.last] for name, stage in self.stages.known.items()}
        return {"stages": known, "audits": dict(self.auditor.counts)}

    def _on_sessions(self, sessions: Any) -> None:
        self.verifier.set_roster(sessions)

    def _on_stages(self, stages: Sequence[LeasedStage]) -> None:
        """Trust that was earned before comes from the market before a stage's first step; in the verifier's thread."""
        for who in map(who_is, stages):
            if not self.auditor.knows(who):
                try:
                    self.auditor.trust(who, self._market.trust_of(who))
                except NotAcknowledged as error:
                    logger.warning("stage %s begins without trust: %s", who.node_id, error)
        self.stages.set_stages(stages)

    def _passed(
        self, stages: Sequence[LeasedStage], settings: ContextSettings, step: Step, answers: Sequence[Answer]
    ) -> None:
        self._accounts.passed(stages, settings, step, answers)
        self.auditor.passed(stages, settings, step, answers)
