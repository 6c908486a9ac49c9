"""inference/tasks.py: a generation that was taken ends, whatever Redis and the database do meanwhile."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from django.db import OperationalError
from django.utils import timezone
from pytest_django import Settings

from inference import backbone_status, jobs, tasks, token_stream
from inference.host_settings import HostSettings, MarketPort
from inference.models import GenerationJob
from inference.node_host import NodeHost
from inference.sampling import SamplingParameters
from tests.inference.models import DEMO_MODEL, tokens_of

pytestmark = pytest.mark.django_db

NOBODY = "ws://127.0.0.1:1/relay/"
TOKENS = 8


class Database:
    """Away for the first `outages` attempts."""

    def __init__(self, outages: int) -> None:
        self.outages = outages
        self.written = 0

    def write(self) -> None:
        if self.outages:
            self.outages -= 1
            raise OperationalError("the connection is closed")
        self.written += 1


class InterruptedRedis(redis.Redis):
    """The real Redis, but for the first `outages` times that it gets a certain command."""

    interrupted, outages = "", 0

    def execute_command(self, *arguments: Any, **options: Any) -> Any:
        if arguments[0] == self.interrupted and self.outages:
            self.outages -= 1
            raise redis.ConnectionError("Connection closed by server.")
        return super().execute_command(*arguments, **options)  # type: ignore[no-untyped-call]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr("inference.tasks.connection.close", lambda: None)


def nothing(*_: object) -> None:
    """What this backbone reports interests nobody."""


@pytest.fixture
def host(redis_database: str, tmp_path: Path) -> Iterator[NodeHost]:
    """A backbone without workers, which reads this test's Redis through a connection that can be interrupted."""
    settings = HostSettings(
        model_path=DEMO_MODEL, var_dir=tmp_path, redis_url=redis_database, relay_urls=(NOBODY,), backbone_token="b",
        lanes=1, sequences=2, context_tokens=128, threads=1,
    )  # fmt: skip
    market = MarketPort(nothing, nothing, nothing, nothing, nothing, nothing, nothing, lambda who: 0, nothing, nothing)
    host = NodeHost(settings, market)
    host.redis = InterruptedRedis.from_url(redis_database)
    host.start()
    yield host
    host.stop(0.0)


def asked() -> GenerationJob:
    sampling = SamplingParameters(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
    return jobs.create_job("demo", list(tokens_of("In the beginning")), sampling)


def interrupt(host: NodeHost, command: str, outages: int) -> None:
    assert isinstance(host.redis, InterruptedRedis)
    host.redis.interrupted, host.redis.outages = command, outages


def test_the_end_of_a_generation_is_written_when_the_database_is_back() -> None:
    database = Database(outages=3)

    tasks.patiently(database.write)

    assert (database.outages, database.written) == (0, 1)


def test_a_database_that_stays_away_is_an_error_in_the_end() -> None:
    database = Database(outages=10**9)

    with pytest.raises(OperationalError):
        tasks.patiently(database.write, patience_seconds=0.05)

    assert database.written == 0


# Who is alive; what earlier attempts wrote, when the job counts as running already; whether its reader has left.
@pytest.mark.parametrize("command", ["ZRANGE", "XRANGE", "EXISTS"])
def test_a_generation_goes_on_when_redis_comes_back(host: NodeHost, command: str) -> None:
    job = asked()
    interrupt(host, command, outages=3)

    tasks.generate(str(job.pk))

    job.refresh_from_db()
    assert (job.state, job.finish, job.generated_count, job.attempt) == ("done", "length", TOKENS, 1)


def test_a_generation_that_cannot_be_run_ends_and_its_reader_hears_of_it(host: NodeHost) -> None:
    job = asked()
    GenerationJob.objects.filter(pk=job.pk).update(sampling={"of another version": 1})

    tasks.generate(str(job.pk))

    job.refresh_from_db()
    (told,) = token_stream.stored(host.redis, str(job.pk))
    assert (job.state, job.finish, job.error) == ("failed", "error", "internal error: TypeError")
    assert (told.finish, told.error) == ("error", "internal error: TypeError")


def test_a_generation_that_was_claimed_without_hearing_of_it_is_claimed_again(host: NodeHost) -> None:
    job = asked()
    assert jobs.take_job(job.pk, boot=host.boot, alive=())  # the database did it, its answer was lost
    backbone_status.publish(host.redis, host.boot, host.status())

    tasks.generate(str(job.pk))

    job.refresh_from_db()
    assert (job.finish, job.attempt) == ("length", 2)


def test_a_message_that_comes_twice_runs_one_generation(host: NodeHost) -> None:
    job = asked()

    with tasks.HELD.one(str(job.pk)):
        tasks.generate(str(job.pk))
        job.refresh_from_db()
        meanwhile = job.state
    tasks.generate(str(job.pk))
    tasks.generate(str(job.pk))

    job.refresh_from_db()
    assert (meanwhile, job.state, job.attempt) == ("queued", "done", 1)


def test_a_generation_that_waits_for_long_is_asked_for_once_a_minute_and_at_once_when_messages_were_lost(
    redis_database: str, settings: Settings
) -> None:
    settings.REDIS_URL = redis_database
    job = asked()
    GenerationJob.objects.filter(pk=job.pk).update(created_at=timezone.now() - timedelta(minutes=2))

    by_the_clock = [tasks.rescue() for _ in range(3)]
    by_a_backbone = [tasks.rescue(patience_seconds=0.0) for _ in range(2)]

    assert by_the_clock == [1, 0, 0]
    assert by_a_backbone == [1, 1]


def test_a_generation_whose_backbone_is_gone_is_queued_until_another_one_takes_it(
    redis_database: str, settings: Settings
) -> None:
    settings.REDIS_URL = redis_database
    assert jobs.take_job(asked().pk, boot="gone", alive=())

    assert [tasks.rescue() for _ in range(2)] == [1, 1]
