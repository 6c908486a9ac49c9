"""`manage.py slice MODEL --layer L --experts A:B -o F.gguf`: cut a run of experts out as a GGUF of its own."""

import argparse
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from tqdm import tqdm

from inference.errors import InferenceError
from inference.gguf_index import open_index
from inference.slices import plan_slice, write_slice


def expert_range(text: str) -> tuple[int, int]:
    """`A:B` as two numbers; whether the model has them is for `plan_slice` to say."""
    try:
        first, last = (int(part) for part in text.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not A:B, such as 0:8 for the first eight experts") from None
    return first, last


class Command(BaseCommand):
    help = "Write experts A to B (B not included) of one layer as a mini-GGUF, by byte ranges of the model."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", type=Path, metavar="MODEL", help="A GGUF, or any part of a split set.")
        parser.add_argument("--layer", type=int, required=True, metavar="L")
        parser.add_argument("--experts", type=expert_range, required=True, metavar="A:B")
        parser.add_argument("-o", "--output", type=Path, required=True, metavar="F.gguf")

    def handle(self, *args: Any, **options: Any) -> None:
        output: Path = options["output"]
        try:
            plan = plan_slice(open_index(options["model"]), options["layer"], *options["experts"])
            # The delay keeps the bar away from small slices and from errors at the start.
            with tqdm(total=plan.size, unit="B", unit_scale=True, desc=output.name, file=sys.stderr, delay=0.5) as bar:
                digest = write_slice(plan, output, bar.update)
        except InferenceError as error:
            raise CommandError(f"{error.code}: {error}", returncode=2) from error
        self.stdout.write(f"{output}: {plan.size:,} bytes, build {plan.build}, sha256 {digest}")
