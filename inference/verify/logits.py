"""Every logit of a text through the expert backend, in one lane."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from inference.backend import SwarmBackend
from inference.llama import Batch, Context, ContextSettings, Model

Logits = npt.NDArray[np.float32]


def logits_of(
    model: Model, backend: SwarmBackend, tokens: Sequence[int], settings: ContextSettings, chunk: int
) -> Logits:
    """(tokens, n_vocab), `chunk` tokens per decode, with the backend's present handler."""
    with backend.lane(0, settings.threads):
        context = Context(model, settings)
    parts = []
    with context:
        batch = Batch(chunk)
        batch.wants_logits[:] = 1
        for start in range(0, len(tokens), chunk):
            part = tokens[start : start + chunk]
            batch.size = len(part)
            batch.tokens[: len(part)] = part
            batch.positions[: len(part)] = np.arange(start, start + len(part))
            assert context.decode(batch) == 0
            parts.append(context.logits(len(part)).copy())
    return np.concatenate(parts)
