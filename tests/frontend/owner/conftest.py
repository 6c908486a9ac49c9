"""Somebody with an account, signed in, and a device that has earned."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from frontend.owner import accounts
from market import commands
from tests.builders import Device, claimed, demo_build, registered, worked

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def _quick_and_without_backbone(settings: Settings) -> None:
    """The real hash of a password takes a third of a second on purpose."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.REDIS_URL = ""


@pytest.fixture
def bob(client: Client) -> User:
    """Bob's login; `client` is signed in as Bob."""
    user = accounts.open_account("bob", PASSWORD)
    client.force_login(user)
    return user


@pytest.fixture
def phone(bob: User) -> Device:
    """Bob's phone, which has earned for a thousand rows."""
    commands.publish_build(demo_build())
    device = registered("Bob's phone")
    commands.link_node(device.node_id, accounts.account_of(bob), by="owner", reason="tested")
    worked(device, claimed(device))
    return device
