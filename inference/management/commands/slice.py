"""`manage.py slice MODEL -o F.gguf`: cut experts (`--layer L --experts A:B`) or a stage (`--layers A:B`) out."""

import argparse
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from tqdm import tqdm

from inference.errors import InferenceError
from inference.gguf_index import open_index
from inference.slices import SlicePlan, plan_slice, write_slice
from inference.stage_file import open_stages


def number_range(text: str) -> tuple[int, int]:
    """`A:B` as two numbers; whether the model has them is for the plan to say."""
    try:
        first, last = (int(part) for part in text.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not A:B, such as 0:8 for the first eight") from None
    return first, last


class Command(BaseCommand):
    help = (
        "Write experts A to B (B not included) of one layer as a mini-GGUF, or layers A to B as a stage that llama.cpp "
        "loads, by byte ranges of the model."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", type=Path, metavar="MODEL", help="A GGUF, or any part of a split set.")
        parser.add_argument("--layer", type=int, metavar="L", help="With --experts: the layer.")
        parser.add_argument("--experts", type=number_range, metavar="A:B", help="A slice of the experts of one layer.")
        parser.add_argument("--layers", type=number_range, metavar="A:B", help="A stage: these layers whole.")
        parser.add_argument(
            "--without-experts", action="store_true", help="With --layers: holes in the place of routed experts."
        )
        parser.add_argument("-o", "--output", type=Path, required=True, metavar="F.gguf")

    def handle(self, *args: Any, **options: Any) -> None:
        output: Path = options["output"]
        try:
            plan = _plan(options)
            # The delay keeps the bar away from small slices and from errors at the start.
            with tqdm(total=plan.size, unit="B", unit_scale=True, desc=output.name, file=sys.stderr, delay=0.5) as bar:
                digest = write_slice(plan, output, bar.update)
        except InferenceError as error:
            raise CommandError(f"{error.code}: {error}", returncode=2) from error
        self.stdout.write(f"{output}: {plan.size:,} bytes, build {plan.build}, sha256 {digest}")
        if plan.without_experts:
            held = 512 * output.stat().st_blocks
            self.stdout.write(f"without experts: {held:,} bytes on disk, its experts must come from the swarm")


def _plan(options: dict[str, Any]) -> SlicePlan:
    """Raises CommandError for options that do not belong together, and what the plans raise."""
    layer, experts, layers = options["layer"], options["experts"], options["layers"]
    if (layers is None) == (layer is None or experts is None) or (
        layers is not None and (layer, experts) != (None,) * 2
    ):
        raise CommandError("usage: give --layer L --experts A:B for a slice, or --layers A:B for a stage", returncode=2)
    index = open_index(options["model"])
    if layers is None:
        return plan_slice(index, layer, *experts)
    source = open_stages(index)
    return source.plan(*source.cuts.units_of(*layers), without_experts=options["without_experts"])
