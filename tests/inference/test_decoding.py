"""Tokens chosen from a row of logits are those that llama.cpp chooses from its own context."""

from collections.abc import Iterator

import numpy as np
import pytest

from inference.llama import Batch, Context, ContextSettings, SamplerChain
from inference.sampling import SamplingParameters, fill_chain
from tests.inference.models import demo_model, tokens_of

PROMPT = tokens_of("Once upon a time there was")
SETTINGS = ContextSettings(sequence_tokens=64, sequences=1, batch_tokens=32, threads=1, outputs=32)
WAYS = {
    "greedy": SamplingParameters(temperature=0.0),
    "a draw": SamplingParameters(temperature=0.8, seed=3),
    "few candidates": SamplingParameters(temperature=1.3, seed=4, top_k=10, top_p=0.9, min_p=0.01),
    "a penalty, no end": SamplingParameters(temperature=0.9, seed=5, repeat_penalty=1.3, ignore_eos=True, top_k=0),
}


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with Context(demo_model(), SETTINGS) as context:
        batch = Batch(len(PROMPT))
        batch.size = len(PROMPT)
        batch.tokens[:], batch.positions[:], batch.wants_logits[:] = PROMPT, np.arange(len(PROMPT)), 1
        assert context.decode(batch) == 0
        yield context


def chain_for(parameters: SamplingParameters) -> SamplerChain:
    chain = SamplerChain(demo_model().vocabulary)
    fill_chain(chain, parameters, demo_model().vocabulary, PROMPT)
    return chain


@pytest.mark.parametrize("way", WAYS)
def test_a_row_of_logits_gives_the_tokens_that_its_context_gives(context: Context, way: str) -> None:
    with chain_for(WAYS[way]) as theirs, chain_for(WAYS[way]) as ours:
        rows = [row % len(PROMPT) for row in range(40)]

        expected = [context.choose(theirs, row) for row in rows]

        assert [ours.sample_logits(context.logits_of(row)) for row in rows] == expected
