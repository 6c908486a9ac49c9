"""The Django app of the project itself: system checks and process supervision."""

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    name = "config"
