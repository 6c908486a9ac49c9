"""inference/jobs.py: one backbone at a time runs a generation, whoever delivers its message how often."""

from datetime import timedelta

import pytest
from django.utils import timezone

from inference import api_keys, jobs
from inference.models import GenerationJob
from inference.sampling import SamplingParameters

pytestmark = pytest.mark.django_db

SAMPLING = SamplingParameters(temperature=0.7, stop=("\n",), max_tokens=9, logprobs=2)


def made(sampling: SamplingParameters = SAMPLING) -> GenerationJob:
    return jobs.create_job("demo", [1, 2, 3], sampling)


def test_a_job_keeps_its_parameters_and_fixes_its_seed() -> None:
    job = GenerationJob.objects.get(pk=made().pk)

    found = jobs.sampling_of(job)

    assert found.seed is not None
    assert found == SamplingParameters(temperature=0.7, stop=("\n",), max_tokens=9, logprobs=2, seed=found.seed)
    assert (job.state, job.prompt_tokens, job.prompt_count) == ("queued", [1, 2, 3], 3)


def test_a_job_is_taken_once_while_its_backbone_lives() -> None:
    job = made()

    first = jobs.take_job(job.pk, boot="b1", alive={"b1"})
    again = jobs.take_job(job.pk, boot="b1", alive={"b1"})
    other = jobs.take_job(job.pk, boot="b2", alive={"b1", "b2"})

    assert first is not None
    assert first.attempt == 1
    assert (again, other) == (None, None)


def test_another_backbone_takes_over_from_a_dead_one_and_the_dead_one_ends_nothing() -> None:
    first = jobs.take_job(made().pk, boot="b1", alive=())
    assert first is not None

    second = jobs.take_job(first.pk, boot="b2", alive={"b2"})

    assert second is not None
    assert second.attempt == 2
    assert not jobs.finish_job(first, finish="stop", generated=5)
    assert jobs.finish_job(second, finish="length", generated=7)
    assert not jobs.finish_job(second, finish="length", generated=7)
    stored = GenerationJob.objects.get(pk=first.pk)
    assert (stored.finish, stored.generated_count, stored.state) == ("length", 7, "done")


def test_of_two_backbones_that_take_at_once_one_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    job = made()
    real = GenerationJob.objects.filter

    def faster(*arguments: object, **fields: object) -> object:
        if "attempt" in fields:  # the other one updates between our look and our update
            monkeypatch.setattr(GenerationJob.objects, "filter", real)
            assert jobs.take_job(job.pk, boot="b2", alive=()) is not None
        return real(*arguments, **fields)

    monkeypatch.setattr(GenerationJob.objects, "filter", faster)

    assert jobs.take_job(job.pk, boot="b1", alive=()) is None
    assert GenerationJob.objects.get(pk=job.pk).backbone_boot == "b2"


def test_a_finished_job_is_taken_by_nobody_and_forgets_what_was_written() -> None:
    job = jobs.take_job(made().pk, boot="b1", alive=())
    assert job is not None
    jobs.finish_job(job, finish="stop", generated=1)

    assert jobs.take_job(job.pk, boot="b2", alive=()) is None
    stored = GenerationJob.objects.get(pk=job.pk)
    assert (stored.prompt_tokens, stored.sampling, stored.prompt_count) == ([], {}, 3)


def test_an_error_ends_a_job_as_failed_with_a_bounded_reason() -> None:
    job = jobs.take_job(made().pk, boot="b1", alive=())
    assert job is not None

    jobs.finish_job(job, finish="error", generated=0, error="x" * 5000)

    stored = GenerationJob.objects.get(pk=job.pk)
    assert (stored.state, len(stored.error)) == ("failed", 1000)


def test_a_released_job_may_be_taken_again() -> None:
    job = jobs.take_job(made().pk, boot="b1", alive=())
    assert job is not None

    jobs.release_job(job)

    again = jobs.take_job(job.pk, boot="b1", alive={"b1"})
    assert again is not None
    assert again.attempt == 2


def test_orphans_are_those_of_dead_backbones_and_others_wait_for_long() -> None:
    now = timezone.now()
    dead, living, lost, _fresh = (made() for _ in range(4))
    jobs.take_job(dead.pk, boot="dead", alive=())
    jobs.take_job(living.pk, boot="living", alive=())
    GenerationJob.objects.filter(pk=lost.pk).update(created_at=now - timedelta(minutes=5))

    orphans = jobs.orphaned_jobs(alive={"living"})
    waiting = jobs.waiting_jobs(queued_before=now - timedelta(minutes=1))

    assert orphans == [dead.pk]
    assert waiting == [(lost.pk, 0)]


def test_open_answers_are_counted_for_all_and_for_one_key() -> None:
    alice, _ = api_keys.create_key("Alice")
    jobs.create_job("demo", [1], SAMPLING, api_key_id=alice.key_id)
    done = jobs.take_job(made().pk, boot="b1", alive=())
    assert done is not None
    running = jobs.take_job(made().pk, boot="b1", alive=())
    jobs.finish_job(done, finish="stop", generated=1)

    assert running is not None
    assert jobs.waiting_count() == 2
    assert jobs.waiting_count(alice.key_id) == 1
    assert jobs.open_counts() == {"queued": 1, "running": 1}


def test_generations_that_ended_long_ago_are_deleted_and_open_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "PRUNED_AT_ONCE", 2)
    now = timezone.now()
    old, lately, still_open = [made() for _ in range(5)], made(), made()
    for job in (*old, lately):
        taken = jobs.take_job(job.pk, boot="b1", alive=())
        assert taken is not None
        assert jobs.finish_job(taken, finish="stop", generated=1)
    GenerationJob.objects.update(created_at=now - timedelta(days=30))
    GenerationJob.objects.filter(pk__in=[job.pk for job in old]).update(finished_at=now - timedelta(days=29))

    deleted = jobs.prune_jobs(ended_before=now - timedelta(days=7))

    assert deleted == 5
    assert set(GenerationJob.objects.values_list("pk", flat=True)) == {lately.pk, still_open.pk}


def test_a_job_keeps_its_priority() -> None:
    job = jobs.create_job("demo", [1], SAMPLING, priority=-3)

    assert GenerationJob.objects.get(pk=job.pk).priority == -3


def test_a_job_trusts_few_workers_when_its_key_does() -> None:
    careful, _ = api_keys.create_key("Alice", trusted_only=True)
    ordinary, _ = api_keys.create_key("Bob")

    found = [
        jobs.is_trusted_only(GenerationJob.objects.get(pk=jobs.create_job("demo", [1], SAMPLING, api_key_id=key).pk))
        for key in (careful.key_id, ordinary.key_id, None)
    ]

    assert found == [True, False, False]
