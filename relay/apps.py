"""The Django app `relay`."""

from django.apps import AppConfig


class RelayConfig(AppConfig):
    name = "relay"
