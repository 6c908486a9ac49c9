"""The real worker over a kernel that lies: `python -m inference.chaos.liar_worker LIE PATIENCE [worker's options]`.

It answers challenges rightly, and its first PATIENCE requests too, so that it is trusted with work; then it lies in
everything else.
"""

import itertools
import sys
from dataclasses import replace
from pathlib import Path

from inference import liars
from inference.kernel import ExpertKernel
from inference.liars import Lie
from inference.rows import ByteArray, Float32Array, IntArray
from inference.worker import program, serve
from inference.worker.holdings import Holding
from inference.worker.kernels import KernelChoice, choose_kernel
from inference.worker.options import parse_options
from relay.frames import Frame, FrameType

FIRST_LIE = "lies from now on"
LIES: dict[str, Lie] = {
    "offset": liars.constant_offset,
    "zeros": liars.zeros,
    "coarse": liars.coarse_rows,
}


class LyingKernel:
    """An expert kernel whose answers are lies while `is_lying`."""

    def __init__(self, honest: ExpertKernel, lie: Lie) -> None:
        self.layer, self.first, self.last = honest.layer, honest.first, honest.last
        self.n_embd, self.kernel_class = honest.n_embd, honest.kernel_class
        self.is_lying = False
        self._honest, self._lie = honest, lie

    def compute(self, rows: Float32Array | ByteArray, expert_ids: IntArray) -> Float32Array:
        if self.is_lying:
            return self._lie(self._honest.compute, rows, expert_ids)
        return self._honest.compute(rows, expert_ids)

    def close(self) -> None:
        self._honest.close()


def honest_at_first(patience: int) -> None:
    """From now on this process answers every CHALLENGE and so many DISPATCHes with the truth, later ones with its
    kernel's lie."""
    compute = serve.compute
    dispatches = itertools.count()

    def lying_compute(frame: Frame, holding: Holding) -> Float32Array:
        if isinstance(holding.kernel, LyingKernel):
            answered = next(dispatches) if frame.type is FrameType.DISPATCH else -1
            holding.kernel.is_lying = answered >= patience
            if answered == patience:
                print(FIRST_LIE, flush=True)
        return compute(frame, holding)

    serve.compute = lying_compute


def main(arguments: list[str]) -> int:
    lie, patience = LIES[arguments[0]], int(arguments[1])

    def choose_liar(name: str, threads: int) -> KernelChoice:
        choice = choose_kernel(name, threads)

        def open_liar(path: Path) -> ExpertKernel:
            return LyingKernel(choice.open(path), lie)

        return replace(choice, open=open_liar)

    honest_at_first(patience)
    return program.run(parse_options(arguments[2:]), choose_liar)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
