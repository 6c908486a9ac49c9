"""Two bookkeepers and two accounts that have something available."""

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from pytest_django import Settings

from market import commands
from tests.builders import MORNING, Device, demo_build, later, payable_device

EARNED = 3932


def staff(name: str, *permissions: str) -> Client:
    """A browser in which this member of staff is logged in."""
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def alice() -> Client:
    return staff("alice", "draft_payouts", "approve_payouts")


@pytest.fixture
def bob() -> Client:
    return staff("bob", "draft_payouts", "approve_payouts")


@pytest.fixture
def devices(settings: Settings) -> list[Device]:
    """Carol's and Dan's devices, EARNED available each."""
    settings.HOLD_SECONDS = 0.0
    settings.REDIS_URL = ""
    commands.publish_build(demo_build(), now=MORNING)
    found = [payable_device(name, layer=number) for number, name in enumerate(["Carol", "Dan"])]
    commands.release_earnings(later(600))
    return found
