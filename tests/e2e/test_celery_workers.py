"""The Celery workers as real processes over a real Valkey: canary, warm end, and the watchdog."""

import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import redis

from config import embedded_redis
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


def sang(client: "redis.Redis", name: str) -> bool:
    return bool(client.keys(f"*canary:{name}"))


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


@contextmanager
def redis_until_killed(folder: Path) -> Iterator[None]:
    """A Redis on the socket of `folder`, with an append-only file there, that ends by SIGKILL."""
    path = embedded_redis.socket_path(folder)
    command = embedded_redis.command(embedded_redis.find_server(), folder, path, keep=True)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as store:
        while not embedded_redis.answers(path):
            assert store.poll() is None
            time.sleep(0.05)
        yield
        store.kill()


def test_a_worker_outlives_a_redis_that_is_killed_again_and_again(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    url = embedded_redis.url(embedded_redis.socket_path(folder))
    with running([*CELERY, *WORKER], tmp_path / "log", environment(url, tmp_path)) as worker:
        for name in ("first", "second", "third"):
            with redis_until_killed(folder), redis.Redis.from_url(url) as client:
                send(url, "config.canary", name)
                worker.wait_for(partial(sang, client, name), 40, f"the {name} canary sang")
            time.sleep(1.5)  # the worker notices, and tries to connect in vain

        assert worker.process.poll() is None


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
