"""config/celery.py and config/tasks.py: queues, timetable, canary, and the refusal to work without Redis."""

import time

import pytest
from celery import Celery
from django.core.cache import cache
from pytest_django import Settings

from config import log_context, tasks
from config.celery import QUEUES, app, refuse_without_redis, timetable


def test_every_queue_gets_a_canary() -> None:
    entries = [entry for name, entry in timetable().items() if name.startswith("canary")]

    assert [(entry["args"], entry["options"]["queue"]) for entry in entries] == [((queue,), queue) for queue in QUEUES]


def test_what_beat_sends_is_a_known_task_and_expires_before_the_third_one() -> None:
    app.loader.import_default_modules()

    for entry in timetable().values():
        assert entry["task"] in app.tasks
        assert entry["options"]["queue"] in QUEUES
        assert entry["options"]["expires"] < 3 * entry["schedule"]


def test_generations_go_to_the_backbone_and_everything_else_to_upkeep() -> None:
    router = app.amqp.router

    assert router.route({}, "inference.generate")["queue"].name == "backbone"
    assert router.route({}, "market.upkeep")["queue"].name == "upkeep"
    assert router.route({}, "config.canary")["queue"].name == "upkeep"


def test_a_message_reaches_one_queue_alone() -> None:
    bindings = [(queue.exchange.name, queue.routing_key) for queue in app.amqp.queues.values()]

    assert bindings == [(name, name) for name in QUEUES]


def test_a_misspelt_queue_is_an_error_and_not_a_new_queue() -> None:
    assert app.conf.task_create_missing_queues is False
    assert set(app.amqp.queues) == set(QUEUES)


def test_every_transport_knows_the_same_visibility_timeout(settings: Settings) -> None:
    seconds = settings.CELERY_VISIBILITY_TIMEOUT_SECONDS

    assert app.conf.broker_transport_options["visibility_timeout"] == seconds
    assert app.conf.result_backend_transport_options["visibility_timeout"] == seconds


def test_a_worker_without_redis_says_so_and_ends(settings: Settings) -> None:
    settings.REDIS_URL = ""

    with pytest.raises(SystemExit, match="REDIS_URL"):
        refuse_without_redis()


def test_the_canary_tells_when_its_queue_was_last_served() -> None:
    cache.delete(tasks.CANARY_KEY.format(queue="upkeep"))
    assert tasks.canary_age_seconds("upkeep", time.time()) is None

    tasks.canary("upkeep")

    age = tasks.canary_age_seconds("upkeep", time.time() + 5)
    assert age is not None
    assert 5 <= age < 6


def test_log_lines_of_a_task_carry_its_ids_and_those_after_it_do_not() -> None:
    seen: list[dict[str, str]] = []

    @Celery("elsewhere", set_as_current=False).task(name="inference.generate")
    def generate(generation_id: str) -> None:
        seen.append(dict(log_context.current()))

    generate.apply(("0123",))

    assert (seen[0]["task"], seen[0]["generation_id"]) == ("inference.generate", "0123")
    assert "task_id" in seen[0]
    assert log_context.current() == {}
