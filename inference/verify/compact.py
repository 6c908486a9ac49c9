"""What partial sums cost in accuracy: `python -m inference.verify.compact --result sums-f16 --out FOLDER`.

The first 512 tokens of the held-out text, in batches, twice in one process: with every expert local (the bits of plain
llama.cpp, see the exact cases) and with worker processes that answer with partial sums. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from inference.backend import ExpertCall, SwarmBackend
from inference.dispatch import Dispatcher, DispatchPolicy
from inference.gguf_index import open_index
from inference.llama import ContextSettings, Model
from inference.synthetic import DEMO_MODEL
from inference.verify.cases import Case, holdings
from inference.verify.divergence import divergence
from inference.verify.local_swarm import LocalSwarm
from inference.verify.logits import Logits, logits_of
from inference.verify.replay import max_abs_diff
from relay.frames import ResultDtype

HELD_OUT = Path(__file__).resolve().parents[2] / "tests" / "data" / "heldout.txt"
POSITIONS, BATCH = 512, 64
RESULTS = {"sums-f32": ResultDtype.PARTIAL_F32, "sums-f16": ResultDtype.PARTIAL_F16}
# Measured: see docs/verification.md. One int8 rounding that falls the other way moves single logits by up to 1.3, as
# another batch size does in plain llama.cpp; a wrong sum would part the distributions everywhere.
KL_LIMIT, MEAN_KL_LIMIT, TOP1_LIMIT = 0.3, 0.005, 0.95
SETTINGS = ContextSettings(sequence_tokens=POSITIONS, sequences=1, batch_tokens=BATCH, threads=1, outputs=BATCH)


def measure(result: str, out: Path, positions: int = POSITIONS) -> dict[str, Any]:
    """The figures of one result type, and whether they are within the limits."""
    index = open_index(DEMO_MODEL)
    case = Case(f"compact {result}", workers=3)
    # What is measured is the arithmetic: nothing shall be late, however busy this machine is.
    policy = DispatchPolicy(
        deadline_seconds=30.0,
        shortest_deadline_seconds=30.0,
        owner_bytes_limit=1 << 30,
        result_dtype=RESULTS[result],
    )
    with Model(DEMO_MODEL) as model, LocalSwarm(index, holdings(case, index), out) as swarm:
        tokens = model.vocabulary.tokenize(HELD_OUT.read_text(), add_special=True, parse_special=False)[:positions]
        backend = SwarmBackend.install(ExpertCall.compute_all)
        exact = logits_of(model, backend, tokens, SETTINGS, BATCH)
        dispatcher = Dispatcher(
            swarm, layers=index.trunk_layers, experts_per_layer=index.experts_per_layer, policy=policy
        )
        dispatcher.set_replicas(swarm.table)
        backend.handler, backend.takes_weights = dispatcher, True
        compact = logits_of(model, backend, tokens, SETTINGS, BATCH)
    places = {str(place): int(rows) for place, rows in dispatcher.take_report().places.items()}
    return judged(exact, compact, places)


def judged(exact: Logits, compact: Logits, places: dict[str, int]) -> dict[str, Any]:
    kl = divergence(exact, compact)
    top1 = float((exact.argmax(axis=1) == compact.argmax(axis=1)).mean())
    remote_share = places.get("remote", 0) / max(1, sum(places.values()))
    return {
        "ok": bool(kl.max() <= KL_LIMIT and kl.mean() <= MEAN_KL_LIMIT and top1 >= TOP1_LIMIT and remote_share > 0.9),
        "positions": len(exact),
        "max_abs_diff": max_abs_diff(compact, exact),
        "kl_max": float(kl.max()),
        "top1_agreement": top1,
        "extra": {
            "kl_mean": float(kl.mean()),
            "kl_limit": KL_LIMIT,
            "kl_mean_limit": MEAN_KL_LIMIT,
            "top1_limit": TOP1_LIMIT,
            "mean_abs_diff": float(np.abs(compact - exact).mean()),
            "remote_share": remote_share,
            "places": places,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures one kind of partial sums against exact results.")
    parser.add_argument("--result", choices=sorted(RESULTS), required=True)
    parser.add_argument("--out", type=Path, required=True, help="Folder for the slices.")
    parser.add_argument("--positions", type=int, default=POSITIONS)
    options = parser.parse_args()
    print(json.dumps(measure(options.result, options.out, options.positions)))


if __name__ == "__main__":
    main()
