"""`manage.py ledger`: what the accounts hold, whether the books are right, and the entries that put mistakes right."""

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from market import commands, replay
from market.errors import MarketError
from market.invariants import BooksReport, check_books
from market.payout_providers import credits_text

SHOWN_DIFFERENCES = 20


class Command(BaseCommand):
    help = "Show and check the books, void or restore rewards on hold, adjust a balance."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="run every invariant; exit 1 when one is broken")
        parser.add_argument("--quick", action="store_true", help="with --check: leave the replay of all events out")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        actions = parser.add_subparsers(dest="action")
        adjust = actions.add_parser("adjust", help="give to or take from what a node has available")
        adjust.add_argument("node")
        adjust.add_argument("microcredits", type=int)
        adjust.add_argument("--key", required=True, help="the same key adjusts once")
        forfeit = actions.add_parser("forfeit", help="void what a node has on hold")
        forfeit.add_argument("node")
        restore = actions.add_parser("restore", help="take back the forfeit at a position")
        restore.add_argument("position", type=int)
        for action in (adjust, forfeit, restore):
            action.add_argument("--by", required=True, help="who does this")
            action.add_argument("--reason", required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            match options["action"]:
                case "adjust":
                    self._adjust(options)
                case "forfeit":
                    amount = commands.forfeit_pending(options["node"], reason=options["reason"], by=options["by"])
                    self.stdout.write(f"{credits_text(amount)} credits of {options['node']} voided")
                case "restore":
                    amount = commands.restore_earnings(options["position"], reason=options["reason"], by=options["by"])
                    self.stdout.write(f"{credits_text(amount)} credits are on hold again")
                case _:
                    self._show(options)
        except MarketError as problem:
            self.stderr.write(f"{problem.code}: {problem}")
            sys.exit(1)

    def _adjust(self, options: dict[str, Any]) -> None:
        position = commands.adjust_balance(
            options["node"], options["microcredits"], by=options["by"], reason=options["reason"], key=options["key"]
        )
        self.stdout.write(f"adjusted by the event at position {position}")

    def _show(self, options: dict[str, Any]) -> None:
        report = check_books()
        problems = list(report.problems)
        if options["check"] and not options["quick"]:
            replayed = replay.check()
            problems += [*map(str, replayed.differences[:SHOWN_DIFFERENCES]), *replayed.broken_sums]
        if options["json"]:
            self.stdout.write(json.dumps(as_json(report, problems)))
        else:
            self._print(report, problems, checked=options["check"])
        if options["check"] and problems:
            sys.exit(1)

    def _print(self, report: BooksReport, problems: list[str], *, checked: bool) -> None:
        for account, amount in report.accounts.items():
            self.stdout.write(f"{account:20} {credits_text(amount):>24}")
        self.stdout.write(f"{report.postings} postings up to position {report.position}, in credits")
        if not checked:
            return
        for problem in problems:
            self.stdout.write(problem)
        self.stdout.write("the books are right" if not problems else f"{len(problems)} invariants are broken")


def as_json(report: BooksReport, problems: list[str]) -> dict[str, Any]:
    return {
        "ok": not problems,
        "position": report.position,
        "postings": report.postings,
        "microcredits": report.accounts,
        "problems": problems,
    }
