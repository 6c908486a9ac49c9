"""inference/stats.py, inference/metrics.py and their addresses: sums over backbones, the market's view, no names."""

import itertools
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import redis
from django.core.cache import cache
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from inference import backbone_status, jobs, stats
from inference.sampling import SamplingParameters
from market import commands
from relay.outage import Outage
from tests.builders import claimed, demo_build, registered, verified
from tests.inference.statuses import backbone

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    monkeypatch.setattr(stats, "_redis", Outage(stats.logger, "Redis", quiet_seconds=60.0))


@pytest.fixture
def store(redis_database: str, settings: Settings) -> Iterator["redis.Redis"]:
    settings.REDIS_URL = redis_database
    with redis.Redis.from_url(redis_database) as client:
        yield client


def publish(client: "redis.Redis", *statuses: backbone_status.Status) -> None:
    for status in statuses:
        backbone_status.publish(client, status["boot"], status)


def test_without_anything_every_figure_is_zero(settings: Settings) -> None:
    settings.REDIS_URL = ""

    found = stats.collect()

    assert found["engine"]["ready"] is False
    assert found["reachable"] == {"redis": False, "database": True}
    assert (found["rows"], found["workers"]["live"], found["experts"]["offered"]) == ({}, 0, 0)


def test_backbones_are_summed(store: "redis.Redis") -> None:
    publish(store, backbone("b1"), backbone("b2", started=950.0, tokens_per_second=7.5, rows={"remote": 100}))

    found = stats.collect()

    assert found["engine"]["ready"] is True
    assert found["engine"]["backbones"] == 2
    assert (found["engine"]["tokens_per_second"], found["engine"]["sequences_active"]) == (20.0, 6)
    assert found["rows"]["remote"] == 700
    assert found["row_totals"] == {"remote": 700, "local": 360, "fallback": 40, "remote_share": 700 / 1100}
    assert [owner["backbone"] for owner in found["owners"]] == ["b1", "b2"]
    assert found["failures"] == [{"node": "node-1", "code": "late", "count": 8}]
    assert [each["boot"] for each in found["backbones"]] == ["b1", "b2"]


def test_rings_are_told_of_backbones_that_serve_some(store: "redis.Redis") -> None:
    ring = {"is_whole": True, "stages": {"node/7": [0, 4]}, "steps": 12}
    publish(store, {**backbone("b1"), "rings": ring}, {**backbone("b2"), "rings": None})

    assert stats.collect()["rings"] == [{"backbone": "b1", **ring}]


def test_hot_experts_are_told_in_figures_and_by_number(store: "redis.Redis") -> None:
    publish(store, backbone("b1"), backbone("b2", started=950.0))

    hot_sets = stats.collect()["hot_sets"]
    flags = stats.hot_experts(backbone_status.all_statuses(store), demo_build())

    assert [(each["backbone"], each["pin_error"]) for each in hot_sets] == [("b1", "no room"), ("b2", "no room")]
    assert "flags" not in hot_sets[0]
    assert np.argwhere(flags).tolist() == [[0, 3], [5, 31]]


def test_the_market_says_which_experts_are_offered_claimed_and_live(store: "redis.Redis") -> None:
    commands.publish_build(demo_build())
    bob, carol = registered("Bob's phone"), registered("Carol's phone")
    verified(claimed(bob, 0, 0, 8))
    claimed(carol, 1, 0, 16)
    publish(store, backbone())

    found = stats.collect()

    assert found["experts"] == {
        "offered": 256, "claimed": 24, "live": 8, "replicas_live": 8, "replicas_least": 0,
    }  # fmt: skip
    assert found["claims"] == {"pending": 1, "live": 1}
    assert found["workers"] == {"live": 1, "sessions": 1, "holding": 1}


def test_the_last_published_build_is_shown_while_no_backbone_lives(settings: Settings) -> None:
    settings.REDIS_URL = ""
    commands.publish_build(demo_build())

    assert stats.collect()["experts"]["offered"] == 256


def test_a_model_whose_experts_cannot_be_lent_offers_none(store: "redis.Redis") -> None:
    publish(store, backbone(build="f" * 32))

    assert stats.collect()["experts"]["offered"] == 0


def test_the_queue_tells_waiting_from_running(settings: Settings) -> None:
    settings.REDIS_URL = ""
    waiting = [jobs.create_job("demo", [1], SamplingParameters()) for _ in range(3)]
    jobs.take_job(waiting[0].pk, boot="b1", alive=())

    assert stats.collect()["queue"] == {"queued": 2, "running": 1, "limit": settings.API_QUEUE_LENGTH}


def test_a_redis_that_is_gone_is_said_and_not_raised(settings: Settings) -> None:
    settings.REDIS_URL = "unix:///nowhere/redis.sock"

    assert stats.collect()["reachable"] == {"redis": False, "database": True}


def test_a_redis_that_says_nothing_is_waited_for_once_and_the_database_still_speaks(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.create_job("demo", [1], SamplingParameters())
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        settings.REDIS_URL = f"redis://127.0.0.1:{deaf.getsockname()[1]}/0"
        backend = "django.core.cache.backends.redis.RedisCache"
        options = settings.REDIS_ANSWER_OPTIONS
        settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": settings.REDIS_URL, "OPTIONS": options}}

        began = time.monotonic()
        first = stats.snapshot()
        waited = time.monotonic() - began
        second = stats.snapshot()
        waited_again = time.monotonic() - began - waited

    assert first["reachable"] == second["reachable"] == {"redis": False, "database": True}
    assert first["queue"]["queued"] == 1
    assert waited < 1.5 * settings.REDIS_ANSWER_SECONDS
    assert waited_again < 0.5
    assert [record.message[:30] for record in caplog.records] == ["Redis cannot be reached: Timeo"]


def test_figures_are_asked_for_once_a_second_however_many_ask(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REDIS_URL = ""
    numbers = itertools.count(1)
    monkeypatch.setattr(stats, "collect", lambda: {"n": next(numbers)})

    assert [stats.snapshot() for _ in range(5)] == [{"n": 1}] * 5


def test_the_addresses_are_open_and_hold_no_name(store: "redis.Redis", client: Client) -> None:
    commands.publish_build(demo_build())
    bob = registered("Bob's phone")
    verified(claimed(bob))
    publish(store, backbone())

    body = client.get("/api/stats")
    text = client.get("/metrics")

    assert json.loads(body.content)["engine"]["model"] == "demo"
    for response in (body, text):
        assert response.status_code == 200
        assert "no-store" in response["Cache-Control"]
        assert b"Bob" not in response.content
        assert bob.token.encode() not in response.content
        assert client.post(response.request["PATH_INFO"]).status_code == 405


def test_metrics_are_valid_prometheus_text_with_stable_names(store: "redis.Redis", client: Client) -> None:
    publish(store, backbone())

    text = client.get("/metrics")

    assert text["Content-Type"].startswith("text/plain; version=0.0.4")
    samples: dict[tuple[str, ...], Any] = {}
    for family in text_string_to_metric_families(text.content.decode()):
        assert family.documentation
        for sample in family.samples:
            samples[sample.name, *sample.labels.values()] = sample.value
    assert samples["expertswarm_backbones",] == 1
    assert samples["expertswarm_expert_rows_total", "remote"] == 600
    assert samples["expertswarm_dispatch_moments_total", "retried_rows"] == 8
    assert samples["expertswarm_audits_total", "passed"] == 10
    assert samples["expertswarm_sequences", "b1", "active"] == 3
    assert samples["expertswarm_generated_tokens_total", "b1"] == 500
    assert samples["expertswarm_worker_answer_seconds", "b1", "node-1"] == 0.02
    assert samples["expertswarm_store_reachable", "redis"] == 1
    assert samples["expertswarm_hot_pinned_bytes", "b1"] == 100
