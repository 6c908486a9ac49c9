"""`manage.py size MODEL --workers N ...`: what a swarm can give, from a model file and a few numbers."""

import argparse
import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from inference.errors import InferenceError
from inference.gguf_index import open_index
from inference.sizing import VALUE_BYTES, Swarm, as_table, shape_of, size
from inference.worker.options import parse_size


class Command(BaseCommand):
    help = "Tokens per second of a swarm: every bound with its formula, and which one holds."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("model", nargs="?", type=Path, default=settings.MODEL_PATH, metavar="MODEL",
            help="a GGUF, or any part of a split set (default: the setting MODEL_PATH)")  # fmt: skip
        add("--workers", type=whole, required=True, metavar="N", help="devices that lend")
        add("--rows-per-second", type=positive, required=True, metavar="R",
            help="(row, expert) pairs that one worker computes per second: its page or log shows it")  # fmt: skip
        add("--rtt-ms", type=positive, required=True, metavar="MS",
            help="backbone to worker and back, through the relay")  # fmt: skip
        add("--worker-memory", type=parse_size, metavar="SIZE",
            help="what each worker lends, such as 340MB (default: together they hold every expert once)")  # fmt: skip
        add(
            "--uplink",
            type=parse_size,
            metavar="SIZE",
            help="bytes per second that a backbone can send, for example 12MB",
        )
        add("--downlink", type=parse_size, metavar="SIZE", help="bytes per second that a backbone can receive")
        add("--sequences", type=whole, default=settings.BACKBONE_SEQUENCES, metavar="N",
            help="at once in each backbone (default: BACKBONE_SEQUENCES, %(default)s)")  # fmt: skip
        add("--lanes", type=whole, default=settings.BACKBONE_LANES, metavar="N",
            help="of each backbone (default: BACKBONE_LANES, %(default)s)")  # fmt: skip
        add("--backbones", type=whole, default=1, metavar="N", help="backbone processes (default: %(default)s)")
        add("--backbone-tokens-per-second", type=positive, metavar="T",
            help="of one backbone that computes no experts: its dense path alone")  # fmt: skip
        add("--hot-share", type=share, default=0.0, metavar="X",
            help="part of the rows that the hot set keeps at the backbone, 0 to 1 (default: %(default)s)")  # fmt: skip
        add("--results", choices=tuple(VALUE_BYTES), default=settings.DISPATCH_RESULTS,
            help="what workers send back (default: DISPATCH_RESULTS, %(default)s)")  # fmt: skip
        add("--json", action="store_true", help="one JSON object instead of the table")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            shape = shape_of(open_index(options["model"]))
        except InferenceError as error:
            raise CommandError(f"{error.code}: {error}", returncode=2) from error
        if not shape.layers:
            raise CommandError("no layer of this model has experts that a worker can compute", returncode=2)
        if options["workers"] and (options["worker_memory"] or shape.expert_bytes) < shape.expert_bytes:
            raise CommandError(f"--worker-memory is too small for one expert of {shape.expert_bytes:.0f} bytes")
        swarm = Swarm(
            workers=options["workers"],
            rows_per_second=options["rows_per_second"],
            rtt_seconds=options["rtt_ms"] / 1000,
            sequences=max(1, options["sequences"]),
            lanes=max(1, options["lanes"]),
            backbones=max(1, options["backbones"]),
            worker_bytes=options["worker_memory"],
            up_bytes=options["uplink"],
            down_bytes=options["downlink"],
            hot_share=options["hot_share"],
            results=options["results"],
            tokens_per_second=options["backbone_tokens_per_second"],
        )
        found = size(shape, swarm)
        if options["json"]:
            self.stdout.write(
                json.dumps({"model": shape.__dict__, "swarm": swarm.__dict__, **found.to_json()}, indent=2)
            )
        else:
            self.stdout.write("\n".join(as_table(shape, swarm, found)))


def whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return number


def share(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 1")
    return number
