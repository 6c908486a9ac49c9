"""market/admin.py: everything can be read, nothing can be changed."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from market import commands
from market.models import Event
from tests.builders import FINGERPRINT, MORNING, claimed, demo_build, later, registered

pytestmark = pytest.mark.django_db
PAGES = [
    "event", "node", "nodeprofile", "claim", "posting", "balance", "build", "layer", "creditedrows", "currentpolicy",
]  # fmt: skip


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("operator"))
    commands.publish_build(demo_build())
    bob = registered()
    claimed(bob)
    commands.credit_work("k", FINGERPRINT, bob.node_id, MORNING, later(60), [(1, 0, 1000)])
    return client


@pytest.mark.parametrize("page", PAGES)
def test_every_table_can_be_read_and_searched(operator: Client, page: str) -> None:
    assert operator.get(f"/admin/market/{page}/").status_code == 200
    assert operator.get(f"/admin/market/{page}/?q=treasury").status_code == 200
    assert operator.get(f"/admin/market/{page}/add/").status_code == 403


def test_an_event_can_be_read_and_not_changed(operator: Client) -> None:
    path = f"/admin/market/event/{Event.objects.latest('position').pk}/"

    assert operator.get(f"{path}change/").status_code == 200
    assert operator.post(f"{path}change/", {"name": "forged"}).status_code == 403
    assert operator.post(f"{path}delete/", {"post": "yes"}).status_code == 403
    assert Event.objects.latest("position").name == "work-credited"
