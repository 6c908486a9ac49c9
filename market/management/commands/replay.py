"""`manage.py replay`: makes every read model again from the events; `--check` proves that the live ones are right;
`--to` writes the market as it was into a scratch database.
"""

import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from tqdm import tqdm

from config.settings import database
from market import replay, store
from market.errors import MarketError
from market.events import Recorded
from market.ledger import is_node_account
from market.payout_providers import credits_text

SHOWN_DIFFERENCES = 50
SCRATCH = "scratch"


class Command(BaseCommand):
    help = "Rebuild all read models of the market from its events, check them, or rebuild the past elsewhere."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--check", action="store_true", help="compare row by row, change nothing; exit 1 on a difference"
        )
        parser.add_argument("--to", metavar="POSITION|TIME", help="the market as it was, in a scratch database")
        parser.add_argument("--into", type=Path, help="with --to: the SQLite file to write; it must not exist")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["to"] is not None:
                self._rebuild_past(options["to"], options["into"])
            elif options["check"]:
                self._check()
            else:
                self._rebuild()
        except MarketError as problem:
            self.stderr.write(f"{problem.code}: {problem}")
            sys.exit(1)

    def _rebuild(self) -> None:
        events = replay.rebuild(self._progress)
        self.stdout.write(f"{events} events replayed, all read models rebuilt")

    def _rebuild_past(self, wanted: str, into: Path | None) -> None:
        until = _position(wanted)
        path = into or settings.VAR_DIR / f"replay-{until}.sqlite3"
        if path.exists():
            raise CommandError(f"{path} exists already: move it away, or name another file with --into")
        connections.settings[SCRATCH] = {
            **connections.settings["default"],
            **database(f"sqlite:///{path}", path.parent),
        }
        try:
            call_command("migrate", database=SCRATCH, verbosity=0)
            state = replay.rebuild_past(until, SCRATCH, self._progress)
        finally:
            connections[SCRATCH].close()
            del connections[SCRATCH], connections.settings[SCRATCH]
        totals: dict[str, int] = {}
        for posting in state.postings:
            name = posting.account.rpartition("/")[2] if is_node_account(posting.account) else posting.account
            totals[name] = totals.get(name, 0) + posting.amount_microcredits
        for account, amount in sorted(totals.items()):
            self.stdout.write(f"{account:20} {credits_text(amount):>24}")
        self.stdout.write(f"the market at position {until}: DATABASE_URL=sqlite:///{path}")

    def _check(self) -> None:
        report = replay.check(self._progress)
        for difference in report.differences[:SHOWN_DIFFERENCES]:
            self.stdout.write(str(difference))
        if len(report.differences) > SHOWN_DIFFERENCES:
            self.stdout.write(f"... and {len(report.differences) - SHOWN_DIFFERENCES} more rows")
        for problem in report.broken_sums:
            self.stdout.write(problem)
        verdict = "equal" if report.ok else f"{len(report.differences)} rows differ"
        self.stdout.write(f"{report.events} events, {report.rows} rows in the read models: {verdict}")
        if not report.ok:
            sys.exit(1)

    def _progress(self, history: Iterator[Recorded], total: int) -> Iterator[Recorded]:
        return iter(tqdm(history, total=total, unit=" events", desc="replay", disable=None, file=sys.stderr))


def _position(wanted: str) -> int:
    """A position as it is, a time as the position of the last event up to it; raises CommandError."""
    last = store.last_position()
    if wanted.isdecimal():
        if int(wanted) > last:
            raise CommandError(f"the last position is {last}")
        return int(wanted)
    try:
        moment = datetime.fromisoformat(wanted)
    except ValueError as problem:
        raise CommandError(f"{wanted!r} is neither a position nor a time such as 2026-11-01T00:00:00Z") from problem
    if moment.tzinfo is None:
        raise CommandError("a time needs a zone, for example 2026-11-01T00:00:00Z")
    return replay.position_at(moment)
