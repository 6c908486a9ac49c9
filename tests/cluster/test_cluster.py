"""`make test-cluster`: PostgreSQL, Redis, nginx, two relays (Daphne, uvicorn), two backbones and six workers, each a
process on a host of its own, while parts are restarted. The tests run in this order on one cluster."""

import json
import signal
import time
from pathlib import Path

import httpx
import pytest
import redis

from inference.chaos.load import Load
from inference.chaos.run import Settings, run_against
from tests.cluster.cluster import ChaosTarget, Cluster
from tests.cluster.load import StrictLoad
from tests.cluster.programs import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_requests_are_computed_by_workers_of_other_machines_behind_tls(cluster: Cluster) -> None:
    with StrictLoad(cluster) as load:
        finished = load.wait_for_answers(12)

    assert finished >= 12
    assert load.tally.failures == []
    stats = cluster.stats()
    assert stats["rows"]["remote"] > 0.2 * sum(stats["rows"].values())
    assert len(stats["backbones"]) == 2


def test_plain_http_is_sent_to_https_and_metrics_stay_inside(cluster: Cluster) -> None:
    with cluster.client() as client:
        hidden = client.get("/metrics")
        page = client.get("/")

    assert hidden.status_code == 404
    assert page.headers["strict-transport-security"].startswith("max-age=31536000")
    assert len(page.headers["x-request-id"]) == 32
    if cluster.hosts.is_separate:
        plain = httpx.get(f"http://{cluster.hosts.address('front')}/join", trust_env=False)
        inside = httpx.get(f"http://{cluster.hosts.address('relay-1')}:8001/metrics", trust_env=False)
        assert (plain.status_code, plain.headers["location"][:8]) == (308, "https://")
        assert "expertswarm_backbones 2.0" in inside.text


@pytest.mark.parametrize("name", ["relay-1", "relay-2", "backbone-1", "backbone-2"])
def test_a_restart_under_load_fails_no_request(cluster: Cluster, name: str) -> None:
    with StrictLoad(cluster) as load:
        load.wait_for_answers(3)
        status = cluster.keeper.restart(name)
        during = load.tally.finished
        cluster.wait_connected()
        load.wait_for_answers(3)

    print(f"{name}: {load.tally.finished} requests, slowest {load.tally.slowest_seconds:.1f} s")
    print((cluster.folder / "logs" / "nginx-error.log").read_text()[-4000:])
    assert load.tally.failures == []
    assert status in (0, -signal.SIGTERM)
    assert load.tally.finished > during


@pytest.mark.parametrize("name", ["redis", "postgres"])
def test_answers_that_have_begun_outlive_a_restart_of_a_store(cluster: Cluster, name: str) -> None:
    load = Load(cluster.url, cluster.api_key, 6, cluster.tls)
    load.start()
    time.sleep(2)

    cluster.keeper.restart(name)
    cluster.wait_connected()
    before = load.tally.finished
    wait_until(lambda: load.tally.finished >= before + 6, 60, "clients go on", cluster.keeper)
    stuck = load.stop(90)

    assert stuck == 0
    assert load.tally.failures == []
    wait_until(lambda: sum(open_generations(cluster)) == 0, 30, "no generation is left over", cluster.keeper)


def open_generations(cluster: Cluster) -> tuple[int, int]:
    queue = cluster.stats().get("queue", {"queued": 1, "running": 1})
    return queue["queued"], queue["running"]


def test_the_doctor_finds_nothing_wrong_with_it(cluster: Cluster) -> None:
    looked = cluster.manage("doctor", "--json", host="backbone-1", VAR_DIR=str(cluster.folder / "var" / "backbone-1"))

    report = json.loads(looked.stdout)
    levels = {finding["check"]: finding["level"] for finding in report["findings"]}
    wrong = [finding for finding in report["findings"] if finding["level"] == "error"]
    assert wrong == []
    assert looked.returncode == 0
    checks = (
        *("database", "migrations", "redis eviction", "clock of database", "clock of redis", "visibility timeout"),
        *("queue backbone", "queue upkeep", "tls", "relay, for workers", "relay, for backbones", "model"),
    )
    assert {check: levels[check] for check in checks} == dict.fromkeys(checks, "ok")
    (timeouts,) = [finding for finding in report["findings"] if finding["check"] == "visibility timeout"]
    # Both transports of the settings and of each of three Celery workers, and the transport of the doctor itself.
    assert "all 9 places" in timeouts["what"]


def test_a_backup_of_the_running_server_restores_into_an_empty_database_with_equal_books(
    cluster: Cluster, tmp_path: Path
) -> None:
    path = tmp_path / "backup.jsonl.gz"
    scratch = cluster.make_database("scratch")

    saved = cluster.manage("backup", str(path))
    restored = cluster.manage("restore", str(path), DATABASE_URL=scratch)

    assert saved.returncode == 0, saved.stderr
    assert restored.returncode == 0, restored.stdout + restored.stderr
    assert "the books are equal" in restored.stdout
    assert restored.stdout.rstrip().endswith("equal")


def test_the_chaos_run_passes_on_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(cluster.authority))
    with redis.Redis.from_url(cluster.redis_url) as client:
        assert client.ping()

    verdict = run_against(ChaosTarget(cluster), Settings(seconds=25.0, seed=9, clients=6), print)

    print(verdict.figures)
    assert verdict.problems == []
    assert verdict.figures["requests_finished"] >= 6
    assert verdict.figures["max_abs_diff"] == 0.0


def test_logs_are_json_with_ids_and_hold_neither_prompts_nor_secrets(cluster: Cluster) -> None:
    logs = {path.name: path.read_text() for path in (cluster.folder / "logs").glob("*.log")}
    servers = "".join(logs[f"{name}.log"] for name in ("relay-1", "relay-2", "backbone-1", "backbone-2", "upkeep"))

    assert '"logger": "relay.connection"' in servers
    assert '"node_id"' in servers
    for secret in (cluster.api_key, cluster.environment["BACKBONE_TOKEN"], cluster.environment["SECRET_KEY"]):
        assert secret not in "".join(logs.values())
    for opening in ("In the beginning", "Call me Ishmael", "To be, or not to be"):
        assert opening not in servers
