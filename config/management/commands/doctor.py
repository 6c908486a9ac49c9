"""`manage.py doctor [--json]`: how the deployment is, and what to do; exits 1 when something is wrong."""

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from config.doctor.deployment import of_settings
from config.doctor.examine import examine, is_ok
from config.doctor.findings import Finding, Level

MARKS = {Level.OK: "ok   ", Level.WARNING: "WARN ", Level.ERROR: "ERROR"}


class Command(BaseCommand):
    help = (
        "Check a deployment: settings, database, Redis, clocks, queues, backbones, TLS, relays, file limits, model. "
        "Run it on the hosts of the web processes and backbones, with their environment."
    )
    requires_system_checks = []  # noqa: RUF012  (they are findings of its own)

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="One JSON object instead of lines.")

    def handle(self, *args: Any, **options: Any) -> None:
        deployment = of_settings()
        findings: list[Finding] = []
        for finding in examine(deployment):
            findings.append(finding)
            if not options["json"]:
                self._tell(finding)
        ok = is_ok(findings)
        counts = {str(level): sum(finding.level is level for finding in findings) for level in Level}
        if options["json"]:
            body = {"ok": ok, "embedded": deployment.is_embedded, "counts": counts}
            self.stdout.write(json.dumps({**body, "findings": [one.to_json() for one in findings]}, indent=2))
        else:
            self.stdout.write(f"{counts['ok']} fine, {counts['warning']} warnings, {counts['error']} errors")
        if not ok:
            sys.exit(1)

    def _tell(self, finding: Finding) -> None:
        self.stdout.write(f"{MARKS[finding.level]} {finding.check}: {finding.what}")
        if finding.todo:
            self.stdout.write(f"      {finding.todo}")
