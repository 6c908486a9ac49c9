"""`python -m inference.stage --server URL`: the command line of a stage that joins through the market and the relay."""

import argparse
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from inference.kernel import kernel_class_name
from inference.llama import Model
from inference.ring.service import DEFAULT_RINGS
from inference.ring.steps import HEADER, MessageKind
from inference.stage.lifecycle import StageOpener, run
from inference.stage.program import service_of
from inference.worker.options import Options, add_arguments, options_from

DESCRIPTION = """\
Lend memory and processor time for a part of a model's dense path: register with an Expertswarm server as a stage, claim
a run of layers that fits the memory lent, download it, and take steps of rings through the relay. Stop with Ctrl-C: the
run is given back. With --model instead of --server it serves a stage file over direct TCP.
"""


class OpenedStage:
    """A downloaded stage: its model, and contexts of the rings on it, by who opened them. An `OpenStage` of
    `inference.stage.lifecycle`. Raises ModelNotLoaded, NotAStage.
    """

    def __init__(self, path: Path, *, rings: int, gpu_layers: int) -> None:
        with ExitStack() as stack:
            model = stack.enter_context(Model(path, gpu_layers=gpu_layers))
            self._service = service_of(model, rings=rings)
            self._rings: defaultdict[int, set[bytes]] = defaultdict(set)
            self._resources = stack.pop_all()

    def answer(self, data: bytes, asker: int) -> bytes:
        if len(data) >= HEADER.size:
            kind, _, _, _, ring = HEADER.unpack_from(data)
            if kind == MessageKind.OPEN:
                self._rings[asker].add(ring)
            elif kind == MessageKind.CLOSE:
                self._rings[asker].discard(ring)
        return self._service.answer(data)

    def forget(self, asker: int | None) -> None:
        for gone in list(self._rings) if asker is None else [asker]:
            for ring in self._rings.pop(gone, ()):
                self._service.close(ring)

    def close(self) -> None:
        self._service.stop()
        self._resources.close()


def main(arguments: list[str] | None = None) -> int:
    """The whole program; returns the exit code."""
    options, opener = parse(arguments)
    return run(options, opener)


def parse(arguments: list[str] | None = None) -> tuple[Options, StageOpener]:
    """Prints usage and exits with 2 when the command line is wrong (argparse's way)."""
    parser = argparse.ArgumentParser(prog="python -m inference.stage", description=DESCRIPTION)
    add_arguments(parser)
    parser.add_argument(
        "--rings", metavar="N", type=int, default=DEFAULT_RINGS,
        help="most contexts, one per lane of every coordinator (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--gpu-layers", metavar="N", type=int, default=0, help="layers on a GPU (default: %(default)s)")
    namespace = parser.parse_args(arguments)
    if namespace.experts is not None or namespace.rows_per_second is not None or namespace.kernel != "auto":
        parser.error("a stage holds layers, not experts: --experts, --rows-per-second and --kernel are a worker's")

    def open_stage(path: Path) -> OpenedStage:
        return OpenedStage(path, rings=max(1, namespace.rings), gpu_layers=namespace.gpu_layers)

    return options_from(namespace), StageOpener(kernel_class_name(), open_stage)
