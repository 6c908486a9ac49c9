"""Runs one case on a ring of stages: `python -m inference.verify.ring_run --case JSON --model M --out FOLDER`.

As `inference.verify.recorded_run`, which has the requests: but the engine holds no layer, they lie in stage processes,
whose experts may lie in worker processes. A case that kills gives the middle stage SIGKILL, and starts a new one.
"""

from __future__ import annotations

import argparse
import json
import logging
import threading
from contextlib import ExitStack
from pathlib import Path

from inference.engine import Engine
from inference.gguf_index import open_index
from inference.ring.policy import Rings
from inference.verify.cases import Case
from inference.verify.recorded_run import CONTEXT_TOKENS, Outcome, Workload
from inference.verify.stage_processes import STAGE_MODULE, StageProcesses, cut_stages


def run(case: Case, model: Path, out: Path) -> Outcome:
    """Raises InferenceError, TimeoutError."""
    index = open_index(model)
    paths = cut_stages(index, out / "stages", case.stages, hollow=case.hollow)
    module, options = STAGE_MODULE, []
    if case.placement != "local":
        module = "inference.verify.stage_process"
        listing = out / "case.json"
        listing.write_text(json.dumps(case.to_json()))
        options = ["--case", str(listing), "--whole", str(model), "--folder", str(out)]
    with ExitStack() as handles:
        stages = handles.enter_context(StageProcesses(paths, out, module=module, options=options))
        directory = stages.directory(index)
        rings = Rings(directory.open_line, directory.has_ring, case.lanes, case.sequences, case.threads)
        engine = Engine(model, lanes=0, context_tokens=CONTEXT_TOKENS, trace_dir=out, rings=rings)
        handles.callback(engine.stop)
        engine.start()
        replacing: list[threading.Thread] = []

        def kill() -> None:
            middle = len(stages.stages) // 2
            stages.kill(middle)
            replacing.append(threading.Thread(target=stages.replace, args=(middle,)))
            replacing[-1].start()

        workload = Workload(case, engine, kill)
        workload.run()
        for thread in replacing:
            thread.join()
        counts = engine.ring_counts()
        engine.stop()
        places: dict[str, int] = {}
        for told in stages.stop():
            for place, rows in told.items():
                places[place] = places.get(place, 0) + rows
    return Outcome(
        finishes=workload.finishes,
        places=places,
        failures={"rings_lost": counts.losses} if counts.losses else {},
        remote_share=places.get("remote", 0) / max(1, sum(places.values())),
        reused_tokens=0,
        replayed_tokens=counts.replayed_tokens,
        traces=[str(out / f"lane-{lane}.jsonl") for lane in range(case.lanes)],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs one verification case on a ring of stages.")
    parser.add_argument("--case", required=True, help="The case as JSON.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    print(json.dumps(run(Case.from_json(json.loads(options.case)), options.model, options.out).__dict__))


if __name__ == "__main__":
    main()
