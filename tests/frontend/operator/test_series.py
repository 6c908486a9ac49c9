"""frontend/operator/series.py: charts, and the same as a table."""

import json

import pytest
import redis
from django.test import Client

from frontend import samples
from tests.frontend.pages import Page

pytestmark = pytest.mark.django_db


def test_without_samples_the_page_says_so_and_draws_nothing(operator: Client) -> None:
    page = Page(operator.get("/operator/series").content.decode())

    assert "There is nothing to draw yet" in page.text
    assert page.is_hidden("charts")


def test_charts_and_table_tell_the_same(operator: Client, swarm: "redis.Redis") -> None:
    for number in range(3):
        samples.take(swarm, now=1000.0 + 5 * number)

    page = Page(operator.get("/operator/series?minutes=10").content.decode())
    data = json.loads(operator.get("/operator/series/data?minutes=10").content)

    assert not page.is_hidden("charts")
    assert data["at"] == [1000.0, 1005.0, 1010.0]
    tokens = next(chart for chart in data["charts"] if chart["key"] == "tokens")
    assert tokens["lines"] == [[12.5, 12.5, 12.5]]
    assert page.table("numbers")[0] == ["Tokens: generated", "tokens/s", "12.5", "12.5", "12.5"]
    assert len(page.table("numbers")) == sum(len(chart["lines"]) for chart in data["charts"])


def test_a_span_that_is_not_offered_is_an_hour(operator: Client, swarm: "redis.Redis") -> None:
    assert 'href="?minutes=60" aria-current="true"' in operator.get("/operator/series?minutes=7").content.decode()
