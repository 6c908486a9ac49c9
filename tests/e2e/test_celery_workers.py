"""The Celery workers as real processes over a real Valkey: canary, warm end, and the watchdog."""

import signal
from pathlib import Path

import pytest
import redis

from config.celery import app
from tests.e2e.processes import running

pytestmark = pytest.mark.e2e

WORKER = [
    "worker",
    "--queues",
    "upkeep",
    "--pool",
    "threads",
    "--concurrency",
    "2",
    "--hostname",
    "upkeep@test",
    "-l",
    "INFO",
]
CELERY = ["-m", "celery", "-A", "config"]
# The same worker with an impatient watchdog, deaf as soon as it is ready.
DEAF = """if True:
    import sys
    from celery import signals
    from celery.__main__ import main
    from config import watchdog
    watchdog.LOOK_SECONDS, watchdog.DEAF_SECONDS, watchdog.EXIT_SECONDS = 0.2, 1.0, 5.0
    signals.worker_ready.connect(lambda sender, **_: sender.cancel_task_queue("upkeep"), weak=False)
    sys.argv[1:1] = ["-A", "config"]
    sys.exit(main())
"""


def environment(redis_url: str, var_dir: Path) -> dict[str, str]:
    return {"REDIS_URL": redis_url, "VAR_DIR": str(var_dir), "SECRET_KEY": "for this test"}


def send(redis_url: str, task: str, *arguments: str) -> None:
    with app.connection_for_write(redis_url.replace("unix://", "redis+socket://")) as connection:
        app.send_task(task, args=arguments, queue="upkeep", connection=connection)


def test_a_worker_serves_its_queue_and_ends_on_sigterm(redis_database: str, tmp_path: Path) -> None:
    with (
        redis.Redis.from_url(redis_database) as client,
        running([*CELERY, *WORKER], tmp_path / "log", environment(redis_database, tmp_path)) as worker,
    ):
        worker.wait_for(lambda: bool(client.keys("*canary:upkeep")), 30, "the canary sang at the start")
        send(redis_database, "config.canary", "another")
        worker.wait_for(lambda: bool(client.keys("*canary:another")), 30, "the canary sang when asked")
        status = worker.end(signal.SIGTERM, 20)

        assert status == 0
        assert not worker.session_members()


def test_a_worker_without_redis_is_refused(tmp_path: Path) -> None:
    with running([*CELERY, *WORKER], tmp_path / "log", {"VAR_DIR": str(tmp_path)}) as worker:
        assert worker.process.wait(30) != 0

        assert "REDIS_URL is not set" in worker.output


def test_a_worker_that_no_longer_hears_its_queue_ends_itself(redis_database: str, tmp_path: Path) -> None:
    with running(["-c", DEAF, *WORKER], tmp_path / "log", environment(redis_database, tmp_path)) as worker:
        worker.wait_for(lambda: "ready." in worker.output, 30, "the worker is ready")

        send(redis_database, "config.canary", "upkeep")
        worker.process.wait(30)

        assert "this worker ends itself" in worker.output
        assert not worker.session_members()
