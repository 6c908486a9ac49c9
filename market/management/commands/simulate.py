"""`manage.py simulate market`: hours of a swarm in fast motion; exits 1 when the market did not keep up."""

import json
import sys
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from tqdm import tqdm

from market.builds import BuildDescription
from market.policy import Policy
from market.simulation.report import Outcome, outcome
from market.simulation.swarm import Swarm

# With more devices than this every expert is wanted twice, unless --target says otherwise.
ONE_REPLICA_DEVICES = 1000
# Qwen3.5-122B-A10B in Q4_K_M: 48 layers x 256 experts of three Q4_K tensors, 3072 x 1024 each.
LARGE_BUILD = BuildDescription(
    fingerprint="0" * 32,
    name="Qwen3.5-122B-A10B shape",
    architecture="qwen35moe",
    n_embd=3072,
    n_ff=1024,
    experts_per_layer=256,
    experts_used=8,
    layers=tuple(range(48)),
    expert_bytes=(5_308_416,) * 48,
    expert_types=(("Q4_K",),) * 48,
)


class Command(BaseCommand):
    help = "Play hours of a swarm against the market's real rules: 12,288 experts, devices that come and go."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=["market"])
        parser.add_argument("--devices", type=int, default=500, help="devices online at any time (42 to 340 MB each)")
        parser.add_argument("--hours", type=float, default=6.0)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--target", type=int, help="replicas of every expert; default 1, above 1,000 devices 2")
        parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")

    def handle(self, *args: Any, **options: Any) -> None:
        devices = options["devices"]
        target = options["target"] or (1 if devices <= ONE_REPLICA_DEVICES else 2)
        swarm = Swarm(LARGE_BUILD, Policy(target_replicas=target), devices, options["seed"])
        began = time.monotonic()
        self._run(swarm, options["hours"], quiet=options["json"])
        found = outcome(swarm, devices=devices, hours=options["hours"], seed=options["seed"])
        if options["json"]:
            body = {**found.to_json(), "seconds": round(time.monotonic() - began, 1)}
            self.stdout.write(json.dumps(body, indent=2))
        else:
            self._say(found, time.monotonic() - began)
        if not found.ok:
            sys.exit(1)

    def _run(self, swarm: Swarm, hours: float, *, quiet: bool) -> None:
        minutes = round(hours * 60)
        with tqdm(
            total=minutes, unit=" min", desc="simulated", disable=True if quiet else None, file=sys.stderr
        ) as bar:
            swarm.run(hours, lambda share: bar.update(int(share * minutes) - bar.n))

    def _say(self, found: Outcome, seconds: float) -> None:
        for name, value in found.to_json().items():
            self.stdout.write(f"  {name:32} {value}")
        verdict = "ok" if found.ok else "NOT ok"
        self.stdout.write(
            f"{verdict}: {found.share_at_target:.2%} of the experts at target, {seconds:.0f} s of computing"
        )
