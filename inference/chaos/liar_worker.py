"""The real worker over a kernel that lies: `python -m inference.chaos.liar_worker LIE [options of the worker]`.

It answers challenges rightly, so that it is trusted with work, and lies in everything else.
"""

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


def honest_on_challenges() -> None:
    """From now on this process answers CHALLENGE with the truth and DISPATCH with the lie of its kernel."""
    compute = serve.compute

    def lying_compute(frame: Frame, holding: Holding) -> Float32Array:
        if isinstance(holding.kernel, LyingKernel):
            holding.kernel.is_lying = frame.type is FrameType.DISPATCH
        return compute(frame, holding)

    serve.compute = lying_compute


def main(arguments: list[str]) -> int:
    lie = LIES[arguments[0]]

    def choose_liar(name: str, threads: int) -> KernelChoice:
        choice = choose_kernel(name, threads)

        def open_liar(path: Path) -> ExpertKernel:
            return LyingKernel(choice.open(path), lie)

        return replace(choice, open=open_liar)

    honest_on_challenges()
    return program.run(parse_options(arguments[1:]), choose_liar)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
