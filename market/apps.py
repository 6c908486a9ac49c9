"""The Django app `market`."""

from django.apps import AppConfig


class MarketConfig(AppConfig):
    name = "market"
