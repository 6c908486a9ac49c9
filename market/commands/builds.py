"""Publishing builds, and the operator's policy."""

from dataclasses import asdict, replace
from datetime import datetime

from django.utils import timezone

from market import queries, store
from market.builds import BuildDescription
from market.errors import BadRequest, UnknownBuild
from market.events import BuildPublished, PolicyChanged
from market.policy import Policy


def publish_build(build: BuildDescription, *, now: datetime | None = None) -> bool:
    """Puts a build on offer; False when it was already, so that a backbone may say so at every start.

    Raises BadRequest when the description makes no sense, or when the same fingerprint was published with another one.
    """
    if problem := build.problem():
        raise BadRequest(f"build {build.fingerprint!r}: {problem}")
    with store.writing() as writer:
        try:
            known = queries.build(build.fingerprint)
        except UnknownBuild:
            writer.append([BuildPublished(build, now or timezone.now())])
            return True
    if replace(known, name=build.name) != build:
        raise BadRequest(f"build {build.fingerprint} was published before with other layers, sizes or types")
    return False


def change_policy(policy: Policy, *, by: str, reason: str, now: datetime | None = None) -> None:
    """Raises BadRequest for a policy that contradicts itself. Live claims keep the rate and cap of their grant."""
    if problem := policy.problem():
        raise BadRequest(problem)
    store.append([PolicyChanged(**asdict(policy), by=by[:80], reason=reason[:200], at=now or timezone.now())])
