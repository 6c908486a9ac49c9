"""`manage.py hostile`: malformed input, trespass, theft, floods; exits 0 when nothing broke, 1 when something did."""

import secrets
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from inference.benchmarks.progress import ProgressBar
from inference.chaos.judge import to_json
from inference.chaos.processes import ChaosFailed
from inference.hostile.run import QUICK, Settings, run


class Command(BaseCommand):
    help = (
        "100,000 malformed frames, model files and HTTP requests, attempts on another account at every address, stolen "
        "and replayed tokens, 1,000 idle and 300 flooding sockets, against a server of its own; about seven minutes."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--seed", type=int, default=None, help="Of all inputs; default: a fresh one, printed.")
        parser.add_argument("--quick", action="store_true", help="A smoke run of a minute.")
        parser.add_argument("--keep", type=Path, default=None, help="A new folder for the server's logs, kept.")
        parser.add_argument("--json", action="store_true", help="Nothing but the object.")

    def handle(self, *args: Any, **options: Any) -> None:
        seed = secrets.randbits(31) if options["seed"] is None else options["seed"]
        settings = Settings(seed, keep=options["keep"], **(QUICK if options["quick"] else {}))
        with ProgressBar(sys.stderr, hidden=options["json"]) as progress:
            try:
                verdict = run(settings, progress)
            except ChaosFailed as error:
                raise CommandError(str(error)) from error
        self.stdout.write(to_json(verdict))
        if verdict.problems:
            sys.exit(1)
