"""frontend/operator/requests.py: what runs, what ended, cancel."""

import pytest
import redis
from django.test import Client

from inference import jobs, token_stream
from inference.sampling import SamplingParameters
from tests.frontend.pages import Page

pytestmark = pytest.mark.django_db


def test_an_empty_list_says_so(operator: Client, swarm: "redis.Redis") -> None:
    page = Page(operator.get("/operator/requests").content.decode())

    assert "Nothing runs and nothing waits." in page.text
    assert "None has ended yet." in page.text


def test_running_waiting_and_ended_ones_are_listed_without_what_was_written(
    operator: Client, swarm: "redis.Redis"
) -> None:
    for prompt in ([424242], [1, 2], [1, 2, 3]):
        jobs.create_job("demo", prompt, SamplingParameters())
    done = jobs.create_job("demo", [7], SamplingParameters())
    taken = jobs.take_job(done.pk, boot="b1", alive=())
    assert taken is not None
    jobs.finish_job(taken, finish="error", generated=0, error="context_full: secret words")

    source = operator.get("/operator/requests").content.decode()

    assert source.count("Cancel</button>") == 3
    assert "context_full" in source
    assert "secret words" not in source
    assert "424242" not in source


def test_cancelling_asks_the_backbones_to_stop(operator: Client, swarm: "redis.Redis") -> None:
    job = jobs.create_job("demo", [1], SamplingParameters())

    answer = operator.post(f"/operator/requests/{job.pk}/cancel")

    assert answer.status_code == 302
    assert token_stream.is_cancelled(swarm, str(job.pk))


def test_an_unknown_request_is_404_and_a_lookers_click_refused(operator: Client, looker: Client) -> None:
    job = jobs.create_job("demo", [1], SamplingParameters())

    assert operator.post("/operator/requests/00000000-0000-4000-8000-000000000000/cancel").status_code == 404
    assert looker.post(f"/operator/requests/{job.pk}/cancel").status_code == 403


@pytest.mark.parametrize("page", ["0", "-1", "x", "9" * 30, "9" * 5000])
def test_a_page_that_is_none_is_no_error(operator: Client, page: str) -> None:
    assert operator.get(f"/operator/requests?page={page}").status_code == 200
