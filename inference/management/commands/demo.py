"""`manage.py demo m0|m1|m2|m3|m4`: runs a milestone on the demo model and prints its figures."""

from importlib import import_module
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from inference.errors import InferenceError

MILESTONES = {
    "m0": "the backbone runs the model alone, all experts local",
    "m1": "expert slices in separate worker processes on this host, logits identical",
    "m2": "workers behind a NAT through the relay on port 443, on slow lines that stall and break (root)",
    "m3": "the market: strangers fill what is missing, devices die, others take their place",
    "m4": "the throughput fabric: round trips disappear, tokens per second grow with workers",
}


class Command(BaseCommand):
    help = "Runs a milestone for real and prints its figures: " + "; ".join(
        f"{name}: {what}" for name, what in MILESTONES.items()
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("milestone", choices=sorted(MILESTONES))
        parser.add_argument("--model", type=type(settings.MODEL_PATH), default=settings.MODEL_PATH, help="a MoE GGUF")

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["milestone"]
        self.stdout.write(self.style.MIGRATE_HEADING(f"{name.upper()}: {MILESTONES[name]}"))
        try:
            figures = import_module(f"inference.demos.{name}").run(options["model"], self._say)
        except InferenceError as error:
            raise CommandError(f"{error.code}: {error}") from error
        for line in figures.lines:
            self.stdout.write(f"  {line}")
        if figures.max_abs_diff != 0.0:
            raise CommandError("the logits differ from plain llama.cpp's")

    def _say(self, text: str) -> None:
        self.stdout.write(f"  {text}")
        self.stdout.flush()
