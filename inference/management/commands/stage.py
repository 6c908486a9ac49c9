"""`manage.py stage STAGE.gguf --listen HOST:PORT`: a stage of this operator, its experts computed by the swarm.

As `python -m inference.stage`, which needs no settings and computes the experts itself.
"""

from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis
from django.core.management.base import BaseCommand, CommandError

from inference.errors import InferenceError
from inference.reports import host_settings, market_port, stage_secret
from inference.ring.service import DEFAULT_RINGS
from inference.stage.options import listen_address
from inference.stage_host import StageHost


class Command(BaseCommand):
    help = (
        "Serve a stage file to rings over direct TCP and ask workers for the experts of its layers, as a backbone with "
        "the same settings does (MODEL_PATH: the whole model; REDIS_URL, DATABASE_URL, STAGE_SECRET)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("stage", type=Path, help="made with `manage.py slice MODEL --layers A:B`")
        parser.add_argument("--listen", type=listen_address, required=True, metavar="HOST:PORT")
        parser.add_argument("--rings", type=int, default=DEFAULT_RINGS, help="most contexts (default: %(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["rings"] < 1:
            raise CommandError("--rings must be at least 1")
        try:
            settings = replace(host_settings(), stage_secret=stage_secret())
            StageHost(settings, market_port(), options["stage"], rings=options["rings"]).run(options["listen"])
        except (InferenceError, OSError, redis.RedisError) as error:
            raise CommandError(str(error)) from error
