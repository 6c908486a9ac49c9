import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from inference.errors import BadParameter
from inference.llama import Batch, Context, ContextSettings, SamplerChain
from inference.sampling import SamplingParameters, fill_chain, log_probabilities
from tests.inference.models import END_OF_TURN, demo_model, tokens_of
from tests.refusal import refusal

PROMPT = tokens_of("Once upon a time there was a king who")


@contextmanager
def chain_of(parameters: SamplingParameters, resumed: tuple[int, ...] = ()) -> Iterator[SamplerChain]:
    with SamplerChain(demo_model().vocabulary) as chain:
        fill_chain(chain, parameters, demo_model().vocabulary, PROMPT, resumed)
        yield chain


@pytest.fixture(scope="module")
def decoded() -> Iterator[Context]:
    """A context whose last decode left the logits of every prompt token."""
    settings = ContextSettings(sequence_tokens=256, sequences=1, batch_tokens=64, threads=1, outputs=64)
    with Context(demo_model(), settings) as context:
        batch = Batch(len(PROMPT))
        batch.size = len(PROMPT)
        batch.tokens[:] = PROMPT
        batch.positions[:] = np.arange(len(PROMPT))
        batch.wants_logits[:] = 1
        assert context.decode(batch) == 0
        yield context


def draws(context: Context, parameters: SamplingParameters, count: int, resumed: tuple[int, ...] = ()) -> list[int]:
    """`count` tokens, all sampled from the same logits rows in turn, as if they were those of a generation."""
    with chain_of(parameters, resumed) as chain:
        start = len(resumed)
        return [chain.sample(context, (start + i) % len(PROMPT)) for i in range(count)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_p", 1.1),
        ("min_p", -1.0),
        ("top_k", 1.5),
        ("repeat_penalty", 0.0),
        ("repeat_last_n", -2),
        ("seed", -1),
        ("seed", 0xFFFFFFFF),
        ("max_tokens", 0),
        ("logprobs", 21),
        ("stop", ("",)),
        ("stop", ("x",) * 17),
        ("stop", "text"),
    ],
)
def test_it_refuses_a_value_out_of_range_and_names_it(field: str, value: object) -> None:
    parameters = replace(SamplingParameters(), **{field: value})  # type: ignore[arg-type]

    with pytest.raises(BadParameter, match=field):
        parameters.validate()


def test_the_defaults_are_valid() -> None:
    assert refusal(BadParameter, SamplingParameters().validate) is None


def test_validating_does_not_load_llama_cpp() -> None:
    program = (
        "import sys; from inference.sampling import SamplingParameters; SamplingParameters().validate();"
        "print('llama_cpp' in sys.modules)"
    )

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "False"


def test_with_seed_keeps_a_given_seed_and_makes_one_otherwise() -> None:
    assert SamplingParameters(seed=7).with_seed().seed == 7
    assert SamplingParameters().with_seed().seed is not None


def test_greedy_takes_the_largest_logit(decoded: Context) -> None:
    expected = decoded.logits(len(PROMPT)).argmax(axis=1).tolist()

    assert draws(decoded, SamplingParameters(temperature=0.0), len(PROMPT)) == expected


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others(decoded: Context) -> None:
    alice = draws(decoded, SamplingParameters(seed=1, top_k=0), 30)

    assert draws(decoded, SamplingParameters(seed=1, top_k=0), 30) == alice
    assert draws(decoded, SamplingParameters(seed=2, top_k=0), 30) != alice


@pytest.mark.parametrize(
    "parameters",
    [
        SamplingParameters(seed=11, top_k=0),
        SamplingParameters(seed=12, top_k=5, top_p=0.9, min_p=0.05, temperature=1.7),
        SamplingParameters(seed=13, repeat_penalty=1.4, repeat_last_n=16),
        SamplingParameters(seed=14, repeat_penalty=1.4, repeat_last_n=-1),
        SamplingParameters(temperature=0.0, repeat_penalty=1.3),
    ],
)
@pytest.mark.parametrize("resumed_after", [1, 7, 23])
def test_a_resumed_sampler_continues_exactly(
    decoded: Context, parameters: SamplingParameters, resumed_after: int
) -> None:
    whole = draws(decoded, parameters, 40)

    rest = draws(decoded, parameters, 40 - resumed_after, resumed=tuple(whole[:resumed_after]))

    assert rest == whole[resumed_after:]


def test_it_draws_what_llama_cpp_draws_with_that_seed(decoded: Context) -> None:
    import llama_cpp

    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    for sampler in (
        llama_cpp.llama_sampler_init_top_k(40),
        llama_cpp.llama_sampler_init_temp(0.8),
        llama_cpp.llama_sampler_init_dist(5),
    ):
        llama_cpp.llama_sampler_chain_add(chain, sampler)
    plain = [llama_cpp.llama_sampler_sample(chain, decoded.pointer, i % len(PROMPT)) for i in range(20)]
    llama_cpp.llama_sampler_free(chain)

    assert draws(decoded, SamplingParameters(seed=5, temperature=0.8), 20) == plain


def test_top_k_one_is_greedy(decoded: Context) -> None:
    greedy = draws(decoded, SamplingParameters(temperature=0.0), 12)

    assert draws(decoded, SamplingParameters(seed=3, top_k=1), 12) == greedy


def test_a_repeat_penalty_moves_away_from_the_prompt(decoded: Context) -> None:
    plain = draws(decoded, SamplingParameters(temperature=0.0), len(PROMPT))

    penalised = draws(decoded, SamplingParameters(temperature=0.0, repeat_penalty=5.0, repeat_last_n=-1), len(PROMPT))

    assert set(penalised) & set(PROMPT) < (set(plain) & set(PROMPT)) or not set(penalised) & set(PROMPT)


def test_ignore_eos_never_ends(decoded: Context) -> None:
    ends = demo_model().vocabulary.end_tokens

    tokens = draws(decoded, SamplingParameters(seed=1, top_k=0, temperature=100.0, ignore_eos=True), 3000)

    assert END_OF_TURN in ends
    assert not ends & set(tokens)


def test_log_probabilities_are_the_log_softmax_of_the_raw_logits() -> None:
    logits = np.array([1.0, 3.0, -2.0, 3.0, 0.5], np.float32)
    expected = logits - np.log(np.exp(logits.astype(np.float64)).sum())

    chosen, best = log_probabilities(logits, token=4, top=3)

    assert chosen == pytest.approx(expected[4])
    assert [token for token, _ in best] == [1, 3, 0]
    assert [value for _, value in best] == pytest.approx([expected[1], expected[3], expected[0]])


def test_log_probabilities_survive_large_logits() -> None:
    chosen, best = log_probabilities(np.array([1e4, 0.0], np.float32), token=0, top=0)

    assert chosen == pytest.approx(0.0)
    assert best == []
