"""The command line of the arms; adds to the report in --out and prints a short table last."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from inference.benchmarks.full_size.dense import dense
from inference.benchmarks.full_size.exact import exact
from inference.benchmarks.full_size.swarm import RESULTS, Case, Plan, churn, swarm
from inference.benchmarks.progress import ProgressBar
from inference.benchmarks.relay.processes import ROOT
from inference.benchmarks.report import Result, as_object, as_table


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m inference.benchmarks.full_size", description=__doc__)
    parser.add_argument("arm", choices=["dense", "swarm", "churn", "exact"])
    parser.add_argument("--model", type=Path, required=True, help="what tools.make_shape wrote, or any MoE GGUF")
    parser.add_argument("--out", type=Path, required=True, help="JSON report; cases of the same name are replaced")
    parser.add_argument("--folder", type=Path, required=True, help="for slices: as much room as the experts take")
    parser.add_argument("--traces", type=Path, help="record here (swarm, churn), read from here (exact)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of llama.cpp (default: all cores)")
    parser.add_argument("--gpu-layers", type=int, default=0, help="dense path on a GPU; 999: all layers")
    parser.add_argument("--batches", type=_numbers, default=(1, 8, 32, 64, 128), help="dense: 1,8,32,64,128")
    parser.add_argument("--pairs", type=int, default=3, help="dense: repetitions of each side")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--sequences", type=_numbers, default=(64,))
    parser.add_argument("--round-trips", type=_numbers, default=(0,), help="milliseconds: 0,20,100")
    parser.add_argument(
        "--results", type=lambda text: tuple(text.split(",")), default=("exact",), help=",".join(RESULTS)
    )
    parser.add_argument("--hot-gb", type=float, default=0.0, help="hot set, in 10^9 bytes; 0: remote only")
    parser.add_argument("--steps", type=int, default=2, help="tokens of every sequence in a round")
    parser.add_argument("--rounds", type=int, default=2)
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def run(options: argparse.Namespace) -> list[Result]:
    with ProgressBar(sys.stderr) as progress:
        if options.arm == "dense":
            return dense(
                options.model, options.batches, pairs=options.pairs, threads=options.threads,
                gpu_layers=options.gpu_layers, progress=progress,
            )  # fmt: skip
        if options.arm == "exact":
            return exact(options.traces, options.gpu_layers, progress)
        cases = tuple(
            Case(sequences, round_trip, results, int(options.hot_gb * 1e9))
            for results in options.results
            for round_trip in options.round_trips
            for sequences in options.sequences
        )
        plan = Plan(
            options.model, options.folder, options.workers, cases, options.steps, options.rounds, options.lanes,
            options.threads, options.gpu_layers, str(options.traces or ""),
        )  # fmt: skip
        return swarm(plan, progress) if options.arm == "swarm" else churn(plan, progress)


def keep(out: Path, results: list[Result]) -> None:
    """Adds the cases to the report; those of the same name are replaced."""
    body = as_object("full-size", results, ROOT)
    if out.exists():
        names = {result.case for result in results}
        before = [case for case in json.loads(out.read_text())["results"] if case["case"] not in names]
        body["results"] = before + body["results"]
    out.write_text(json.dumps(body, indent=1) + "\n")


def main() -> None:
    options = arguments()
    began = time.monotonic()
    results = run(options)
    keep(options.out, results)
    print("\n".join(as_table(results)))
    print(f"{options.arm}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
