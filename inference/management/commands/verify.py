"""`manage.py verify [--json] [--quick] [--browser] [--trace FILE ...]`: the swarm's logits against plain llama.cpp's.

Exits 0 when every case shows what its kind must show, 1 when one does not.
"""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from inference.benchmarks.progress import ProgressBar
from inference.verify.browser import verify_browser
from inference.verify.runner import CaseResult, run_trace, verify


class Command(BaseCommand):
    help = "Compare the swarm's logits with plain llama.cpp's, fed the same batches, for every placement of experts."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="One JSON object instead of one line per case.")
        parser.add_argument("--quick", action="store_true", help="Seven short cases instead of the whole matrix.")
        parser.add_argument(
            "--browser", action="store_true", help="Only the cases whose experts a browser tab computes (Chromium)."
        )
        parser.add_argument(
            "--trace",
            type=Path,
            nargs="+",
            metavar="FILE",
            help="Only replay these traces, which a backbone wrote (setting BACKBONE_TRACE_DIR).",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        results: list[CaseResult] = []
        with ProgressBar(sys.stderr, hidden=options["json"]) as bar:
            for result in self._results(bar, options):
                results.append(result)
                if not options["json"]:
                    bar.clear()
                    self.stdout.write(line_of(result))
        failed = [result for result in results if not result.ok]
        if options["json"]:
            body = {"ok": not failed, "cases": [result.to_json() for result in results]}
            self.stdout.write(json.dumps(body, indent=2))
        if failed:
            raise CommandError(f"{len(failed)} of {len(results)} cases failed", returncode=1)

    @staticmethod
    def _results(bar: ProgressBar, options: dict[str, Any]) -> Iterator[CaseResult]:
        cache = Path(settings.VAR_DIR) / "verify"
        if options["trace"]:
            yield from (run_trace(path.resolve()) for path in options["trace"])
        elif options["browser"]:
            yield from verify_browser(cache, quick=options["quick"], progress=bar)
        else:
            yield from verify(cache, quick=options["quick"], progress=bar)


def line_of(result: CaseResult) -> str:
    """One case for people."""
    verdict = "ok  " if result.ok else "FAIL"
    figures = [f"{result.positions} positions"]
    if result.max_abs_diff is not None:
        figures.append(f"max |difference| {result.max_abs_diff:g}")
    if result.kl_max is not None:
        figures.append(f"KL at most {result.kl_max:.4f} (limit {result.extra['kl_limit']:g})")
    if result.top1_agreement is not None:
        figures.append(f"top-1 {result.top1_agreement:.1%} (limit {result.extra['top1_limit']:.0%})")
    if "remote_share" in result.extra:
        figures.append(f"workers computed {result.extra['remote_share']:.0%} of the expert rows")
    if "error" in result.extra:
        figures = [str(result.extra["error"])]
    return f"{verdict} {result.kind:<9} {result.case}: {', '.join(figures)}"
