"""`manage.py chaos`: a real server under churn; exits 0 when nobody can have noticed, 1 when somebody could."""

import secrets
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from inference.chaos.judge import to_json
from inference.chaos.processes import ChaosFailed
from inference.chaos.run import Settings, run


class Command(BaseCommand):
    help = (
        "Start a server of its own; let workers join, leave, hang, lie and die, the web server and Redis restart and "
        "the backbone be killed, while clients generate; then check every text, logit, book and process."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--minutes", type=float, default=5.0, help="How long blows fall (default: %(default)s).")
        parser.add_argument("--seed", type=int, default=None, help="Of the timetable; default: a fresh one, printed.")
        parser.add_argument("--clients", type=int, default=16, help="Clients at once (default: %(default)s).")
        parser.add_argument(
            "--one-per-lane", action="store_true", help="One sequence per lane: texts must equal the calm run's too."
        )
        parser.add_argument(
            "--patient-liars",
            action="store_true",
            help="Liars earn trust before they lie: they must be caught, but logits and texts may differ until then.",
        )
        parser.add_argument(
            "--stages", type=int, default=0, metavar="N",
            help="A model on N stages: every second request asks for a ring, and stages are killed and hang too.",
        )  # fmt: skip
        parser.add_argument("--keep", type=Path, default=None, help="A new folder for logs and traces, kept.")
        parser.add_argument("--json", action="store_true", help="Nothing but the object.")

    def handle(self, *args: Any, **options: Any) -> None:
        seed = secrets.randbits(31) if options["seed"] is None else options["seed"]
        settings = Settings(
            options["minutes"] * 60,
            seed,
            options["clients"],
            options["one_per_lane"],
            options["keep"],
            options["patient_liars"],
            options["stages"],
        )

        def say(line: str) -> None:
            if not options["json"]:
                print(line, file=sys.stderr, flush=True)

        try:
            verdict = run(settings, say)
        except ChaosFailed as error:
            raise CommandError(str(error)) from error
        self.stdout.write(to_json(verdict))
        if verdict.problems:
            sys.exit(1)
