"""`manage.py up`: the whole server on this machine, with the demo model and a few local workers, in one command."""

import argparse
import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError, call_command
from django.db import DatabaseError, connections

from config.embedded_redis import NoRedisServer
from config.supervisor.launch import Lan, Launch
from config.supervisor.plan import ExpertSizes, Options
from config.supervisor.run_file import AlreadyRunning
from config.supervisor.supervise import StartFailed
from inference.api_keys import ensure_development_key
from inference.errors import InferenceError
from inference.gguf_index import open_index
from inference.worker.options import parse_size


class Command(BaseCommand):
    help = "Start everything on this machine: web server, backbone, market timers, Redis, local expert workers."
    # `up` itself provides what some checks ask for (Redis, a secret key).
    requires_system_checks = []  # noqa: RUF012  (Django's own way to write it)

    _say_nothing = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--workers", type=int, default=3, metavar="N", help="local expert workers (default: %(default)s)")
        add("--model", type=Path, default=settings.MODEL_PATH, help="GGUF to serve (default: %(default)s)")
        add("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0: all (default: %(default)s)")
        add("--port", type=int, default=8000, help="port to listen on; 0: any free one (default: %(default)s)")
        add("--lan", action="store_true", help="let devices of the local network in: the same as --host 0.0.0.0, "
            "with addresses and a QR code for phones")  # fmt: skip
        add("--tls", action="store_true", help="with --lan: HTTPS too, by a certificate authority of its own that "
            "devices have to trust once; pages over HTTP cannot use all of a phone (docs/browser.md)")  # fmt: skip
        add("--tls-port", type=int, default=8443, help="port for HTTPS; 0: any free one (default: %(default)s)")
        add("--lan-name", action="append", default=[], metavar="NAME", help="a name or address by which devices reach "
            "this machine, beside those it finds itself; may be given several times")  # fmt: skip
        add("--budget", type=parse_size, metavar="SIZE", help="what each local worker lends, for example 42MB "
            "(default: enough that together they hold every expert once, at most 2 GiB)")  # fmt: skip
        add("--backbones", type=int, default=1, metavar="N", help="backbone processes, each with BACKBONE_SEQUENCES "
            "sequences; they share the cores and the workers (default: %(default)s)")  # fmt: skip
        add("--trace", action="store_true", help="record every decode in VAR_DIR/traces, for `manage.py verify`")
        add("--start-seconds", type=float, default=300.0, metavar="S",
            help="give up when the backbone is not ready after this time (default: %(default)s)")  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        if options["workers"] < 0:
            raise CommandError("--workers must not be negative")
        if options["backbones"] < 1:
            raise CommandError("--backbones must be at least 1")
        if not options["start_seconds"] > 0:
            raise CommandError("--start-seconds must be positive")
        if (options["tls"] or options["lan_name"]) and not options["lan"]:
            raise CommandError("--tls and --lan-name go with --lan")
        try:
            sizes = expert_sizes(options["model"])
            budget_bytes = options["budget"]
            if sizes.experts and budget_bytes is not None and budget_bytes < sizes.largest_bytes:
                raise CommandError(f"--budget is too small for one expert: the largest has {sizes.largest_bytes} bytes")
            self._launch(options, sizes).run()
        except (AlreadyRunning, StartFailed, NoRedisServer, InferenceError) as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            raise CommandError(f"the database cannot be brought up to date: {error}") from error
        except OSError as error:
            raise CommandError(f"cannot start: {error}") from error

    def _launch(self, options: dict[str, Any], sizes: ExpertSizes) -> Launch:
        return Launch(
            Options(
                var_dir=settings.VAR_DIR,
                base_dir=settings.BASE_DIR,
                model=options["model"].expanduser().resolve(),
                host="0.0.0.0" if options["lan"] else options["host"],
                port=options["port"],
                workers=options["workers"],
                sequences=settings.BACKBONE_SEQUENCES,
                redis_url=settings.REDIS_URL,
                secret_key="",
                budget_bytes=options["budget"],
                trace=options["trace"],
                backbones=options["backbones"],
            ),
            sizes,
            inherited=os.environ,
            database_url=settings.DATABASE_URL or f"sqlite:///{settings.DATABASES['default']['NAME']}",
            open_database=open_database,
            say=self._say,
            start_seconds=options["start_seconds"],
            lan=Lan(tuple(options["lan_name"]), options["tls_port"] if options["tls"] else None)
            if options["lan"]
            else None,
        )

    def _say(self, line: str) -> None:
        if self._say_nothing:
            return
        try:
            self.stdout.write(line)
            self.stdout.flush()
        except OSError:
            # The terminal is gone (SIGHUP) or the reader of the pipe: the children still have to be stopped in order.
            self._say_nothing = True


def expert_sizes(model: Path) -> ExpertSizes:
    """What the workers of a model share; raises InferenceError for a file that is no sparse model."""
    index = open_index(model.expanduser())
    layers = [index.layers[layer] for layer in index.offered_layers]
    return ExpertSizes(sum(layer.experts for layer in layers), max((layer.expert_bytes for layer in layers), default=1))


def open_database() -> str:
    """Brings the database up to date; returns the development API key, made at the first start; lets go of it again:
    the children have connections of their own."""
    call_command("migrate", interactive=False, verbosity=0)
    try:
        return ensure_development_key()
    finally:
        connections.close_all()
