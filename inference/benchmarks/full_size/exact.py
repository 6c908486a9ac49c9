"""Arm `exact`: every recorded trace is repeated by plain llama.cpp in a process of its own, logits row by row."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from inference.benchmarks.overhead import SideFailed
from inference.benchmarks.progress import Progress
from inference.benchmarks.relay.processes import ROOT
from inference.benchmarks.report import Result


def exact(traces: Path, gpu_layers: int, progress: Progress) -> Iterator[Result]:
    """Cases `exact/FOLDER/lane-N` with `max_abs_diff`. Raises SideFailed when a trace cannot be repeated."""
    found = sorted(traces.rglob("lane-*.jsonl"))
    for number, path in enumerate(found):
        progress(number / len(found), str(path.parent.name))
        command = [sys.executable, "-m", "inference.verify.replay", str(path), "--gpu-layers", str(gpu_layers)]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if run.returncode not in (0, 1):
            raise SideFailed("replay", f"ended with status {run.returncode}", run.stderr[-2000:])
        (said,) = json.loads(run.stdout.splitlines()[-1])["traces"]
        yield Result(
            f"exact/{path.parent.name}/{path.stem}",
            "max |d|",
            [said["max_abs_diff"]],
            extra={**said, "note": f"{said['positions']} logits rows, equal bits: {said['equal_bits']}"},
        )
