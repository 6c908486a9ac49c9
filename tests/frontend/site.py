"""A small server for tests in a browser: `python -m tests.frontend.site`, with a market, accounts, a payout and a
played backbone in one process. It prints its address and serves until it is ended.

Needs VAR_DIR, DATABASE_URL and REDIS_URL of its own. People: `olga` runs the server, `bob` lends devices.
"""

import threading
import time
from datetime import datetime, timedelta
from typing import Any

import django

PASSWORD = "correct horse battery"
STATUS_SECONDS = 2.0
LONG_NAME = "A device whose owner gave it a really long name, 60 letters!!"[:60]


def seed() -> None:
    """Books of three days: two accounts, devices that earn, one payout that is waiting, one that is closed."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    from frontend.owner import accounts
    from inference.builds import current_index
    from inference.reports import build_description
    from market import commands

    now = timezone.now()
    User.objects.create_superuser("olga", password=PASSWORD)
    bob = accounts.open_account("bob", PASSWORD)
    commands.publish_build(build_description(current_index()), now=now - timedelta(days=3))
    owners = {"bob": accounts.account_of(bob), "carol": commands.create_owner("carol", "DE02 1203 0000 0000 2020 51")}
    commands.set_payee(owners["bob"], "DE89 3704 0044 0532 0130 00")
    for number, (name, owner) in enumerate([("Bob's phone", "bob"), (LONG_NAME, "bob"), ("Carol's laptop", "carol")]):
        _device(name, owners[owner], number, now)
    _stage("Bob's server", owners["bob"], now)
    commands.release_earnings(now - timedelta(days=1))
    first = _payout("2026-01", now)
    commands.approve_payout(first, by="bookkeeper", reason="compared with the report")
    commands.declare_incident(
        starts_at=now - timedelta(hours=5), ends_at=now - timedelta(hours=4), by="olga", reason="new network cards"
    )


def _device(name: str, owner_id: str, layer: int, now: datetime) -> None:
    """Earns on three days; holds eight experts and was seen just now."""
    from inference.builds import current_index
    from market import commands, presence
    from tests.builders import DIGEST

    build = current_index().fingerprint
    begin = now - timedelta(days=3)
    node_id, _token = commands.register_node(name, "numpy", now=begin)
    commands.link_node(node_id, owner_id, by="owner", reason="demo", now=begin)
    claim = commands.claim_ranges(node_id, [commands.RangeWish(layer, 8 * layer, 8 * layer + 8)], now=begin)[0]
    commands.verify_replica(claim.claim_id, claim.fence, DIGEST, "backbone", now=begin)
    for day in range(3):
        end = begin + timedelta(days=day, minutes=10 * (layer + 1))
        work = [(claim.claim_id, layer, 40_000 * (day + 1))]
        commands.credit_work(f"{node_id} {day}", build, node_id, end - timedelta(seconds=60), end, work, now=end)
    presence.mark_seen(node_id, now)


def _stage(name: str, owner_id: str, now: datetime) -> None:
    """Holds the second of the two stages of the model, layers 4 to 7; nobody holds the first."""
    from inference.builds import current_index, stages_of
    from market import commands, presence
    from tests.builders import DIGEST, stage_build

    cuts = stages_of(current_index()).cuts
    commands.publish_build(stage_build(cuts.build, units=cuts.units), now=now)
    node_id, _token = commands.register_node(name, "ggml", role="stage", now=now)
    commands.link_node(node_id, owner_id, by="owner", reason="demo", now=now)
    claim = commands.claim_ranges(node_id, [commands.RangeWish(0, 1, 2)], now=now)[0]
    commands.verify_replica(claim.claim_id, claim.fence, DIGEST, "backbone", now=now)
    presence.mark_seen(node_id, now)


def _payout(key: str, now: datetime) -> int:
    from market import commands

    return commands.draft_payout(
        key=key, by="olga", reason="the first one", minimum_microcredits=1, reserve_percent=5, now=now
    )


def play_backbone() -> None:
    """Answers every prompt with the same words, a token every few milliseconds; its status stays fresh."""
    from django.conf import settings
    from django.db import connection

    from inference import backbone_status, jobs, token_stream
    from inference.builds import current_index
    from inference.models import GenerationJob
    from inference.openai import submission
    from inference.token_stream import StreamedToken
    from tests.inference.openai.played_backbone import PlayedBackbone
    from tests.inference.statuses import backbone

    played = PlayedBackbone(settings.REDIS_URL)
    played.leave()
    build = current_index().fingerprint

    def stay() -> None:
        while True:
            backbone_status.publish(played.client, "b1", backbone(build=build, model="qwen35moe-demo"))
            time.sleep(STATUS_SECONDS)

    def write(job_id: str, attempt: int, texts: list[str]) -> None:
        for index, text in enumerate(texts):
            if token_stream.is_cancelled(played.client, job_id):
                finish = "cancelled"
            else:
                finish = "stop" if index == len(texts) - 1 else ""
            top = ((300 + index, text, -0.2), (900, " perhaps", -2.5), (901, " <b>", -4.0))
            where = None if index == 0 else (24 + index % 8, 4, 4)
            token = StreamedToken(attempt, index, 300 + index, text, finish, -0.2 - index % 5, top, "", where)
            token_stream.append(played.client, [(job_id, token)])
            if finish:
                jobs.finish_job(GenerationJob.objects.get(pk=job_id), finish=finish, generated=index + 1)
                break
            time.sleep(0.03)
        connection.close()

    def enqueue(job_id: str, priority: int = 0) -> None:
        job = jobs.take_job(job_id, boot="b1", alive=())
        assert job is not None
        words = ("In the evening the whale came up beside the boat, and nobody said a word for a while. " * 3).split(
            " "
        )
        texts = [f" {word}" for word in words[: job.sampling["max_tokens"]]]
        threading.Thread(target=write, args=(job_id, job.attempt, texts), daemon=True).start()

    submission.enqueue = enqueue
    threading.Thread(target=stay, daemon=True).start()


def serve() -> None:
    import uvicorn
    from django.core.asgi import get_asgi_application
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    seed()
    play_backbone()
    config: Any = uvicorn.Config(get_asgi_application(), host="127.0.0.1", port=0, lifespan="off", log_level="warning")
    server = uvicorn.Server(config)
    threading.Thread(target=_tell, args=(server,), daemon=True).start()
    server.run()


def _tell(server: Any) -> None:
    """The address, as soon as the server listens."""
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)


if __name__ == "__main__":
    django.setup()
    serve()
