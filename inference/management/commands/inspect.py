"""`manage.py inspect MODEL [--json]`: what a GGUF or a split set holds."""

import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from inference.errors import InferenceError
from inference.gguf_index import open_index
from inference.model_report import as_object, as_table, stages_object


class Command(BaseCommand):
    help = "Show a model's layers, expert types and sizes, its share of weights in routed experts, its fingerprint."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "model",
            nargs="?",
            type=Path,
            default=settings.MODEL_PATH,
            metavar="MODEL",
            help="A GGUF, or any part of a split set; default: the setting MODEL_PATH.",
        )
        parser.add_argument("--json", action="store_true", help="One JSON object instead of the table.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            index = open_index(options["model"])
        except InferenceError as error:
            raise CommandError(f"{error.code}: {error}", returncode=2) from error
        if options["json"]:
            self.stdout.write(json.dumps(as_object(index) | {"stages": stages_object(index)}, indent=2))
        else:
            self.stdout.write("\n".join(as_table(index)))
