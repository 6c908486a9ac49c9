"""Workers that do not tell the truth, for tests, `bench audit` and `chaos`: what they answer instead.

A liar is made over an honest kernel. Nothing of this can be reached from the worker that people run.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from inference.rows import ByteArray, Float32Array, IntArray


class Compute(Protocol):
    """An expert kernel's `compute`."""

    def __call__(self, rows: Float32Array | ByteArray, expert_ids: IntArray) -> Float32Array: ...


Lie = Callable[[Compute, Float32Array | ByteArray, IntArray], Float32Array]


def constant_offset(honest: Compute, rows: Float32Array | ByteArray, experts: IntArray) -> Float32Array:
    """Adds a hundredth to every value."""
    return honest(rows, experts) + np.float32(0.01)


def zeros(honest: Compute, rows: Float32Array | ByteArray, experts: IntArray) -> Float32Array:
    """Computes nothing at all; its width it learns from one row."""
    return np.zeros((len(experts), honest(rows[:1], experts[:1]).shape[1]), np.float32)


class SwappedExperts:
    """Answers with the neighbouring expert of its range [first, last)."""

    def __init__(self, first: int, last: int) -> None:
        self._first, self._last = first, last

    def __call__(self, honest: Compute, rows: Float32Array | ByteArray, experts: IntArray) -> Float32Array:
        count = self._last - self._first
        return honest(rows, ((experts - self._first + 1) % count + self._first).astype(np.int32))


class Replay:
    """Computes its first answer and gives it again, cut or repeated to the size that is asked for."""

    def __init__(self) -> None:
        self._old: Float32Array | None = None

    def __call__(self, honest: Compute, rows: Float32Array | ByteArray, experts: IntArray) -> Float32Array:
        if self._old is None:
            self._old = honest(rows, experts)
            return self._old
        return np.resize(self._old, (len(experts), self._old.shape[1]))


class RareError:
    """One wrong row in `every`, chosen at random; the rest is right."""

    def __init__(self, every: int = 1000, seed: int = 0) -> None:
        self._every = every
        self._random = np.random.default_rng(seed)

    def __call__(self, honest: Compute, rows: Float32Array | ByteArray, experts: IntArray) -> Float32Array:
        answer = honest(rows, experts)
        wrong = self._random.random(len(experts)) < 1 / self._every
        answer[wrong] = -answer[wrong]
        return answer


def coarse_rows(honest: Compute, rows: Float32Array | ByteArray, experts: IntArray) -> Float32Array:
    """Weights requantised to fewer bits, seen from outside: an answer with a relative error of a few per cent.

    Stands in where re-making the weights is too dear; `bench audit` uses slices that are really requantised.
    """
    answer = honest(rows, experts)
    step = np.abs(answer).max(axis=1, keepdims=True) / np.float32(7)
    rounded: Float32Array = np.rint(answer / np.maximum(step, np.float32(1e-30))) * step
    return rounded
