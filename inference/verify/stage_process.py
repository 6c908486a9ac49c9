"""A stage whose experts other processes compute: `python -m inference.verify.stage_process --model STAGE ...`.

As `python -m inference.stage`, but the experts of its layers are asked of `LocalSwarm` workers, by the backend and
the dispatcher of a backbone. On SIGTERM it prints where rows were computed.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from inference.backend import SwarmBackend
from inference.gguf_index import open_index
from inference.llama import ContextSettings, Model
from inference.ring.service import DEFAULT_RINGS
from inference.stage.options import read_secret
from inference.stage.program import serve, service_of
from inference.stage_context import StageInfo
from inference.verify.cases import Case, holdings
from inference.verify.local_swarm import LocalSwarm
from inference.verify.recorded_run import dispatcher_of


def main() -> int:
    parser = argparse.ArgumentParser(description="A stage over expert workers on this host.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--secret", type=Path, required=True)
    parser.add_argument("--log-level", default="warning")
    parser.add_argument("--case", type=Path, required=True, help="file with the case as JSON")
    parser.add_argument("--whole", type=Path, required=True, help="the model that the stage was cut from")
    parser.add_argument("--folder", type=Path, required=True, help="for slices")
    options = parser.parse_args()
    logging.basicConfig(level=options.log_level.upper())
    case, index = Case.from_json(json.loads(options.case.read_text())), open_index(options.whole)
    host, _, port = options.listen.rpartition(":")
    with Model(options.model) as model:
        info = StageInfo.of(model)
        own = range(info.first_layer, info.last_layer)
        held = [[one for one in ranges if one.layer in own] for ranges in holdings(case, index)]
        with LocalSwarm(index, held, options.folder / f"slices-{info.first_layer}") as swarm:
            dispatcher = dispatcher_of(case, index, swarm)
            backend = SwarmBackend.install(dispatcher)
            backend.first_layer, backend.has_weights = info.first_layer, info.has_experts

            def lane_context(settings: ContextSettings) -> AbstractContextManager[object]:
                return backend.lane(0, settings.threads)

            # Steps of several rings wait for workers at the same time.
            service = service_of(model, rings=DEFAULT_RINGS, at_once=DEFAULT_RINGS, lane_context=lane_context)
            serve(service, (host, int(port)), read_secret(options.secret))
            report = dispatcher.take_report()
    print(json.dumps({str(place): int(rows) for place, rows in report.places.items()}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
