"""inference/process_metrics.py and docs/metrics.md: stable names, documented with type and labels."""

import re
from collections import Counter
from typing import Any

import pytest
from django.test import Client
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from inference import metrics, stats
from inference.process_metrics import ProcessCollector
from relay.roster import Roster
from tests.inference.statuses import backbone

pytestmark = pytest.mark.django_db


def busy_roster() -> Roster:
    roster = Roster()
    roster.counters = Counter(frames_to_workers=3, bytes_to_workers=300, replaced=1)
    return roster


def families() -> dict[str, Metric]:
    """Every metric that there can be, by the name on the page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stats, "_statuses", lambda: ([backbone()], True))
        text = metrics.render(stats.collect(), ProcessCollector(busy_roster())).decode()
    return {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(text)
    }


def test_the_relay_tells_its_sessions_traffic_and_what_it_refused() -> None:
    found = families()

    def values(name: str) -> dict[Any, float]:
        return {tuple(sample.labels.values()): sample.value for sample in found[name].samples}

    assert values("expertswarm_relay_sessions") == {("worker",): 0, ("backbone",): 0}
    assert values("expertswarm_relay_frames_total")["workers",] == 3
    assert values("expertswarm_relay_bytes_total")["workers",] == 300
    assert values("expertswarm_relay_events_total") == {("replaced",): 1}
    assert values("expertswarm_canary_age_seconds")["backbone",] > 0


def test_the_page_of_a_process_is_valid_text(client: Client) -> None:
    response = client.get("/metrics")

    names = {family.name for family in text_string_to_metric_families(response.content.decode())}
    assert {"expertswarm_server_info", "expertswarm_relay_sessions", "expertswarm_backbones"} <= names


def test_the_documentation_is_the_list_of_all_metrics_with_their_types_and_labels(settings: Settings) -> None:
    page = (settings.BASE_DIR / "docs" / "metrics.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if "| `exp" in line]
    documented = {row[0].strip("`"): row[1] for row in rows}
    labels = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[2])) for row in rows}

    found = families()

    assert sorted(documented) == sorted(found)
    for name, family in found.items():
        assert documented[name] == family.type, name
        used = {label for sample in family.samples for label in sample.labels}
        assert used == labels[name], name
