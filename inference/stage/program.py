"""The program around a stage: model, listening socket, signals, exit codes.

Exit codes: 0 after a clean stop, 1 when it cannot go on (one line says why), 2 for a wrong command line.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType as StackFrame

from inference.backend import ExpertsMissing
from inference.errors import InferenceError
from inference.llama import ContextSettings, Model
from inference.ring.service import StageService
from inference.ring.steps import StageDescription
from inference.stage.options import Options, parse_options
from inference.stage.server import StageServer
from inference.stage_context import StageContext, StageInfo

logger = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """The whole program; returns the exit code."""
    return run(parse_options(arguments))


def run(options: Options) -> int:
    """Serves until SIGINT or SIGTERM."""
    logging.basicConfig(
        level=options.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
    )  # fmt: skip
    try:
        with Model(options.model, gpu_layers=options.gpu_layers) as model:
            if not StageInfo.of(model).has_experts:
                raise ExpertsMissing(f"{options.model} has no experts: `manage.py stage` asks workers for them")
            service = service_of(model, rings=options.rings, at_once=options.at_once)
            serve(service, options.listen, options.secret)
    except (InferenceError, OSError) as error:
        logger.error("%s", error)
        return 1
    logger.info("stopped")
    return 0


def service_of(
    model: Model,
    *,
    rings: int,
    at_once: int = 1,
    lane_context: Callable[[ContextSettings], AbstractContextManager[object]] = lambda settings: nullcontext(),
) -> StageService:
    """The service of a stage file. Raises NotAStage. lane_context: what is entered while a ring's context is made, so
    that an expert backend can be tied to it."""
    info = StageInfo.of(model)
    description = StageDescription(
        info.model, info.first_layer, info.last_layer, info.trunk_layers, info.n_embd, model.vocabulary.size,
        info.has_experts,
    )  # fmt: skip

    def open_context(settings: ContextSettings) -> StageContext:
        with lane_context(settings):
            return StageContext(model, settings)

    return StageService(description, open_context, rings=rings, at_once=at_once)


def serve(service: StageService, listen: tuple[str, int], secret: bytes) -> None:
    """Prints the address once it listens; returns after SIGINT or SIGTERM. Raises OSError."""
    listener = socket.create_server(listen, family=socket.AF_INET6 if ":" in listen[0] else socket.AF_INET)
    server = StageServer(service, listener, secret)
    thread = threading.Thread(target=server.serve, name="listener", daemon=True)
    stop = threading.Event()

    def on_signal(number: int, _stack: StackFrame | None) -> None:
        logger.info("%s: stopping", signal.Signals(number).name)
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        thread.start()
        here = service.description
        print(f"layers {here.first}:{here.last} of {here.layers} at {listen[0]}:{server.port}", flush=True)
        stop.wait()
    finally:
        server.close()
        thread.join()
        for number, handler in before.items():
            signal.signal(number, handler)
