"""All looks in the order in which an operator would go."""

import logging
from collections.abc import Callable, Iterator
from functools import partial

from config.doctor import host, queues, reach, stores
from config.doctor.deployment import Deployment
from config.doctor.findings import Finding, Level, Look, error

logger = logging.getLogger(__name__)


def looks(deployment: Deployment) -> list[tuple[str, Look]]:
    def at(look: Callable[[Deployment], Iterator[Finding]]) -> Look:
        return partial(look, deployment)

    return [
        ("settings", at(host.configuration)),
        ("database", stores.database),
        ("redis", at(stores.store)),
        ("clocks", at(stores.clocks)),
        ("visibility timeouts", at(queues.visibility_timeouts)),
        ("queues", at(queues.canaries)),
        ("backbones", at(queues.backbones)),
        ("public address", at(reach.public_address)),
        ("certificate", at(reach.certificate)),
        ("relays", at(reach.relays)),
        ("file limits", at(host.file_limits)),
        ("folders", at(host.folders)),
        ("model", at(host.model)),
        ("gpu", at(host.gpu)),
    ]


def examine(deployment: Deployment) -> Iterator[Finding]:
    """Every finding. A look that fails is a finding too: nothing that follows is left out."""
    for name, look in looks(deployment):
        try:
            yield from look()
        except Exception as problem:
            logger.exception("the look at %s failed", name)
            yield error(name, f"cannot be looked at: {type(problem).__name__}: {problem}", "Report this as a bug.")


def is_ok(findings: list[Finding]) -> bool:
    return not any(finding.level is Level.ERROR for finding in findings)
