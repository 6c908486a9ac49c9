"""config/doctor and `manage.py doctor`: each look at something that is wrong, and the whole at a real server."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.management import call_command
from pytest_django import Settings

from config.celery import app
from config.doctor import examine, host, queues, reach, stores
from config.doctor.deployment import Deployment
from config.doctor.findings import Finding, Level
from inference import backbone_status
from relay.directory import RelayProcess, register
from tests.e2e.processes import ROOT, running
from tests.model_files import DEMO_MODEL


def deployment(tmp_path: Path, **changes: Any) -> Deployment:
    values = {
        "redis_url": "",
        "public_url": "http://127.0.0.1:1",
        "relay_public_url": "ws://127.0.0.1:1/relay/",
        "model": DEMO_MODEL,
        "var_dir": tmp_path,
        "is_embedded": False,
        "pids": {"this process": os.getpid()},
    }
    return Deployment(**{**values, **changes})


def levels(findings: Iterator[Finding]) -> dict[str, Level]:
    found = list(findings)
    # Whatever is not fine says what to do.
    assert all(finding.todo for finding in found if finding.level is not Level.OK)
    return {finding.check: finding.level for finding in found}


def test_a_missing_and_a_silent_redis_are_errors(tmp_path: Path) -> None:
    assert levels(stores.store(deployment(tmp_path))) == {"redis": Level.ERROR}
    assert levels(stores.store(deployment(tmp_path, redis_url="redis://127.0.0.1:1/0"))) == {"redis": Level.ERROR}


def test_a_redis_that_evicts_what_waits_is_an_error(tmp_path: Path, redis_database: str) -> None:
    here = deployment(tmp_path, redis_url=redis_database)
    with redis.Redis.from_url(redis_database) as client:
        before = client.config_get("maxmemory*")
        client.config_set("maxmemory-policy", "allkeys-lru")
        evicting = levels(stores.store(here))
        client.config_set("maxmemory", "100mb")
        limited = levels(stores.store(here))
        for name in ("maxmemory-policy", "maxmemory"):
            client.config_set(name, before[name])

    assert evicting["redis eviction"] is Level.WARNING
    assert limited["redis eviction"] is Level.ERROR
    assert levels(stores.store(here))["redis eviction"] is Level.OK


@pytest.mark.django_db
def test_a_clock_that_is_wrong_is_found(tmp_path: Path, redis_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = deployment(tmp_path, redis_url=redis_database)
    right = levels(stores.clocks(here))
    now = time.time
    monkeypatch.setattr("config.doctor.stores.time.time", lambda: now() + 60)

    assert right == {"clock of redis": Level.OK}
    assert levels(stores.clocks(here)) == {"clock of redis": Level.ERROR}


def test_a_different_visibility_timeout_in_one_place_is_an_error(
    tmp_path: Path, redis_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = deployment(tmp_path, redis_url=redis_database)
    same = levels(queues.visibility_timeouts(here))
    monkeypatch.setitem(app.conf.result_backend_transport_options, "visibility_timeout", 3600)

    assert same["visibility timeout"] is Level.OK
    assert levels(queues.visibility_timeouts(here))["visibility timeout"] is Level.ERROR


def test_backbones_that_miss_a_relay_or_are_absent_are_errors(tmp_path: Path, redis_database: str) -> None:
    here = deployment(tmp_path, redis_url=redis_database)
    absent = levels(queues.backbones(here))
    status = {"started": time.time(), "model": "demo", "relays_connected": [True, False], "workers": 0}
    with redis.Redis.from_url(redis_database) as client:
        backbone_status.publish(client, "abcdef", status)

    assert absent == {"backbone": Level.ERROR}
    assert levels(queues.backbones(here)) == {"backbone abcdef": Level.ERROR}


def test_relays_that_nobody_reaches_are_errors(tmp_path: Path, redis_database: str) -> None:
    here = deployment(tmp_path, redis_url=redis_database)
    absent = levels(reach.relays(here))
    with redis.Redis.from_url(redis_database) as client:
        register(client, RelayProcess("b", "ws://127.0.0.1:1/relay/", "ws://127.0.0.2:1/relay/"))

    assert absent == {"relays": Level.ERROR}
    assert levels(reach.relays(here)) == {"relay, for backbones": Level.ERROR, "relay, for workers": Level.ERROR}


def test_a_public_address_that_is_silent_and_a_closed_443_are_errors(tmp_path: Path) -> None:
    here = deployment(tmp_path, public_url="https://127.0.0.1:1")

    assert levels(reach.public_address(here)) == {"public address": Level.ERROR}
    assert levels(reach.certificate(here)) == {"tls": Level.ERROR}


def test_a_model_that_is_none_and_one_that_is_fine(tmp_path: Path) -> None:
    wrong = deployment(tmp_path, model=tmp_path / "absent.gguf")

    assert levels(host.model(wrong)) == {"model": Level.ERROR}
    assert levels(host.model(deployment(tmp_path))) == {"model": Level.OK}


def test_an_open_folder_is_a_warning_and_a_gpu_that_llama_cpp_does_not_know_an_error(
    tmp_path: Path, settings: Settings
) -> None:
    tmp_path.chmod(0o755)
    settings.BACKBONE_GPU_LAYERS = 99

    assert levels(host.folders(deployment(tmp_path)))["folder"] is Level.WARNING
    assert levels(host.gpu(deployment(tmp_path))) == {"gpu": Level.ERROR}


@pytest.mark.django_db
def test_unsafe_settings_are_findings(tmp_path: Path, settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["swarm.example"]
    settings.DEBUG = True

    assert levels(host.configuration(deployment(tmp_path)))["settings config.E003"] is Level.ERROR


@pytest.mark.django_db
def test_a_look_that_fails_is_a_finding_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Deployment) -> Iterator[Finding]:
        raise RuntimeError("a bug")

    monkeypatch.setattr(host, "folders", broken)
    monkeypatch.setattr(examine, "logger", examine.logger.getChild("quiet"))

    found = levels(examine.examine(deployment(tmp_path)))

    assert found["folders"] is Level.ERROR
    assert found["model"] is Level.OK


@pytest.mark.django_db
def test_it_exits_1_with_one_object_when_something_is_wrong(var_dir: Path) -> None:
    output = StringIO()

    with pytest.raises(SystemExit) as ended:
        call_command("doctor", "--json", stdout=output)

    report = json.loads(output.getvalue())
    assert ended.value.code == 1
    assert report["ok"] is False
    assert report["counts"]["error"] > 0


@pytest.mark.e2e
def test_the_embedded_server_is_healthy(tmp_path: Path) -> None:
    environment = {"VAR_DIR": str(tmp_path / "var")}
    command = ["manage.py", "up", "--workers", "0", "--port", "0"]
    with running(command, tmp_path / "up.log", environment) as up:
        up.wait_for(lambda: "Ready." in up.output, 150, "the server is ready")

        looked = subprocess.run(
            [sys.executable, "manage.py", "doctor"],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    print(looked.stdout)
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert "0 errors" in looked.stdout
    assert "ok    relay, for backbones" in looked.stdout
    assert "ok    visibility timeout" in looked.stdout
