"""`manage.py replay`: makes every read model again from the events; `--check` proves that the live ones are right."""

import sys
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from tqdm import tqdm

from market import replay
from market.errors import MarketError
from market.events import Recorded

SHOWN_DIFFERENCES = 50


class Command(BaseCommand):
    help = "Rebuild all read models of the market from its events, or check that they equal a replay."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--check", action="store_true", help="compare row by row, change nothing; exit 1 on a difference"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._check() if options["check"] else self._rebuild()
        except MarketError as problem:
            self.stderr.write(f"{problem.code}: {problem}")
            sys.exit(1)

    def _rebuild(self) -> None:
        events = replay.rebuild(self._progress)
        self.stdout.write(f"{events} events replayed, all read models rebuilt")

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
