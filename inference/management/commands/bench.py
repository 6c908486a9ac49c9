"""`manage.py bench NAME [--json] [--quick]`: figures that others can run; exits 0 when it measured."""

import json
import os
import sys
from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from inference.benchmarks.api import api
from inference.benchmarks.audit import audit
from inference.benchmarks.dashboard import dashboard
from inference.benchmarks.hotset import hotset
from inference.benchmarks.kernel import kernel
from inference.benchmarks.market import market
from inference.benchmarks.mixed import mixed
from inference.benchmarks.overhead import SideFailed, overhead
from inference.benchmarks.progress import ProgressBar
from inference.benchmarks.relay.bench import relay
from inference.benchmarks.report import as_object, as_table
from inference.benchmarks.ring.bench import ring
from inference.benchmarks.rpc.bench import rpc
from inference.benchmarks.rtt import rtt
from inference.benchmarks.scale.bench import scale
from inference.benchmarks.scaling import scaling
from inference.benchmarks.soak import DEFAULT_MINUTES, soak
from inference.benchmarks.wire import wire
from inference.chromium import NoBrowser
from inference.ring.errors import RingError
from inference.verify.stage_processes import StageNotStarted

BENCHMARKS = {
    "api": api,
    "audit": audit,
    "dashboard": dashboard,
    "hotset": hotset,
    "kernel": kernel,
    "market": market,
    "mixed": mixed,
    "overhead": overhead,
    "relay": relay,
    "ring": ring,
    "rpc": rpc,
    "rtt": rtt,
    "scale": scale,
    "scaling": scaling,
    "soak": soak,
    "wire": wire,
}


class Command(BaseCommand):
    help = (
        "Measure something: overhead = the backbone with all experts local against plain llama.cpp; "
        "kernel = the browser's kernel against ggml, one thread each; "
        "api = streaming clients against the engine alone; "
        "market = events, replays, claims and offers on SQLite and PostgreSQL; "
        "audit = rows until a liar is caught, false alarms, cost; "
        "ring = stages of one model on several processes, beside RPC's layer split; "
        "rpc = llama.cpp's RPC backend over the same lines; "
        "rtt = round trips and what hides them; "
        "scale = one and two web and relay processes, four writers, 2,000 devices that poll; "
        "hotset = rows that the hot set keeps; mixed = short and long requests at once; "
        "soak = memory over time (--minutes); scaling = 1 to 32 workers as slow as phones; "
        "dashboard = the operator's pages at full scale: server time, bytes, redraw; "
        "wire = bytes per token and layer."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", choices=sorted(BENCHMARKS))
        parser.add_argument("--json", action="store_true", help="One JSON object instead of the table.")
        parser.add_argument("--quick", action="store_true", help="A smoke run: small models, few repetitions.")
        parser.add_argument("--threads", type=int, default=0, help="Cores for each side; default: all of them.")
        parser.add_argument("--minutes", type=float, default=DEFAULT_MINUTES, help="How long soak runs (default: 20).")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["threads"] < 0:
            raise CommandError("--threads must not be negative")
        cache = Path(settings.VAR_DIR) / "bench"
        cache.mkdir(parents=True, exist_ok=True)
        threads = options["threads"] or len(os.sched_getaffinity(0))
        benchmark: Any = BENCHMARKS[options["name"]]
        if benchmark is soak:
            benchmark = partial(soak, minutes=options["minutes"])
        try:
            with ProgressBar(sys.stderr, hidden=options["json"]) as bar:
                results = benchmark(cache, quick=options["quick"], threads=threads, progress=bar)
        except (SideFailed, NoBrowser, RingError, StageNotStarted) as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(as_object(options["name"], results, settings.BASE_DIR), indent=2))
        else:
            self.stdout.write("\n".join(as_table(results)))
