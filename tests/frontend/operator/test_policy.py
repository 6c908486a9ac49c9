"""frontend/operator/policy.py: the effects of another policy, and the change with a reason."""

import pytest
from django.test import Client

from frontend.operator import policy as page_module
from market import commands, queries, snapshots
from market.models import Event
from market.policy import Policy
from tests.builders import FINGERPRINT, MORNING, claimed, demo_build, registered, verified
from tests.frontend.pages import Page

pytestmark = pytest.mark.django_db
OTHER = {
    "budget": "500.5",
    "ceiling": "2",
    "target_replicas": "3",
    "maximum_replicas": "6",
    "target_bytes_percent": "50",
    "standby_percent": "0",
}


def test_the_form_begins_with_the_policy_in_force(operator: Client) -> None:
    page = Page(operator.get("/operator/policy").content.decode())

    assert page.attribute("id_budget", "value") == "1000"
    assert page.attribute("id_target_replicas", "value") == "1"


def test_looking_at_effects_changes_nothing(operator: Client) -> None:
    commands.publish_build(demo_build(), now=MORNING)
    before = queries.policy()

    page = Page(operator.get("/operator/policy", OTHER).content.decode())

    assert "What would change now" in page.text
    assert queries.policy() == before
    assert Event.objects.filter(name="policy-changed").count() == 0


def test_the_effects_are_those_that_the_market_would_compute() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    verified(claimed(registered(), 0, 0, 8))
    then = Policy(budget_microcredits_per_hour=2_000_000_000, target_replicas=2)

    (effects,) = page_module.effects(queries.policy(), then)
    found = {str(effect.label): effect for effect in effects.effects}
    commands.change_policy(then, by="olga", reason="compared")
    market = snapshots.build_market(FINGERPRINT, None)

    assert found["Replicas wanted"].then == int(market.targets.sum()) == 512
    assert found["Replicas missing"].then == 512 - 8
    assert found["Next replica, dearest expert (credits/hour)"].then == market.prices().max() / 1e6
    assert found["Replicas wanted"].now == 256


def test_a_change_is_an_event_with_who_and_why(operator: Client) -> None:
    answer = operator.post("/operator/policy", {**OTHER, "reason": "cheaper"})

    body = Event.objects.get(name="policy-changed").body
    assert answer.status_code == 302
    assert (body["by"], body["reason"]) == ("olga", "cheaper")
    assert queries.policy() == Policy(500_500_000, 2_000_000, 3, 6, 50, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"reason": ""},
        {"target_replicas": "7"},
        {"budget": "-1"},
        {"budget": "NaN"},
        {"ceiling": "0"},
        {"standby_percent": "101"},
        {"maximum_replicas": ""},
    ],
)
def test_what_makes_no_sense_is_refused_in_words(operator: Client, wrong: dict[str, str]) -> None:
    answer = operator.post("/operator/policy", {**OTHER, "reason": "because", **wrong})

    assert answer.status_code == 400
    assert 'role="alert"' in answer.content.decode()
    assert Event.objects.filter(name="policy-changed").count() == 0


def test_a_looker_sees_effects_and_cannot_change(looker: Client) -> None:
    commands.publish_build(demo_build(), now=MORNING)

    shown = looker.get("/operator/policy", OTHER).content.decode()

    assert "What would change now" in shown
    assert "Let this policy hold" not in shown
    assert looker.post("/operator/policy", {**OTHER, "reason": "mine"}).status_code == 403
