"""The ggml backend inside llama.cpp: bit-identical to plain llama.cpp however the experts are computed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from inference.backend import ExpertCall, SwarmBackend
from inference.llama import Context, Model
from inference.synthetic import small_gpt_oss
from tests.inference.decode import decode_steps, plain_logits, settings_for
from tests.inference.models import DEMO_MODEL, demo_model


@pytest.fixture
def backend() -> Iterator[SwarmBackend]:
    backend = SwarmBackend.install(ExpertCall.compute_all)
    yield backend
    backend.handler = ExpertCall.compute_all


def logits_with(
    backend: SwarmBackend, handler: Callable[[ExpertCall], None], sequences: int, steps: int, model: Model | None = None
) -> np.ndarray:
    backend.handler = handler
    model = model or demo_model()
    with backend.lane(0, 1):
        context = Context(model, settings_for(sequences, 1))
    with context:
        return decode_steps(model, context, sequences, steps)


def compute_in_two_parts(call: ExpertCall) -> None:
    """Every second expert in one call, the others in another."""
    call.output[:] = np.nan
    for part in (call.expert_ids % 2 == 0, call.expert_ids % 2 == 1):
        tokens, slots = np.nonzero(part)
        if len(tokens):
            call.compute(tokens, slots)


@pytest.mark.parametrize(("sequences", "steps"), [(1, 40), (8, 10), (9, 10), (64, 4)])
def test_logits_are_those_of_plain_llama_cpp(backend: SwarmBackend, tmp_path: Path, sequences: int, steps: int) -> None:
    plain = plain_logits(DEMO_MODEL, tmp_path / "plain.npy", sequences=sequences, steps=steps)

    whole = logits_with(backend, ExpertCall.compute_all, sequences, steps)
    parts = logits_with(backend, compute_in_two_parts, sequences, steps)

    assert np.array_equal(whole, plain)
    assert np.array_equal(parts, plain)


def test_it_is_called_once_per_layer_with_the_routers_choice(backend: SwarmBackend) -> None:
    calls: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []

    def handler(call: ExpertCall) -> None:
        calls.append((call.layer, call.hidden.shape, call.expert_ids.shape))
        assert call.expert_ids.min() >= 0
        assert call.expert_ids.max() < 32
        call.compute_all()

    logits_with(backend, handler, sequences=3, steps=2)

    assert calls == [(layer, (3, 256), (3, 4)) for layer in range(8)] * 2


def test_an_exception_in_the_handler_costs_nothing_but_a_log_line(
    backend: SwarmBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(call: ExpertCall) -> None:
        raise RuntimeError("a bug")

    plain = plain_logits(DEMO_MODEL, tmp_path / "plain.npy", sequences=2, steps=3)

    assert np.array_equal(logits_with(backend, handler, 2, 3), plain)
    assert "computed locally" in caplog.text


def test_a_model_with_expert_biases_runs_wholly_local(backend: SwarmBackend, tmp_path: Path) -> None:
    path = tmp_path / "biased.gguf"
    small_gpt_oss(path)
    called: list[int] = []
    plain = plain_logits(path, tmp_path / "plain.npy", sequences=2, steps=3)

    with Model(path) as model:
        logits = logits_with(backend, lambda call: called.append(call.layer), 2, 3, model)

    assert np.array_equal(logits, plain)
    assert called == []


def test_a_freed_context_frees_its_lane(backend: SwarmBackend) -> None:
    before = len(backend.lanes)

    logits_with(backend, ExpertCall.compute_all, 1, 1)

    assert len(backend.lanes) == before
