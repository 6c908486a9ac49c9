"""`manage.py worker`: the expert worker, at the server that `manage.py up` runs on this machine unless told otherwise.

The same program as `python -m inference.worker`, which needs no Django.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.supervisor import run_file
from inference.worker.options import DESCRIPTION, add_arguments, options_from
from inference.worker.program import run


class Command(BaseCommand):
    help = DESCRIPTION
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own way to say it

    def add_arguments(self, parser: CommandParser) -> None:
        add_arguments(parser, server_required=False)
        # One node per state folder: this one belongs to whoever starts a worker by hand.
        parser.set_defaults(state_dir=Path(settings.VAR_DIR) / "workers" / "by-hand")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["server"] is None:
            try:
                options["server"] = run_file.read(Path(settings.VAR_DIR)).url
            except run_file.ServerNotRunning as error:
                raise CommandError(f"{error} Or name another server with --server URL.") from error
        sys.exit(run(options_from(argparse.Namespace(**options))))
