"""Sampling parameters of one request, the llama.cpp sampler chain made from them, and log-probabilities.

Knows numbers and tokens; nothing of requests, lanes or sockets. llama_cpp is not imported here: a web process that
only validates parameters does not load it.

The rule that makes a generation resumable: the random number that picks token `i` depends on (seed, i) alone.
llama.cpp's `dist` sampler draws exactly once per sampled token, whatever the number of candidates, so a chain that
resumes after `n` tokens is built with the same seed and draws `n` times for nothing. The tokens are then also those of
plain llama.cpp with that seed. (Source: `llama_sampler_dist_apply` in llama.cpp as llama-cpp-python 0.3.36 holds it.)
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from inference.errors import BadParameter

if TYPE_CHECKING:
    from inference.llama import SamplerChain, Vocabulary

LOGITS = np.ndarray[tuple[int], np.dtype[np.float32]]

# 0xFFFFFFFF is llama.cpp's "choose a seed": it would not be repeatable.
SEED_LIMIT = 0xFFFFFFFF
MAX_STOP_STRINGS = 16
MAX_STOP_BYTES = 1024
MAX_TOP_LOGPROBS = 20
MAX_REPEAT_LAST_N = 1 << 16


@dataclass(frozen=True)
class SamplingParameters:
    """How the tokens of one request are chosen; llama.cpp's meaning of every name.

    temperature 0 = greedy (top_k, top_p, min_p and seed then have no effect); top_k <= 0, top_p = 1, min_p = 0 and
    repeat_penalty = 1 are off; repeat_last_n: the penalty looks at that many tokens, prompt included (-1: all);
    seed None: chosen when the request is taken; stop: strings at which the text ends, not part of the answer;
    max_tokens counts all tokens of the answer, resumed ones included; logprobs: None, or how many alternatives
    (0..20) are reported with the log-probability of the chosen token; ignore_eos: end-of-text tokens are never chosen;
    places: every token says where its rows were computed; low_latency: see `inference.ring.policy`.
    """

    temperature: float = 1.0
    top_k: int = 40
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    seed: int | None = None
    stop: tuple[str, ...] = ()
    max_tokens: int = 128
    logprobs: int | None = None
    ignore_eos: bool = False
    places: bool = False
    low_latency: bool = False

    def validate(self) -> None:
        """Raises BadParameter naming the first parameter that is out of its range."""
        _check_range("temperature", self.temperature, 0.0, 100.0)
        _check_range("top_p", self.top_p, 0.0, 1.0)
        _check_range("min_p", self.min_p, 0.0, 1.0)
        _check_range("repeat_penalty", self.repeat_penalty, 0.01, 100.0)
        _check_integer("top_k", self.top_k, -1, 1 << 30)
        _check_integer("repeat_last_n", self.repeat_last_n, -1, MAX_REPEAT_LAST_N)
        _check_integer("max_tokens", self.max_tokens, 1, 1 << 30)
        if self.seed is not None:
            _check_integer("seed", self.seed, 0, SEED_LIMIT - 1)
        if self.logprobs is not None:
            _check_integer("logprobs", self.logprobs, 0, MAX_TOP_LOGPROBS)
        _check_stop(self.stop)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    def with_seed(self) -> SamplingParameters:
        """The same parameters with a seed: the one given, else a fresh random one. Store it to be able to resume."""
        return self if self.seed is not None else replace(self, seed=secrets.randbelow(SEED_LIMIT))


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise BadParameter(f"{name} must be a number from {low:g} to {high:g}, not {value!r}")


def _check_integer(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadParameter(f"{name} must be an integer from {low} to {high}, not {value!r}")


def _check_stop(stop: tuple[str, ...]) -> None:
    if not isinstance(stop, tuple) or len(stop) > MAX_STOP_STRINGS:
        raise BadParameter(f"stop must be at most {MAX_STOP_STRINGS} strings")
    for text in stop:
        if not isinstance(text, str) or not 1 <= len(text.encode(errors="surrogatepass")) <= MAX_STOP_BYTES:
            raise BadParameter(f"every stop string must have 1 to {MAX_STOP_BYTES} bytes, not {text!r:.40}")


def fill_chain(
    chain: SamplerChain,
    parameters: SamplingParameters,
    vocabulary: Vocabulary,
    prompt: Sequence[int],
    resumed: Sequence[int] = (),
) -> None:
    """Adds llama.cpp's samplers to an empty chain, in llama.cpp's order, in the state after `resumed`.

    Order (common_sampler_init): logit bias, penalties, top_k, top_p, min_p, temperature, draw. As in llama.cpp's
    server the penalties see the prompt too. A seed must be set unless greedy; `parameters` are validated.
    """
    banned = set(vocabulary.suppressed) | (set(vocabulary.end_tokens) if parameters.ignore_eos else set())
    if banned:
        chain.add_ban(sorted(banned))
    if parameters.repeat_penalty != 1.0 and parameters.repeat_last_n != 0:
        last_n = MAX_REPEAT_LAST_N if parameters.repeat_last_n < 0 else parameters.repeat_last_n
        chain.add_penalties(last_n, parameters.repeat_penalty, [*prompt, *resumed][-last_n:])
    if parameters.greedy:
        chain.add_greedy()
        return
    if parameters.top_k > 0:
        chain.add_top_k(parameters.top_k)
    if parameters.top_p < 1.0:
        chain.add_top_p(parameters.top_p)
    if parameters.min_p > 0.0:
        chain.add_min_p(parameters.min_p)
    chain.add_temperature(parameters.temperature)
    assert parameters.seed is not None, "with_seed() comes first"
    chain.add_draw(parameters.seed, skip=len(resumed))


def log_probabilities(logits: LOGITS, token: int, top: int) -> tuple[float, list[tuple[int, float]]]:
    """Log-softmax of raw logits: (log-probability of `token`, the `top` likeliest as (token, log-probability)).

    logits: (n_vocab,) float32 as llama.cpp computed them, before any sampler. Ties are ordered by token number.
    """
    row = logits.astype(np.float64)
    peak = float(row.max())
    normaliser = peak + math.log(float(np.exp(row - peak).sum()))
    if top == 0:
        return float(row[token]) - normaliser, []
    top = min(top, row.size)
    # Every candidate that could be among the first `top`, ties included, then an exact order among those few.
    threshold = np.partition(row, row.size - top)[row.size - top]
    candidates = np.flatnonzero(row >= threshold)
    best = candidates[np.lexsort((candidates, -row[candidates]))][:top]
    return float(row[token]) - normaliser, [(int(i), float(row[i]) - normaliser) for i in best]
