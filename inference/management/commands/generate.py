"""`manage.py generate "prompt"`: asks the server on this machine to continue a text, and prints it as it comes.

Without a server it says how to start one. Ctrl-C hangs up, which cancels the generation.
"""

import json
import math
import os
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError

from config.supervisor import run_file
from config.supervisor.run_file import ServerNotRunning
from inference.api_client import ApiClient, ApiRefused, ApiUnreachable, Progress
from inference.sampling import SamplingParameters

INTERRUPTED_STATUS = 130


def finite(text: str) -> float:
    """An option's number; raises ArgumentTypeError for what JSON cannot carry."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ArgumentTypeError(f"{text!r} is not a number")
    return number


class Command(BaseCommand):
    help = "Continue a text on the server that `manage.py up` runs on this machine."
    # Only the server needs the settings to be right.
    requires_system_checks = []  # noqa: RUF012  (Django's own way to write it)

    def add_arguments(self, parser: ArgumentParser) -> None:
        default = SamplingParameters()
        parser.add_argument("prompt", help="the text to continue; - reads it from standard input")
        parser.add_argument("--max-tokens", type=int, default=128, metavar="N", help="default: %(default)s")
        parser.add_argument(
            "--temperature",
            type=finite,
            default=default.temperature,
            metavar="T",
            help="0: greedy; default: %(default)s",
        )
        parser.add_argument("--top-p", type=finite, default=default.top_p, metavar="P", help="default: %(default)s")
        parser.add_argument("--top-k", type=int, default=default.top_k, metavar="K", help="default: %(default)s")
        parser.add_argument("--seed", type=int, metavar="N", help="repeat a generation; default: a new one each time")
        parser.add_argument("--stop", action="append", metavar="TEXT", help="end before this text; may be repeated")
        parser.add_argument("--latency", choices=["normal", "low"], help="low: on a ring of stages, if there is one")
        parser.add_argument("--json", action="store_true", help="print one JSON object at the end instead of the text")

    def handle(self, *args: Any, **options: Any) -> None:
        prompt = sys.stdin.read() if options["prompt"] == "-" else options["prompt"]
        try:
            run = run_file.read(settings.VAR_DIR)
            with ApiClient(run.url, run.api_key) as client:
                self._generate(client, prompt, options)
        except ServerNotRunning as error:
            raise CommandError(str(error)) from error
        except ApiUnreachable as error:
            raise CommandError(f"{error}. {run_file.HOW_TO_START}") from error
        except ApiRefused as error:
            raise CommandError(str(error)) from error
        except BrokenPipeError:
            # Whoever read us has enough; Python flushes at exit and must not complain (its documentation on SIGPIPE).
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            self.stderr.write("\ncancelled")
            sys.exit(INTERRUPTED_STATUS)

    def _generate(self, client: ApiClient, prompt: str, options: dict[str, Any]) -> None:
        names = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "latency")
        body = {"model": client.model(), "prompt": prompt, **{name: options[name] for name in names}}
        started = time.monotonic()
        if options["json"]:
            progress = client.stream(body, lambda _: None)
            self.stdout.write(json.dumps(summary(body["model"], prompt, progress, time.monotonic() - started)))
            return
        pending = [prompt]  # shown with the first piece: a refusal has nothing to show

        def show(text: str) -> None:
            self._print("".join(pending) + text)
            pending.clear()

        client.stream(body, show)
        self._print("".join(pending) + "\n")

    def _print(self, text: str) -> None:
        self.stdout.write(text, ending="")
        self.stdout.flush()


def summary(model: str, prompt: str, progress: Progress, seconds: float) -> dict[str, Any]:
    """What --json prints."""
    tokens = (progress.usage or {}).get("completion_tokens")
    return {
        "generation": progress.last_id.rpartition(":")[0],
        "model": model,
        "prompt": prompt,
        "text": progress.text,
        "finish_reason": progress.finish,
        "usage": progress.usage,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(tokens / seconds, 1) if tokens else None,
        "resumed": progress.resumed,
    }
