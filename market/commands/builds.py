"""Publishing builds, and the operator's policy."""

from dataclasses import asdict, replace
from datetime import datetime

from django.utils import timezone

from market import queries, store
from market import rows as r
from market.builds import BuildDescription
from market.commands.ending import end_events
from market.commands.nodes import checked_reason, short
from market.errors import BadRequest, UnknownBuild
from market.events import BuildPublished, BuildRestored, BuildRetired, PolicyChanged
from market.models import Build, Claim
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


def retire_build(fingerprint: str, *, by: str, reason: str, now: datetime | None = None) -> bool:
    """Takes a build off the market; False when it was already. Its claims end at the next ticks of the timer.

    Raises UnknownBuild, BadRequest without a reason.
    """
    who, why = short(by), checked_reason(reason)
    with store.writing() as writer:
        if queries.build_row(fingerprint).retired_at is not None:
            return False
        writer.append([BuildRetired(fingerprint, who, why, now or timezone.now())])
    return True


def restore_build(fingerprint: str, *, by: str, reason: str, now: datetime | None = None) -> bool:
    """Puts a retired build on offer again; False when it is. Raises UnknownBuild, BadRequest without a reason."""
    who, why = short(by), checked_reason(reason)
    with store.writing() as writer:
        if queries.build_row(fingerprint).retired_at is None:
            return False
        writer.append([BuildRestored(fingerprint, who, why, now or timezone.now())])
    return True


def end_retired(now: datetime) -> int:
    """Ends claims on builds that were retired, as many as fit into one append; how many. Called by the timer."""
    retired = list(Build.objects.filter(retired_at__isnull=False).values_list("fingerprint", flat=True))
    if not retired:
        return 0
    with store.writing() as writer:
        claims = Claim.objects.filter(build__in=retired, state__in=r.OPEN_STATES).order_by("claim_id")
        ending = [end_events(claim, "build_retired", now) for claim in claims[: store.APPEND_LIMIT // 2]]
        if ending:
            writer.append([event for events in ending for event in events])
    return len(ending)


def change_policy(policy: Policy, *, by: str, reason: str, now: datetime | None = None) -> None:
    """Raises BadRequest for a policy that contradicts itself. Live claims keep the rate and cap of their grant."""
    if problem := policy.problem():
        raise BadRequest(problem)
    store.append([PolicyChanged(**asdict(policy), by=by[:80], reason=reason[:200], at=now or timezone.now())])
