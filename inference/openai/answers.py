"""What is sent back: answers, chunks of streamed answers, log-probabilities and usage in OpenAI's shapes. Pure.

`Completion` and `Chat` know the shapes of their endpoint; both are told the tokens of a choice as they come.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from inference.token_stream import StreamedToken

Piece = Callable[[int], bytes]
Json = dict[str, Any]


@dataclass(frozen=True)
class Head:
    """What every chunk of an answer repeats. fingerprint: of the build that answers."""

    answer_id: str
    model: str
    created: int
    fingerprint: str

    def fields(self, kind: str) -> Json:
        return {
            "id": self.answer_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


def new_head(prefix: str, job_id: str, model: str, build: str) -> Head:
    return Head(f"{prefix}-{job_id}", model, int(time.time()), f"fp_{build[:12]}")


@dataclass
class Choice:
    """One answer as far as it has come. usage counts every token, the one that ended it too."""

    index: int
    text: str = ""
    tokens: int = 0
    finish: str | None = None
    history: list[StreamedToken] = field(default_factory=list)

    def add(self, token: StreamedToken) -> None:
        self.history.append(token)
        self.text += token.text
        if token.token >= 0:
            self.tokens = token.index + 1
        if token.finish:
            self.finish = token.finish


def usage(prompt_tokens: int, choices: Iterable[Choice]) -> Json:
    completion = sum(choice.tokens for choice in choices)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": prompt_tokens + completion,
    }


def merged_text(tokens: Sequence[StreamedToken]) -> str:
    return "".join(token.text for token in tokens)


class Shape(Protocol):
    """One endpoint's shapes: how an `id` begins, what `object` says of whole answers and of chunks."""

    prefix: str
    kind: str
    chunk_kind: str

    def opening(self, index: int) -> list[Json]:
        """The choices of the chunks before the first token of choice `index`."""

    def chunks(self, choice: Choice, tokens: Sequence[StreamedToken]) -> list[Json]:
        """The `choices` entries for tokens that have come together; none when they add nothing to see."""

    def answer(self, choice: Choice) -> Json:
        """The `choices` entry of a whole answer."""


class LogProbabilities:
    """Log-probabilities of tokens in both shapes. Tokens without any (not asked for, or end marks) are left out."""

    def __init__(self, piece: Piece, end_tokens: frozenset[int]) -> None:
        self._piece, self._end_tokens = piece, end_tokens

    def _of(self, tokens: Sequence[StreamedToken]) -> list[tuple[StreamedToken, float]]:
        return [
            (token, token.logprob)
            for token in tokens
            if token.logprob is not None and not (token.finish == "stop" and token.token in self._end_tokens)
        ]

    def completion(self, tokens: Sequence[StreamedToken], offset: int) -> Json:
        """offset: characters of the answer before these tokens."""
        texts: list[str] = []
        offsets: list[int] = []
        probabilities: list[float] = []
        alternatives: list[dict[str, float]] = []
        for token, logprob in self._of(tokens):
            text = self._piece(token.token).decode(errors="replace")
            texts.append(text)
            offsets.append(offset)
            probabilities.append(logprob)
            alternatives.append({other: value for _, other, value in reversed(token.top)})
            offset += len(text)
        return {
            "tokens": texts,
            "token_logprobs": probabilities,
            "top_logprobs": alternatives,
            "text_offset": offsets,
        }

    def chat(self, tokens: Sequence[StreamedToken]) -> Json:
        return {
            "content": [
                {**self._entry(token.token, logprob),
                 "top_logprobs": [self._entry(other, value) for other, _, value in token.top]}
                for token, logprob in self._of(tokens)
            ],
            "refusal": None,
        }  # fmt: skip

    def _entry(self, token: int, logprob: float) -> Json:
        piece = self._piece(token)
        return {"token": piece.decode(errors="replace"), "logprob": logprob, "bytes": list(piece)}


class Completion:
    """/v1/completions."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(self, logprobs: LogProbabilities | None) -> None:
        self._logprobs = logprobs

    def opening(self, index: int) -> list[Json]:
        return []

    def chunks(self, choice: Choice, tokens: Sequence[StreamedToken]) -> list[Json]:
        text, finish = merged_text(tokens), tokens[-1].finish or None
        if not (text or finish or self._logprobs):
            return []
        logprobs = self._logprobs and self._logprobs.completion(tokens, len(choice.text) - len(text))
        return [{"text": text, "index": choice.index, "logprobs": logprobs, "finish_reason": finish}]

    def answer(self, choice: Choice) -> Json:
        logprobs = self._logprobs and self._logprobs.completion(choice.history, 0)
        return {"text": choice.text, "index": choice.index, "logprobs": logprobs, "finish_reason": choice.finish}


class Chat:
    """/v1/chat/completions."""

    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, logprobs: LogProbabilities | None) -> None:
        self._logprobs = logprobs

    def opening(self, index: int) -> list[Json]:
        delta = {"role": "assistant", "content": "", "refusal": None}
        return [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}]

    def chunks(self, choice: Choice, tokens: Sequence[StreamedToken]) -> list[Json]:
        """Text first, then the finish with an empty delta: some clients drop a text that comes with a finish."""
        text, finish = merged_text(tokens), tokens[-1].finish
        made = []
        if text or self._logprobs:
            logprobs = self._logprobs and self._logprobs.chat(tokens)
            delta = {"content": text}
            made.append({"index": choice.index, "delta": delta, "logprobs": logprobs, "finish_reason": None})
        if finish:
            made.append({"index": choice.index, "delta": {}, "logprobs": None, "finish_reason": finish})
        return made

    def answer(self, choice: Choice) -> Json:
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": self._logprobs and self._logprobs.chat(choice.history),
            "finish_reason": choice.finish,
        }
