"""`manage.py invite [--note TEXT] [--uses N] [--days N] | --list`: codes where registration is by invite."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from market import enrolment
from market.errors import MarketError


class Command(BaseCommand):
    help = "Make an invite code, shown once; or list those that are open."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--note", default="", help="whom it is for")
        parser.add_argument("--uses", type=int, default=1, help="accounts or devices that may use it (default: 1)")
        parser.add_argument("--days", type=int, default=enrolment.INVITE_DAYS, help="default: %(default)s")
        parser.add_argument("--list", action="store_true", help="those of the operator that are open, without codes")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"]:
            for one in enrolment.open_invites(""):
                self.stdout.write(f"{one.uses_left:>5} uses until {one.expires_at:%Y-%m-%d}  {one.note}")
            return
        try:
            code = enrolment.make_invite(options["note"], by="operator", uses=options["uses"], days=options["days"])
        except MarketError as problem:
            self.stderr.write(f"{problem.code}: {problem}")
            sys.exit(1)
        self.stdout.write(code)
