"""Milestones that anybody can run: each demo does the real thing, says what it does, and ends with its figures."""

from collections.abc import Callable
from dataclasses import dataclass

Say = Callable[[str], None]


@dataclass(frozen=True)
class Figures:
    """What a demo measured. max_abs_diff: to plain llama.cpp fed the same batches, over `positions` logits rows."""

    tokens: int
    seconds: float
    rows_remote: int
    rows_total: int
    positions: int
    max_abs_diff: float

    @property
    def lines(self) -> list[str]:
        share = self.rows_remote / max(1, self.rows_total)
        rate = self.tokens / self.seconds
        return [
            f"tokens/s                        {rate:.1f}  ({self.tokens} in {self.seconds:.2f} s)",
            f"expert rows computed by workers {share:.1%}  ({self.rows_remote} of {self.rows_total})",
            f"max |difference| of logits      {self.max_abs_diff}  ({self.positions} positions, plain llama.cpp)",
        ]
