"""The Django app `frontend`."""

from django.apps import AppConfig


class FrontendConfig(AppConfig):
    name = "frontend"
