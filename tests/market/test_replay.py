"""market/replay.py and `manage.py replay`: the read models are what the events say, row by row."""

import os
import random
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from config.settings import database
from market import commands, presence, queries, replay, store
from market.benchmarks.databases import default_database
from market.errors import MarketError
from market.fold import State
from market.models import Balance, Claim, CreditedRows, Layer, Node, Posting
from market.policy import Policy
from tests.builders import (
    DEMO_EXPERT_BYTES,
    FINGERPRINT,
    MORNING,
    Device,
    claimed,
    demo_build,
    later,
    registered,
    verified,
)

OTHER = "f" * 32
Step = Callable[[], object]


def a_market_day() -> None:
    """Everything that can happen, once: two builds, three devices, work, loss, expiry, suspension, a new policy."""
    presence.recording_since(MORNING)
    commands.publish_build(demo_build(), now=MORNING)
    commands.publish_build(demo_build(OTHER, layers=2, experts=8), now=later(1))
    commands.change_policy(Policy(10**8, 10**7, 2, 4), by="operator", reason="tested", now=later(2))
    alice, bob, mallory = (registered(name, now=later(3)) for name in ("Alice", "Bob", "Mallory"))
    commands.rotate_token(alice.node_id, now=later(4))
    for claim in commands.claim_best(alice.node_id, 40 * DEMO_EXPERT_BYTES, FINGERPRINT, now=later(5)):
        commands.record_delivery(alice.node_id, claim.claim_id, claim.fence, "ab" * 32, now=later(6))
        verified(claim, now=later(7))
    lost = verified(claimed_in(bob, FINGERPRINT, 4), now=later(8))
    commands.lose_replica(lost.claim_id, lost.fence, "disconnected", now=later(9))
    released = claimed_in(bob, OTHER, 1)
    commands.observe_demand(FINGERPRINT, np.arange(256).reshape(8, 32), MORNING, later(300))
    commands.observe_demand(FINGERPRINT, np.full((8, 32), 70_000), later(300), later(600))
    commands.credit_work("a", FINGERPRINT, alice.node_id, later(60), later(120), [(1, 0, 5000), (1, 7, 3)])
    commands.credit_work("b", FINGERPRINT, bob.node_id, later(60), later(120), [(lost.claim_id, 4, 700)])
    commands.credit_work("a", FINGERPRINT, alice.node_id, later(60), later(120), [(1, 0, 5000), (1, 7, 3)])
    commands.release_claim(bob.node_id, released.claim_id, now=later(200))
    claimed_in(mallory, OTHER, 0)
    commands.suspend_node(mallory.node_id, reason="wrong answers", by="audit", now=later(210))
    commands.reinstate_node(mallory.node_id, by="operator", now=later(220))
    presence.mark_seen(alice.node_id, later(500))
    commands.expire_leases(later(510))
    commands.credit_work("c", FINGERPRINT, bob.node_id, later(3540), later(3600), [(lost.claim_id, 4, 100)])


def claimed_in(device: Device, build: str, layer: int) -> queries.ClaimView:
    return commands.claim_ranges(device.node_id, [commands.RangeWish(layer, 0, 4)], build, now=later(8))[0]


class RandomDay:
    """Random commands by a few devices; refusals are part of the day."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._now = MORNING
        self._devices = [registered(f"device {number}", now=MORNING) for number in range(4)]
        commands.publish_build(demo_build(layers=3, experts=12), now=MORNING)

    def run(self, count: int) -> int:
        """The number of commands that were not refused."""
        steps = [self.claim, self.claim, self.best, self.release, self.deliver, self.verify, self.verify, self.lose]
        steps += [self.credit, self.credit, self.demand, self.expire, self.see, self.policy, self.suspend]
        done = 0
        for _ in range(count):
            self._now += timedelta(seconds=self._random.uniform(1, 200))
            try:
                self._random.choice(steps)()
                done += 1
            except MarketError as refusal:
                if refusal.status >= 500:
                    raise
        return done

    def _device(self) -> Device:
        return self._random.choice(self._devices)

    def _claim(self) -> queries.ClaimView:
        found = queries.open_claims(FINGERPRINT)
        return self._random.choice(found) if found else claimed(self._device(), now=self._now)

    def claim(self) -> None:
        first = self._random.randrange(12)
        claimed(self._device(), self._random.randrange(3), first, first + self._random.randint(1, 4), now=self._now)

    def best(self) -> None:
        size = self._random.randint(0, 10) * DEMO_EXPERT_BYTES + 1
        commands.claim_best(self._device().node_id, size, now=self._now)

    def release(self) -> None:
        claim = self._claim()
        commands.release_claim(claim.node_id, claim.claim_id, now=self._now)

    def deliver(self) -> None:
        claim = self._claim()
        digest = self._random.choice("ab") * 64
        commands.record_delivery(claim.node_id, claim.claim_id, claim.fence, digest, now=self._now)

    def verify(self) -> None:
        claim = self._claim()
        digest = claim.sha256 or "a" * 64
        commands.verify_replica(claim.claim_id, claim.fence, digest, "backbone", now=self._now)

    def lose(self) -> None:
        claim = self._claim()
        commands.lose_replica(claim.claim_id, claim.fence, "disconnected", now=self._now)

    def credit(self) -> None:
        claims = [self._claim() for _ in range(3)]
        rows = [(claim.claim_id, claim.layer, self._random.randint(1, 10**7)) for claim in claims]
        start: datetime = self._now - timedelta(seconds=60)
        key = f"window {self._random.randrange(40)}"
        commands.credit_work(key, FINGERPRINT, claims[0].node_id, start, self._now, rows, now=self._now)

    def demand(self) -> None:
        counts = np.array([[self._random.randrange(200_000) for _ in range(12)] for _ in range(3)])
        commands.observe_demand(FINGERPRINT, counts, self._now - timedelta(seconds=300), self._now)

    def expire(self) -> None:
        commands.expire_leases(self._now)

    def see(self) -> None:
        presence.mark_seen(self._device().node_id, self._now)

    def policy(self) -> None:
        budget = self._random.choice([10**4, 10**6, 10**9])
        policy = Policy(budget, 10**7, self._random.randint(1, 2), self._random.randint(2, 4))
        commands.change_policy(policy, by="operator", reason="tested", now=self._now)

    def suspend(self) -> None:
        node_id = self._device().node_id
        if self._random.random() < 0.3:
            commands.suspend_node(node_id, reason="tested", by="operator", now=self._now)
        for device in self._devices:
            commands.reinstate_node(device.node_id, by="operator", now=self._now)


def everything() -> dict[str, object]:
    return {model.table.__name__: model.live() for model in replay.READ_MODELS}


def checked() -> str:
    """What `manage.py replay --check` prints, when it exits 0."""
    output = StringIO()
    call_command("replay", "--check", stdout=output)
    return output.getvalue()


def refused() -> str:
    """What `manage.py replay --check` prints, when it exits 1."""
    output = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("replay", "--check", stdout=output)
    assert ended.value.code == 1
    return output.getvalue()


@pytest.mark.usefixtures("real_database")
def test_after_a_market_day_a_replay_equals_the_live_tables() -> None:
    a_market_day()
    live = everything()
    names = {recorded.event.NAME for recorded in store.history()}
    assert len(names) == 14
    assert "equal" in checked()

    for model in replay.READ_MODELS:
        model.table._default_manager.all().delete()
    assert "missing in the table" in refused()
    output = StringIO()
    call_command("replay", stdout=output)

    assert everything() == live
    assert "all read models rebuilt" in output.getvalue()
    assert "equal" in checked()


@pytest.mark.usefixtures("real_database")
@pytest.mark.parametrize("seed", [1, 2, int(os.environ.get("MARKET_SEED", random.SystemRandom().randrange(10**6)))])
def test_after_random_commands_a_replay_equals_the_live_tables(seed: int, settings: Settings) -> None:
    print(f"repeat with MARKET_SEED={seed}")
    settings.LEASE_SECONDS = 600.0
    presence.recording_since(MORNING)

    done = RandomDay(seed).run(250)

    report = replay.check()
    assert report.ok, (report.differences, report.broken_sums)
    assert done > 80
    live = everything()
    replay.rebuild()
    assert everything() == live
    held = sum(claim.last - claim.first for claim in queries.open_claims(FINGERPRINT))
    assert queries.coverage(FINGERPRINT).sum() == held


@pytest.mark.usefixtures("real_database")
def test_the_past_is_rebuilt_in_a_scratch_database(tmp_path: Path) -> None:
    a_market_day()
    live, output = everything(), StringIO()
    path = tmp_path / "past.sqlite3"
    until = store.last_position() - 5

    call_command("replay", "--to", str(until), "--into", str(path), stdout=output)

    assert everything() == live
    with default_database(database(f"sqlite:///{path}", tmp_path)):
        assert store.last_position() == until
        assert "equal" in checked()
    assert f"the market at position {until}" in output.getvalue()
    with pytest.raises(CommandError, match="exists already"):
        call_command("replay", "--to", "1", "--into", str(path))


@pytest.mark.usefixtures("sqlite_database")
def test_a_time_in_the_past_is_a_position(settings: Settings, tmp_path: Path) -> None:
    settings.VAR_DIR = tmp_path
    a_market_day()
    now = timezone.now()

    assert replay.position_at(now) == store.last_position()
    assert replay.position_at(now - timedelta(days=1)) == 0
    output = StringIO()
    call_command("replay", "--to", (now - timedelta(days=1)).isoformat(), stdout=output)
    assert output.getvalue() == f"the market at position 0: DATABASE_URL=sqlite:///{tmp_path}/replay-0.sqlite3\n"
    for wrong in ("99999", "yesterday", "2026-03-01T00:00:00"):
        with pytest.raises(CommandError):
            call_command("replay", "--to", wrong)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("drift", "shown"),
    [
        (lambda: Node.objects.update(kernel_class="forged"), "kernel_class is 'forged'"),
        (lambda: Claim.objects.filter(claim_id=1).delete(), "Claim 1: missing in the table"),
        (lambda: Layer.objects.filter(layer=0).update(replicas=b"\x09\x00" * 32), "replicas is"),
        (lambda: Balance.objects.update(balance_microcredits=10**9), "balance_microcredits is 1000000000"),
        (lambda: CreditedRows.objects.create(build="x", node_id="y", layer=1), "x/y/1: only in the table"),
        (lambda: Posting.objects.all().delete(), "Posting"),
    ],
)
def test_the_check_finds_every_kind_of_drift(drift: Step, shown: str) -> None:
    a_market_day()

    drift()

    assert shown in refused()


@pytest.mark.django_db
def test_a_check_changes_nothing() -> None:
    a_market_day()
    Node.objects.update(kernel_class="forged")
    before = everything()

    refused()

    assert everything() == before


@pytest.mark.django_db
def test_a_history_that_cannot_be_read_leaves_the_tables_as_they_were() -> None:
    a_market_day()
    before = everything()
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER market_event_no_update")
        cursor.execute("UPDATE market_event SET name = 'from-the-future' WHERE position = 9")
    errors = StringIO()

    with pytest.raises(SystemExit):
        call_command("replay", stderr=errors)

    assert "unknown_event" in errors.getvalue()
    assert everything() == before


@pytest.mark.django_db
def test_many_differences_are_counted_and_not_all_printed() -> None:
    commands.publish_build(demo_build(layers=60))
    Layer.objects.all().delete()

    output = refused()

    assert "... and 10 more rows" in output
    assert "60 rows differ" in output


def test_every_read_model_has_the_fields_of_its_rows() -> None:
    for model in replay.READ_MODELS:
        columns = {field.name for field in model.table._meta.get_fields()} - {"id"}
        assert {field.name for field in fields(model.row)} == columns, model.table
        assert set(model.table.natural_key) <= columns  # type: ignore[attr-defined]


def test_every_part_of_the_state_is_a_read_model() -> None:
    bookkeeping = {"position", "versions"}

    assert len(fields(State)) - len(bookkeeping) == len(replay.READ_MODELS)
