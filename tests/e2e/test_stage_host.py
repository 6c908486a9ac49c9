"""Stages of an operator beside a real server: rings over direct TCP whose experts the server's workers compute."""

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from inference import backbone_status
from inference.benchmarks.rig.site import free_port
from inference.gguf_index import open_index
from inference.verify.stage_processes import cut_stages
from tests.e2e.live_server import MODEL, LiveServer, live_server
from tests.e2e.processes import Running, running
from tests.inference.models import DEMO_MODEL

pytestmark = pytest.mark.e2e
SECRET = "a secret of these stages"


@contextmanager
def stage_hosts(server: LiveServer, paths: list[Path], ports: list[int], folder: Path) -> Iterator[list[Running]]:
    run = server.run
    environment = {
        "VAR_DIR": str(server.var_dir), "REDIS_URL": run.redis_url, "PUBLIC_URL": run.url, "STAGE_SECRET": SECRET,
        "CREDIT_WINDOW_SECONDS": "2", "SPOOL_SECONDS": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    with ExitStack() as stack:
        hosts = []
        for path, port in zip(paths, ports, strict=True):
            command = ["manage.py", "stage", str(path), "--listen", f"127.0.0.1:{port}"]
            hosts.append(stack.enter_context(running(command, folder / f"stage-{port}.log", environment)))
        yield hosts


def told(server: LiveServer) -> dict[str, Any]:
    """What the backbone says of itself."""
    with redis.Redis.from_url(server.run.redis_url) as client:
        return backbone_status.all_statuses(client)[0]


def credited_boots(server: LiveServer) -> set[str]:
    """The boots of processes that told the market of work of workers."""
    with closing(sqlite3.connect(server.var_dir / "expertswarm.sqlite3")) as connection:
        bodies = connection.execute("SELECT body FROM market_event WHERE name = 'work-credited'").fetchall()
    return {json.loads(body)["key"].split("/")[1] for (body,) in bodies}


def test_workers_are_credited_for_experts_that_stages_asked_for(tmp_path: Path) -> None:
    paths = cut_stages(open_index(DEMO_MODEL), tmp_path / "stages", 2)
    ports = [free_port(), free_port()]
    settings = {
        "STAGES": ",".join(f"127.0.0.1:{port}" for port in ports), "STAGE_SECRET": SECRET, "BACKBONE_LANES": "1",
    }  # fmt: skip
    question = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}
    with (
        live_server(tmp_path, "--workers", "1", **settings) as server,
        stage_hosts(server, paths, ports, tmp_path) as hosts,
    ):
        backbone = told(server)["boot"]
        server.wait_for(lambda: told(server)["rings"]["is_whole"], 60, "the ring is whole")
        server.wait_for(lambda: server.stats()["claims"]["live"] > 0, 60, "its replicas are live")
        client = server.client()

        quick = client.completions.create(**question, extra_body={"latency": "low"})  # type: ignore[call-overload]
        calm = client.completions.create(**question)  # type: ignore[call-overload]

        assert quick.choices[0].text == calm.choices[0].text
        server.wait_for(lambda: told(server)["rings"]["steps"] >= 16, 30, "its steps around the ring are told")
        server.wait_for(lambda: len(credited_boots(server) - {backbone}) == 2, 30, "both stages credited work")
        assert [host.end(signal.SIGTERM, 20) for host in hosts] == [0, 0]
