"""`manage.py restore FILE`: a backup into an empty database, proved by a replay."""

import sys
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from tqdm import tqdm

from market import backup
from market.errors import MarketError
from market.payout_providers import credits_text


class Command(BaseCommand):
    help = "Fill an empty database from `manage.py backup`; migrates it first, proves it with `replay --check`."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        path = options["file"].expanduser()
        call_command("migrate", interactive=False, verbosity=0)
        with tqdm(unit=" events", desc="restore", disable=None, file=sys.stderr) as bar:
            try:
                summary = backup.restore(path, lambda done: bar.update(done - bar.n))
            except MarketError as problem:
                raise CommandError(f"{problem.code}: {problem}") from problem
            except OSError as problem:
                raise CommandError(f"cannot read {path}: {problem}") from problem
        for account, amount in summary.books.items():
            if "/" not in account:
                self.stdout.write(f"{account:20} {credits_text(amount):>24}")
        self.stdout.write(f"{summary.position} events and {summary.others} other rows restored, the books are equal")
        call_command("replay", check=True, stdout=self.stdout)
