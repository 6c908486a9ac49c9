"""`manage.py incident FROM TO`: that time was our fault, and is held against nobody."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from market import commands
from market.errors import MarketError
from market.management.commands.payout import moment


class Command(BaseCommand):
    help = "Declare that something was our fault from one time to another: leases are longer, penalties undone."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("start", type=moment, help="for example 2026-11-01T08:00:00Z")
        parser.add_argument("end", type=moment, help="may lie ahead, while the incident lasts")
        parser.add_argument("--by", required=True, help="who says so")
        parser.add_argument("--reason", required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            incident_id = commands.declare_incident(
                options["start"], options["end"], by=options["by"], reason=options["reason"]
            )
        except MarketError as problem:
            self.stderr.write(f"{problem.code}: {problem}")
            sys.exit(1)
        self.stdout.write(f"incident {incident_id} declared")
