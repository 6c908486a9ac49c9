"""One request on its way through a lane: what was asked, what came of it so far, and the event of each token.

Knows tokens and text; nothing of contexts, threads, claims or sockets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from inference.decoding import DecodingContext
from inference.errors import BadParameter, PromptTooLong
from inference.llama import SamplerChain, Vocabulary
from inference.row_places import Places
from inference.sampling import SamplingParameters, fill_chain, log_probabilities
from inference.token_text import TokenText

logger = logging.getLogger(__name__)

Finish = Literal["stop", "length", "cancelled", "error"]
NO_TOKEN = -1
# What one step of priority is worth. Nobody starves: in the end everybody has waited longer than the favoured.
PRIORITY_SECONDS = 10.0


@dataclass(frozen=True)
class GenerationRequest:
    """What to generate.

    resumed: tokens that an earlier attempt already produced; the next index is their number. priority: a request comes
    before others as if it had arrived PRIORITY_SECONDS earlier for each step (later, for negative ones). trusted_only:
    only workers that have earned trust may see its rows.
    """

    request_id: str
    prompt: tuple[int, ...]
    sampling: SamplingParameters = field(default_factory=SamplingParameters)
    resumed: tuple[int, ...] = ()
    priority: int = 0
    trusted_only: bool = False


@dataclass(frozen=True)
class TokenEvent:
    """One token of an answer, or its end.

    index: of the token in the answer. text: the text that became certain with it: whole characters only, stop strings
    withheld and cut, so it may be empty or lag behind. finish: set on the last event: "stop" (end-of-text token or stop
    string), "length" (max_tokens or the context's end), "cancelled", "error" (the reason in `error`). Events that end
    an answer without a new token have token NO_TOKEN. logprob, top_logprobs: when asked for, from the raw logits.
    places: when asked for, where its rows were computed; None for a token that came with the prompt.
    """

    index: int
    token: int
    text: str
    finish: Finish | None = None
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, str, float], ...] = ()
    error: str = ""
    places: Places | None = None


def check_request(request: GenerationRequest, vocabulary_size: int, context_tokens: int) -> None:
    """Raises BadParameter or PromptTooLong (which leaves room for at least one token of the answer)."""
    request.sampling.validate()
    if not request.prompt:
        raise BadParameter("the prompt has no tokens")
    tokens = (*request.prompt, *request.resumed)
    if min(tokens) < 0 or max(tokens) >= vocabulary_size:
        raise BadParameter(f"tokens must be numbers from 0 to {vocabulary_size - 1}")
    if len(request.prompt) >= context_tokens:
        raise PromptTooLong(len(request.prompt), context_tokens - 1)


class Generation:
    """The state of one request. pending: the tokens to feed before the first sample; position: tokens fed so far;
    slot: its sequence number while its prompt is read, -1 before and after; keep_at: at this position its state is kept
    for prompts with the same beginning (0: nowhere); order: seconds, who has less comes first."""

    def __init__(
        self,
        request: GenerationRequest,
        on_event: Callable[[TokenEvent], None],
        vocabulary: Vocabulary,
        context_tokens: int,
    ) -> None:
        self.request = request
        self._on_event = on_event
        self.cancelled = False
        self.pending = np.array([*request.prompt, *request.resumed], np.int32)
        self.position = 0
        self.slot = -1
        self.keep_at = 0
        self.order = time.monotonic() - PRIORITY_SECONDS * request.priority
        self._generated: list[int] = []
        self.next_token = NO_TOKEN
        self._index = len(request.resumed)
        self._limit = min(request.sampling.max_tokens, context_tokens - len(request.prompt))
        self._vocabulary = vocabulary
        self._sampler: SamplerChain | None = None
        self._text = TokenText(request.sampling.stop)
        for token in request.resumed:
            self._text.feed(vocabulary.piece(token))

    @property
    def request_id(self) -> str:
        return self.request.request_id

    def begin_again(self) -> None:
        """Where the state of its sequence is lost: everything so far is to be read again, and nothing is told twice."""
        self.close()
        self.request = replace(self.request, resumed=(*self.request.resumed, *self._generated))
        self.pending = np.array([*self.request.prompt, *self.request.resumed], np.int32)
        self._generated.clear()
        self.position, self.slot, self.keep_at = 0, -1, 0

    def fed_tokens(self) -> npt.NDArray[np.int32]:
        """(position,) what the sequence has seen: prompt, resumed and generated tokens."""
        return np.concatenate([self.pending, np.array(self._generated, np.int32)])[: self.position]

    def tell(self, event: TokenEvent) -> None:
        """Delivers an event. A listener that fails loses its request, not the others' lane."""
        try:
            self._on_event(event)
        except Exception:
            logger.exception("request %s: its listener failed; the request is dropped", self.request_id)
            self.cancelled = True

    def already_complete(self) -> Finish | None:
        """How the answer ended if the resumed tokens are all of it: the earlier attempt died before saying so."""
        resumed = self.request.resumed
        if self._text.stopped or (resumed and self._ends(resumed[-1])):
            return "stop"
        return "length" if self._index >= self._limit else None

    def open_sampler(self) -> None:
        """Builds the sampler in the state after the resumed tokens; `close` frees it."""
        self._sampler = SamplerChain(self._vocabulary)
        request = self.request
        fill_chain(self._sampler, request.sampling.with_seed(), self._vocabulary, request.prompt, request.resumed)

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None

    def sample(self, context: DecodingContext, row: int, places: Places | None = None) -> TokenEvent:
        """Chooses the next token from batch entry `row` of the context's last decode and says what came of it."""
        assert self._sampler is not None
        token = context.choose(self._sampler, row)
        self.next_token = token
        self._generated.append(token)
        finish: Finish | None = None
        text = ""
        if self._ends(token):
            finish = "stop"
        else:
            text = self._text.feed(self._vocabulary.piece(token))
            if self._text.stopped:
                finish = "stop"
            elif self._index + 1 >= self._limit:
                finish = "length"
        if finish is not None and not self._text.stopped:
            text += self._text.finish()
        index, self._index = self._index, self._index + 1
        if self.request.sampling.logprobs is None:
            return TokenEvent(index, token, text, finish, places=places)
        logprob, top = self._logprobs(context.logits_of(row), token, self.request.sampling.logprobs)
        return TokenEvent(index, token, text, finish, logprob, top, places=places)

    def last_event(self, finish: Finish, error: str = "") -> TokenEvent:
        """The event that ends the answer without a new token."""
        text = self._text.finish() if finish in ("stop", "length") else ""
        return TokenEvent(self._index, NO_TOKEN, text, finish, error=error)

    def _ends(self, token: int) -> bool:
        return token in self._vocabulary.end_tokens and not self.request.sampling.ignore_eos

    def _logprobs(
        self, row: npt.NDArray[np.float32], token: int, top: int
    ) -> tuple[float, tuple[tuple[int, str, float], ...]]:
        logprob, best = log_probabilities(row, token, top)
        return logprob, tuple((t, self._vocabulary.piece(t).decode(errors="replace"), value) for t, value in best)
