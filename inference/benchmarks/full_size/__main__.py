"""The command line of the arms; adds to the report in --out and prints a short table last."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import django

from inference.benchmarks.full_size.churn import churn
from inference.benchmarks.full_size.dense import dense
from inference.benchmarks.full_size.exact import exact
from inference.benchmarks.full_size.plan import RESULTS, Budget, Case, Plan
from inference.benchmarks.full_size.swarm import swarm
from inference.benchmarks.progress import ProgressBar
from inference.benchmarks.relay.processes import ROOT
from inference.benchmarks.report import Result, as_object, as_table


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m inference.benchmarks.full_size", description=__doc__)
    parser.add_argument("arm", choices=["dense", "swarm", "churn", "exact", "pages"])
    parser.add_argument("--model", type=Path, required=True, help="what tools.make_shape wrote, or any MoE GGUF")
    parser.add_argument("--out", type=Path, required=True, help="JSON report; cases of the same name are replaced")
    parser.add_argument("--folder", type=Path, default=Path("/tmp"), help="for lists of who holds what; kB (/tmp)")
    parser.add_argument("--traces", type=Path, help="record here (swarm, churn), read from here (exact)")
    parser.add_argument("--within", type=float, help="seconds; cases that would not end in time are left out")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of llama.cpp (default: all cores)")
    parser.add_argument("--gpu-layers", type=int, default=0, help="dense path on a GPU; 999: all layers")
    parser.add_argument("--batches", type=_numbers, default=(1, 8, 32, 64, 128), help="dense: 1,8,32,64,128")
    parser.add_argument("--pairs", type=int, default=3, help="dense: repetitions of each side")
    parser.add_argument("--workers", type=_numbers, default=(12,), help="processes, one after another: 12,6,3,1")
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--sequences", type=_numbers, default=(64,))
    parser.add_argument("--round-trips", type=_numbers, default=(0,), help="milliseconds: 0,20,100")
    parser.add_argument("--results", type=_names, default=("exact",), help=",".join(RESULTS))
    parser.add_argument("--hot-gb", type=float, default=0.0, help="hot set, in 10^9 bytes; 0: remote only")
    parser.add_argument("--steps", type=int, default=4, help="most tokens of every sequence in a round (churn: rounds)")
    parser.add_argument("--seconds", type=float, default=8.0, help="about how long a round takes, one step at least")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if options.arm == "exact" and (options.traces is None or not options.traces.is_dir()):
        parser.error("exact reads traces: name the folder with --traces")
    if unknown := set(options.results) - set(RESULTS):
        parser.error(f"--results knows {', '.join(RESULTS)}, not {', '.join(sorted(unknown))}")
    return options


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def run(options: argparse.Namespace, progress: ProgressBar, budget: Budget) -> Iterable[Result]:
    if options.arm == "dense":
        return dense(
            options.model, options.batches, pairs=options.pairs, threads=options.threads,
            gpu_layers=options.gpu_layers, progress=progress,
        )  # fmt: skip
    if options.arm == "exact":
        return exact(options.traces, options.gpu_layers, progress)
    if options.arm == "pages":
        # Of all arms only this one needs Django, which must be set up before it is imported.
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
        django.setup()
        pages: Iterable[Result] = import_module("inference.benchmarks.full_size.pages").pages(options.model, progress)
        return pages
    cases = tuple(
        Case(sequences, round_trip, results, int(options.hot_gb * 1e9))
        for results in options.results
        for round_trip in options.round_trips
        for sequences in options.sequences
    )
    plan = Plan(
        options.model, options.folder, options.workers, cases, options.steps, options.seconds, options.rounds,
        options.lanes, options.threads, options.gpu_layers, str(options.traces or ""),
    )  # fmt: skip
    return (swarm if options.arm == "swarm" else churn)(plan, progress, budget)


def keep(out: Path, result: Result) -> None:
    """Adds a case to the report, in the place of one of the same name: what was measured outlasts a call that ends
    too late."""
    body = as_object("full-size", [result], ROOT)
    if out.exists():
        before = [case for case in json.loads(out.read_text())["results"] if case["case"] != result.case]
        body["results"] = before + body["results"]
    out.write_text(json.dumps(body, indent=1) + "\n")


def main() -> None:
    options = arguments()
    began = time.monotonic()
    budget = Budget(options.within)
    results = []
    with ProgressBar(sys.stderr) as progress:
        for result in run(options, progress, budget):
            keep(options.out, result)
            results.append(result)
    print("\n".join(as_table(results)))
    if budget.left_out:
        print(f"left out, {options.within:.0f} s do not suffice: {', '.join(budget.left_out)}")
    print(f"{options.arm}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
