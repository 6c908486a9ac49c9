"""The Django app of the project itself: system checks, the Celery application, process supervision."""

from importlib import import_module

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    name = "config"

    def ready(self) -> None:
        # Importing registers: the checks with Django, and the application as the one that `shared_task` binds to.
        import_module("config.checks")
        import_module("config.celery")
