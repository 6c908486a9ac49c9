"""What the crash drill kills: a payout from draft to settlement, and a claim from grant to release."""

from contextlib import suppress
from pathlib import Path

from django.conf import settings

from market import commands, queries, replay, snapshots, store
from market.errors import ClaimEnded
from market.invariants import check_books
from market.models import Claim, Node, PayoutBatch, PayoutItem
from market.payout_providers import CsvProvider
from market.settlements import import_settlement
from tests.builders import DIGEST, FINGERPRINT, MORNING, Device, Why, demo_build, later, payable_device, registered
from tests.market.drill import Story

EARNED = 3932
WHY: Why = {"by": "alice", "reason": "March"}


def check(condition: bool, what: object) -> None:
    """assert, also where assertions are off."""
    if not condition:
        raise AssertionError(what)


def check_everything(expected: list[str], before: int) -> None:
    """The books are right, a replay equals the tables, and each event after `before` happened once."""
    books, replayed = check_books(), replay.check()
    check(books.ok, books.problems)
    check(replayed.ok, (replayed.differences, replayed.broken_sums))
    names = [recorded.event.NAME for recorded in store.history(after=before)]
    check(names == expected, names)


class PayoutStory:
    """Three accounts: one payment settles, one fails, one settles and comes back; a second batch is cancelled."""

    def prepare(self) -> None:
        settings.HOLD_SECONDS = 0.0
        commands.publish_build(demo_build(), now=MORNING)
        for number in range(3):
            payable_device(f"device {number}", layer=number)
        commands.release_earnings(later(600))

    def run(self, files: Path) -> None:
        batch_id = self._draft("2026-03")
        commands.approve_payout(batch_id, by="bob", reason="checked")
        commands.send_payout(batch_id, CsvProvider(files), **WHY)
        first, second, third = (f"payout-000001-000{number}" for number in (1, 2, 3))
        import_settlement(f"item_id,status\n{first},settled\n{second},failed\n{third},settled\n", by="alice")
        commands.return_item(third, reason="closed", by="alice")
        commands.cancel_payout(self._draft("once more"), **WHY)

    def _draft(self, key: str) -> int:
        return commands.draft_payout(
            key=key, **WHY, minimum_microcredits=1, reserve_percent=0, cutoff=later(600), now=later(700)
        )

    def repeat(self, files: Path) -> None:
        self.run(files)
        nodes = list(PayoutItem.objects.filter(batch_id=1).order_by("item_id").values_list("node_id", flat=True))
        totals = [{kind: money for kind, money in queries.balances(node).items() if money} for node in nodes]
        check(totals == [{"paid": EARNED}, {"available": EARNED}, {"available": EARNED}], totals)
        check([batch.state for batch in PayoutBatch.objects.order_by("batch_id")] == ["closed", "cancelled"], "batches")
        files_written = [path.name for path in files.glob("*.csv")]
        check(files_written == ["payout-000001.csv"], files_written)
        payout = ["drafted", "approved", "sending", "sent", "item-settled", "item-failed", "item-settled"]
        names = [f"payout-{name}" for name in (*payout, "item-returned", "drafted", "cancelled")]
        check_everything(names, store.last_position() - len(names))


class ClaimStory:
    """A device claims, delivers, is verified, works, and leaves; after a crash it reads its claims and goes on."""

    def prepare(self) -> None:
        commands.publish_build(demo_build(), now=MORNING)
        registered()

    def run(self, files: Path) -> None:
        device = Device(Node.objects.get().node_id, "")
        if not Claim.objects.exists():
            wishes = [commands.RangeWish(0, 0, 4), commands.RangeWish(0, 8, 12), commands.RangeWish(3, 0, 4)]
            commands.claim_ranges(device.node_id, wishes, now=MORNING)
        claims = list(Claim.objects.order_by("claim_id"))
        for claim in claims:
            with suppress(ClaimEnded):
                commands.record_delivery(device.node_id, claim.claim_id, claim.fence, DIGEST, now=later(5))
                commands.verify_replica(claim.claim_id, claim.fence, DIGEST, "backbone", now=later(6))
        rows = [(claim.claim_id, claim.layer, 1000) for claim in claims]
        commands.credit_work("window", FINGERPRINT, device.node_id, later(0), later(60), rows, now=later(61))
        for claim in claims:
            commands.release_claim(device.node_id, claim.claim_id, now=later(70))

    def repeat(self, files: Path) -> None:
        self.run(files)
        node_id = Node.objects.get().node_id
        check(Claim.objects.count() == 3, "claims")
        check(queries.node_claims(node_id) == [], "open claims")
        check(queries.coverage(FINGERPRINT).sum() == 0, "coverage")
        check(snapshots.reserved_microcredits_per_hour() == 0, "reserved")
        check(queries.balances(node_id) == {"pending": 3 * EARNED}, queries.balances(node_id))
        names = ["claim-granted"] * 3 + ["slice-delivered", "replica-verified"] * 3 + ["work-credited"]
        check_everything([*names, *["replica-lost", "claim-released"] * 3], 2)


STORIES: dict[str, Story] = {"payout": PayoutStory(), "claim": ClaimStory()}
