"""`manage.py backup FILE`: the event store and what no event holds, in one file, while the server runs."""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from tqdm import tqdm

from market import backup, store
from market.errors import MarketError


class Command(BaseCommand):
    help = "Write the event store into a new file; restore it with `manage.py restore FILE`."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="it must not exist; .jsonl.gz is a good ending")

    def handle(self, *args: Any, **options: Any) -> None:
        path = options["file"].expanduser()
        began = timezone.now()
        with tqdm(total=store.last_position(), unit=" events", desc="backup", disable=None, file=sys.stderr) as bar:
            try:
                summary = backup.write(path, lambda done: bar.update(done - bar.n))
            except MarketError as problem:
                raise CommandError(f"{problem.code}: {problem}") from problem
            except OSError as problem:
                raise CommandError(f"cannot write {path}: {problem}") from problem
        seconds = (timezone.now() - began).total_seconds()
        self.stdout.write(
            f"{summary.position} events and {summary.others} other rows in {path}, {path.stat().st_size} bytes, "
            f"{seconds:.1f} s\nsha256 of its lines {summary.sha256}"
        )
