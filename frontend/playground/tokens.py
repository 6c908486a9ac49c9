"""Tokens as the playground shows them: text, probability, alternatives, and where their experts were computed.

One shape for the stream of the script and for the page without one. Pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inference.openai.answers import Choice
from inference.row_places import Places
from inference.token_stream import StreamedToken

PAGE_TEXT = "playground.token"


@dataclass(frozen=True)
class TokenLine:
    """One token. probability: 0..1 by the model's raw logits, None: not asked for; alternatives: likeliest first.

    places: rows ((token, expert) pairs over all layers) computed by workers, by the backbone because they are hot, and
    by the backbone for other reasons; None: the token came with the prompt.
    """

    text: str
    probability: float | None
    alternatives: tuple[tuple[str, float], ...]
    places: Places | None


def token_line(token: StreamedToken) -> TokenLine:
    return TokenLine(
        text=token.text,
        probability=None if token.logprob is None else math.exp(token.logprob),
        alternatives=tuple((text, math.exp(logprob)) for _, text, logprob in token.top),
        places=token.places,
    )


def token_lines(tokens: Sequence[StreamedToken]) -> list[TokenLine]:
    """Those that add something to see; the end mark does not."""
    return [token_line(token) for token in tokens if token.text or (token.token >= 0 and token.finish != "stop")]


class PageShape:
    """The stream of the playground's script: the shape of an endpoint, with token lines instead of texts."""

    prefix, kind, chunk_kind = "page", PAGE_TEXT, PAGE_TEXT

    def opening(self, index: int) -> list[dict[str, Any]]:
        return []

    def chunks(self, choice: Choice, tokens: Sequence[StreamedToken]) -> list[dict[str, Any]]:
        lines = [_fields(line) for line in token_lines(tokens)]
        return [{"index": choice.index, "tokens": lines, "finish_reason": tokens[-1].finish or None}]

    def answer(self, choice: Choice) -> dict[str, Any]:
        return {"index": choice.index, "tokens": [_fields(line) for line in token_lines(choice.history)]}


def _fields(line: TokenLine) -> dict[str, Any]:
    alternatives = [[text, round(probability, 4)] for text, probability in line.alternatives]
    probability = None if line.probability is None else round(line.probability, 4)
    return {"text": line.text, "probability": probability, "alternatives": alternatives, "places": line.places}
