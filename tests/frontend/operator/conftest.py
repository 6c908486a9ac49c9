"""An operator who is logged in, and somebody who is none."""

import pytest
from django.contrib.auth.models import User
from django.test import Client


@pytest.fixture
def operator(db: None) -> Client:
    """Olga, who may do everything."""
    client = Client()
    client.force_login(User.objects.create_superuser("olga", password="a long password"))
    return client


@pytest.fixture
def looker(db: None) -> Client:
    """Leo, who may look and not act."""
    client = Client()
    client.force_login(User.objects.create_user("leo", password="a long password", is_staff=True))
    return client


@pytest.fixture
def stranger(db: None) -> Client:
    """Sam, who has an account and no business here."""
    client = Client()
    client.force_login(User.objects.create_user("sam", password="a long password"))
    return client
