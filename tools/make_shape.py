"""Writes a model file of Qwen3.5-122B-A10B's real shape, filled with random blocks: what the real one weighs, no sense.

    python -m tools.make_shape /dev/shm/122b.gguf --processes 8       76 GB; about a minute on memory-backed storage
    python -m tools.make_shape /tmp/small.gguf --layers 2             two layers of it
    python -m tools.make_shape /tmp/hole.gguf --sparse                a header and a hole, for layout, market and pages

48 trunk layers, three of Gated DeltaNet for each of full attention, one MTP block, 256 experts of 3072 x 1024, top 8,
llama.cpp's Q4_K_M mix of types, 248,320 tokens. llama.cpp loads and runs it (the sparse one: loads).
"""

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from inference.benchmarks.progress import ProgressBar
from inference.gguf_index import open_index
from inference.synthetic import SHAPE_122B, full122b

# Header, and what a layer and the rest take, rounded up: what must be free before the first byte is written.
LAYER_BYTES, OTHER_BYTES = 1_650_000_000, 1_100_000_000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the file to write; the same call again leaves it alone")
    parser.add_argument("--layers", type=int, default=SHAPE_122B.layers, help="trunk layers (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sparse", action="store_true", help="no data: a hole that reads as zeros")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="default: one per core (%(default)s)"
    )
    options = parser.parse_args()
    if not 1 <= options.layers <= SHAPE_122B.layers:
        parser.error(f"--layers is 1 to {SHAPE_122B.layers}")
    if not 1 <= options.processes <= 256:
        parser.error("--processes is 1 to 256")
    if not options.path.parent.is_dir():
        parser.error(f"there is no folder {options.path.parent}")
    needed = (options.layers + 1) * LAYER_BYTES + OTHER_BYTES
    free = shutil.disk_usage(options.path.parent).free
    if not options.sparse and not options.path.exists() and free < needed:
        parser.error(f"up to {needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free in {options.path.parent}")
    return options


def main() -> None:
    options = arguments()
    progress = ProgressBar(sys.stderr)
    began = time.monotonic()
    full122b(
        options.path,
        options.layers,
        options.seed,
        sparse=options.sparse,
        processes=options.processes,
        progress=lambda share: progress(share, "writing"),
    )
    progress.clear()
    index = open_index(options.path)
    print(
        f"{options.path}: {options.path.stat().st_size / 1e9:.2f} GB, {len(index.offered_layers)} layers of "
        f"{index.experts_per_layer} experts, written in {time.monotonic() - began:.1f} s"
    )


if __name__ == "__main__":
    main()
