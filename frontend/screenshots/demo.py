"""What the demo server shows: a large market, people, requests, a backbone's status, a day of samples.

Run as a program it fills the database of the settings, says READY, and speaks for a backbone until it is ended: the
status of a backbone vanishes seconds after its last word.
"""

import math
import os
import sys
import time
from datetime import datetime, timedelta
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
if __name__ == "__main__":
    django.setup()

import numpy as np
import redis
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.management import call_command
from django.utils import timezone

from config.celery import SAMPLE_SECONDS
from config.tasks import CANARY_KEY
from frontend import samples
from frontend.owner import accounts
from frontend.samples import Sample
from frontend.screenshots.scene import (
    BOOKKEEPER,
    BUILD,
    CLAIMS,
    DEVICES,
    OPERATOR,
    OWNER,
    PASSWORD,
    READY,
    STAGE_HOSTS,
    STAGES,
)
from inference import backbone_status
from inference.hot_set import pack_flags
from inference.models import ApiKey, GenerationJob
from market import commands, node_list, presence, queries
from market.benchmarks import large
from market.models import Node, PayoutItem
from market.payout_providers import CsvProvider

SPEAK_SECONDS = 2.0
# Other accounts, each with a few devices: whom the payout batches pay.
PAID_OWNERS, DEVICES_OF_EACH = ("Ana", "Chidi", "Grete", "Jun", "Mei"), 6
RESERVE_PERCENT = 40
# Rewards are held in tens of minutes; these are over soon.
HELD_AT_MOST = timedelta(minutes=11)


def fill(*, empty: bool) -> None:
    """The database and Redis. empty: an operator and nothing else."""
    call_command("migrate", verbosity=0)
    User.objects.create_superuser(OPERATOR, password=PASSWORD)
    if empty:
        return
    now = timezone.now()
    large.write(BUILD, DEVICES, CLAIMS, now)
    _stages()
    _owner()
    _payouts()
    _requests()
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        _day(client, time.time())


def _stages() -> None:
    """Hosts that hold runs of the dense path, all checked."""
    commands.publish_build(STAGES)
    for name, first, last in STAGE_HOSTS:
        node_id, _token = commands.register_node(name, large.KERNELS[0], role="stage")
        wish = commands.RangeWish(0, first, last)
        claim = commands.claim_ranges(node_id, [wish], STAGES.fingerprint)[0]
        commands.verify_replica(claim.claim_id, claim.fence, "ab" * 32, "backbone")


def _owner() -> None:
    """Somebody with an account and three devices, one of them with a long name."""
    owner_id = accounts.account_of(accounts.open_account(OWNER, PASSWORD))
    commands.set_payee(owner_id, "DE89 3704 0044 0532 0130 00")
    lines = sorted(node_list.node_lines(), key=lambda line: (-len(line.name), -line.experts))
    for line in [line for line in lines if line.state == "working"][:3]:
        commands.link_node(line.node_id, owner_id, by="owner", reason="added in the account")


def _payouts() -> None:
    """A batch that is paid, but for one item, and a batch that waits for a second person."""
    free = iter(
        Node.objects.filter(owner_id="", suspended_reason="").order_by("node_id").values_list("node_id", flat=True)
    )
    for number, name in enumerate(PAID_OWNERS):
        owner_id = commands.create_owner(name, f"DE02 1203 0000 0000 2020 {number:02}")
        for _ in range(DEVICES_OF_EACH):
            commands.link_node(next(free), owner_id, by="owner", reason="added in the account")
    later = timezone.now() + HELD_AT_MOST
    commands.release_earnings(later)
    first = _drafted("2026-10", "October", later)
    commands.approve_payout(first, by=BOOKKEEPER, reason="compared with the report")
    provider = CsvProvider(settings.VAR_DIR / "payouts")
    commands.send_payout(first, provider, by=BOOKKEEPER, reason="carried to the bank")
    failed, *paid = PayoutItem.objects.filter(batch_id=first).order_by("item_id").values_list("item_id", flat=True)
    commands.fail_item(failed, reason="the bank does not know this account", by=BOOKKEEPER)
    for item in paid:
        commands.settle_item(item, reference=f"transfer {item}", by=BOOKKEEPER)
    _drafted("2026-11", "November, the rest stays for reversals", later)


def _drafted(key: str, reason: str, at: datetime) -> int:
    return commands.draft_payout(
        key=key, by=OPERATOR, reason=reason, minimum_microcredits=1, reserve_percent=RESERVE_PERCENT, now=at
    )


def _requests() -> None:
    """Answers that run, wait, ended and failed."""
    now = timezone.now()
    keys = [
        ApiKey.objects.create(name=name, key_sha256=f"{number:064x}", hint=f"sk-...{number:04}")
        for number, name in enumerate(("chat.example", "A very long name of a research group that asks at night", "ci"))
    ]
    for number in range(64):
        state = "running" if number < 9 else "queued" if number < 12 else "failed" if number % 19 == 0 else "done"
        started = now - timedelta(seconds=7 * number + 1)
        job = GenerationJob.objects.create(
            api_key=keys[number % 3] if number % 4 else None,
            model=BUILD.name,
            state=state,
            attempt=1 if state != "queued" else 0,
            backbone_boot="b7c2a91e" if state == "running" else "",
            prompt_count=40 + 37 * number % 400,
            generated_count=0 if state in ("running", "queued") else 20 + 53 * number % 256,
            finish=""
            if state in ("running", "queued")
            else "error"
            if state == "failed"
            else ("stop", "length")[number % 2],
            error="context_full: the sequence is longer than the context" if state == "failed" else "",
            started_at=None if state == "queued" else started,
            finished_at=started + timedelta(seconds=6 + number % 5) if state in ("done", "failed") else None,
        )
        GenerationJob.objects.filter(pk=job.pk).update(created_at=started - timedelta(seconds=number % 3))


def _day(client: "redis.Redis", now: float) -> None:
    """A day of minutes and an hour of five seconds: quiet nights, a backbone that was restarted, a busy evening."""
    for key, step, count in (
        (samples.COARSE_KEY, SAMPLE_SECONDS * samples.COARSE_STEP, samples.COARSE_LENGTH),
        (samples.FINE_KEY, SAMPLE_SECONDS, samples.FINE_LENGTH),
    ):
        texts = [samples.as_text(one) for one in _samples(now, step, count)]
        client.lpush(key, *texts)


def _samples(now: float, step: float, count: int) -> list[Sample]:
    rng = np.random.default_rng(11)
    found, rows, tokens, moved, joined, left = [], [0, 0, 0, 0], 0, 0, 0, 0
    for number in range(count):
        at = now - (count - 1 - number) * step
        busy = 0.65 + 0.2 * math.sin(2 * math.pi * (at - now + 20_000) / 86_400) + 0.04 * math.sin(at / 190)
        speed = 96 * busy * (1 + 0.05 * float(rng.standard_normal()))
        grown = speed * step
        tokens, moved = tokens + int(grown), moved + int(grown * 8_400_000 * (1 + 0.03 * float(rng.standard_normal())))
        for place, share in enumerate((0.71, 0.16, 0.11, 0.02)):
            rows[place] += int(grown * 8 * 49 * share * (1 + 0.05 * float(rng.standard_normal())))
        joined, left = joined + int(rng.poisson(step / 55)), left + int(rng.poisson(step / 60))
        found.append(
            Sample(
                at=round(at, 1),
                tokens_per_second=round(speed, 2),
                active=round(52 * busy),
                waiting=max(0, round(70 * (busy - 0.85))),
                rows=(rows[0], rows[1], rows[2], rows[3]),
                tokens=tokens,
                moved_bytes=moved,
                answer_p50=round(38 + 9 * busy + float(rng.standard_normal()), 2),
                answer_p99=round(140 + 90 * busy + 9 * float(rng.standard_normal()), 2),
                nodes=DEVICES - 12 + (joined - left) % 12,
                joined=joined,
                left=left,
                spent=int((at % 3600) * 190_000 * busy),
            )
        )
    return found


def status(now: float) -> backbone_status.Status:
    """What a busy backbone says of itself."""
    claims = queries.open_claims(BUILD.fingerprint)
    nodes = list(dict.fromkeys(claim.node_id for claim in claims))
    rng = np.random.default_rng(5)
    seconds = rng.gamma(3.0, 0.018, len(nodes))
    hot = np.zeros((len(BUILD.layers), BUILD.experts_per_layer), bool)
    hot[np.arange(len(BUILD.layers))[:, None], queries.demand(BUILD.fingerprint).argsort(axis=1)[:, -9:]] = True
    base: dict[str, Any] = {
        "started": now - 7200,
        "build": BUILD.fingerprint,
        "model": BUILD.name,
        "kernel_class": "ggml-0.25.3+avx512",
        "layers": 49,
        "experts_per_layer": 256,
        "sequences_active": 41,
        "sequences_waiting": 3,
        "sequences_limit": 64,
        "tokens_generated": 618_211,
        "prompt_tokens": 90_312,
        "tokens_per_second": 84.6,
        "decodes": 15_100,
        "failed_decodes": 0,
        "relays_connected": [True, True],
        "sessions": len(nodes),
        "workers": len(nodes),
        "replicas": len(claims),
    }
    return {
        **base,
        "rows": {"remote": 7_100_000, "local_uncovered": 1_600_000, "local_hot": 1_100_000, "fallback_late": 200_000},
        "moments": {"retried_rows": 8_000, "sent_bytes": 4 * 10**11, "received_bytes": 2 * 10**12},
        "audits": {"before": 900, "passed": 12_000},
        "failures": [[node, "late", 1 + 3 * number] for number, node in enumerate(nodes[::17])],
        "owners": {
            node: {"seconds": float(took), "deviation_seconds": 0.004, "answers": 40 + number}
            for number, (node, took) in enumerate(zip(nodes, seconds, strict=True))
        },
        "hot_set": {"flags": pack_flags(hot), "layers": len(BUILD.layers)},
    }


def speak() -> None:
    """One round of what a living server says: a backbone, its devices, the canaries."""
    now = time.time()
    said = status(now)
    hosts = Node.objects.filter(role="stage").values_list("node_id", flat=True)
    presence.mark_all_seen([*said["owners"], *hosts], timezone.now())
    for queue in ("backbone", "upkeep"):
        cache.set(CANARY_KEY.format(queue=queue), now, 600)
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        backbone_status.publish(client, "b7c2a91e", said)


def main() -> None:
    empty = "--empty" in sys.argv
    fill(empty=empty)
    if not empty:
        speak()
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()
    while True:
        time.sleep(SPEAK_SECONDS)
        if not empty:
            speak()


if __name__ == "__main__":
    main()
