"""`manage.py payout`: draft, approve, send, settle, cancel and look at payouts. docs/ledger.md tells the steps."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from market import commands
from market.commands.payouts import payments
from market.errors import MarketError
from market.models import PayoutBatch, PayoutItem
from market.payout_providers import CsvProvider, credits_text, payments_csv, provider_named
from market.settlements import import_settlement


def moment(text: str) -> datetime:
    """ISO 8601 with a zone, for argparse."""
    value = datetime.fromisoformat(text)
    if value.tzinfo is None:
        raise ValueError("a time needs a zone, for example 2026-11-01T00:00:00Z")
    return value


class Command(BaseCommand):
    help = "Pay out what nodes have available, in batches that two people agree on."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        draft = actions.add_parser("draft", help="put everybody with enough available on a batch")
        draft.add_argument("--key", required=True, help="names the payout, for example 2026-11; a key drafts once")
        draft.add_argument("--minimum", type=int, default=settings.PAYOUT_MINIMUM_MICROCREDITS, help="microcredits")
        draft.add_argument("--reserve", type=int, default=settings.PAYOUT_RESERVE_PERCENT, help="percent left behind")
        draft.add_argument("--cutoff", type=moment, help="leave out what was credited later")
        approve = actions.add_parser("approve", help="agree to a batch that somebody else drafted")
        send = actions.add_parser("send", help="hand an approved batch to the provider; may be repeated")
        send.add_argument("--provider", default=CsvProvider.name)
        cancel = actions.add_parser("cancel", help="drop a batch that was not sent")
        show = actions.add_parser("show", help="a batch and its items")
        export = actions.add_parser("export", help="the payments of a batch as CSV on standard output")
        for action in (approve, send, cancel, show, export):
            action.add_argument("batch", type=int)
        for action in (draft, approve, send, cancel):
            action.add_argument("--by", required=True, help="who does this")
            action.add_argument("--reason", required=True)
        settle = actions.add_parser("settle", help="import what the provider says of the items")
        settle.add_argument("file", type=Path)
        settle.add_argument("--by", required=True)
        actions.add_parser("list", help="all batches")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['action']}")(options)
        except MarketError as problem:
            self.stderr.write(f"{problem.code}: {problem}")
            sys.exit(1)

    def _draft(self, options: dict[str, Any]) -> None:
        batch_id = commands.draft_payout(
            key=options["key"],
            by=options["by"],
            reason=options["reason"],
            minimum_microcredits=options["minimum"],
            reserve_percent=options["reserve"],
            cutoff=options["cutoff"],
        )
        self._print(PayoutBatch.objects.get(batch_id=batch_id))

    def _approve(self, options: dict[str, Any]) -> None:
        commands.approve_payout(options["batch"], by=options["by"], reason=options["reason"])
        self._print(PayoutBatch.objects.get(batch_id=options["batch"]))

    def _send(self, options: dict[str, Any]) -> None:
        provider = provider_named(options["provider"], settings.VAR_DIR / "payouts")
        reference = commands.send_payout(options["batch"], provider, by=options["by"], reason=options["reason"])
        self.stdout.write(f"sent: {reference}")

    def _cancel(self, options: dict[str, Any]) -> None:
        commands.cancel_payout(options["batch"], by=options["by"], reason=options["reason"])
        self._print(PayoutBatch.objects.get(batch_id=options["batch"]))

    def _settle(self, options: dict[str, Any]) -> None:
        try:
            text = options["file"].read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise CommandError(f"{options['file']} cannot be read: {problem}") from problem
        report = import_settlement(text, by=options["by"])
        for line in report.problems:
            self.stdout.write(line)
        self.stdout.write(
            f"{report.applied} items changed, {report.repeated} were known, {len(report.problems)} refused"
        )
        if report.problems:
            sys.exit(1)

    def _show(self, options: dict[str, Any]) -> None:
        for batch in PayoutBatch.objects.filter(batch_id=options["batch"]):
            self._print(batch)
        for item in PayoutItem.objects.filter(batch_id=options["batch"]).order_by("item_id"):
            amount = credits_text(item.amount_microcredits)
            self.stdout.write(f"{item.item_id} {item.node_id} {amount:>18} {item.state} {item.reference}{item.reason}")

    def _export(self, options: dict[str, Any]) -> None:
        self.stdout.write(payments_csv(payments(options["batch"])), ending="")

    def _list(self, _options: dict[str, Any]) -> None:
        for batch in PayoutBatch.objects.order_by("batch_id"):
            self._print(batch)

    def _print(self, batch: PayoutBatch) -> None:
        self.stdout.write(
            f"batch {batch.batch_id}: {batch.state}, {batch.items} items ({batch.open_items} open), "
            f"{credits_text(batch.total_microcredits)} credits, drafted by {batch.drafted_by}"
            + (f", approved by {batch.approved_by}" if batch.approved_by else "")
        )
