"""Answers as they come: follows the token streams of a request and yields server-sent events, or one whole answer.

Knows token streams and bytes; nothing of HTTP requests, keys or the database. Every event of a streamed answer has the
SSE id `GENERATION:INDEX` of its last token, so a reader that was cut off knows where to go on.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from inference.openai import errors
from inference.openai.answers import Choice, Head, Shape, usage
from inference.token_reader import TokenReader
from inference.token_stream import StreamedToken

# A comment this often while nothing comes: proxies cut silent connections (nginx after 60 s, CDN edges after 100 s).
KEEP_ALIVE_SECONDS = 10.0
KEEP_ALIVE = b": waiting\n\n"
DONE = b"data: [DONE]\n\n"


def event(body: Any, event_id: str = "") -> bytes:
    """One server-sent event. JSON has no raw line breaks, so one data line is enough."""
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}data: {json.dumps(body, separators=(',', ':'))}\n\n".encode()


class Answer:
    """One request's answers while they grow. Raises ApiError from `batches` when one fails or nothing comes."""

    def __init__(self, reader: TokenReader, job_ids: Sequence[str], *, patience_seconds: float, next_index: int = 0):
        self.choices = [Choice(number) for number in range(len(job_ids))]
        self.job_ids = tuple(job_ids)
        self._reader = reader
        self._patience_seconds = patience_seconds
        self.next_index = next_index

    @property
    def open_ids(self) -> list[str]:
        """The generations that have not ended."""
        return [self.job_ids[choice.index] for choice in self.choices if choice.finish is None]

    async def batches(self) -> AsyncIterator[dict[int, list[StreamedToken]]]:
        """Tokens by choice as they come, until every choice has ended; an empty batch each KEEP_ALIVE_SECONDS."""
        idle = 0.0
        async with self._reader.follow(*self.job_ids, next_index=self.next_index) as following:
            while self.open_ids:
                batch: dict[int, list[StreamedToken]] = {}
                for number, token in await following.take(min(KEEP_ALIVE_SECONDS, self._patience_seconds)):
                    batch.setdefault(number, []).append(token)
                    self.choices[number].add(token)
                    if token.finish == "error":
                        raise errors.generation_failed(token.error)
                idle = 0.0 if batch else idle + KEEP_ALIVE_SECONDS
                if idle >= self._patience_seconds:
                    raise errors.no_progress(self._patience_seconds)
                yield batch


async def streamed(answer: Answer, shape: Shape, head: Head, *, usage_of_prompt: int | None) -> AsyncGenerator[bytes]:
    """The events of a streamed answer; an error becomes the last event. usage_of_prompt: None: usage is not wanted."""
    fields = head.fields(shape.chunk_kind)
    if usage_of_prompt is not None:
        fields["usage"] = None
    opening = [
        event({**fields, "choices": [entry]}) for choice in answer.choices for entry in shape.opening(choice.index)
    ]
    if opening:
        yield b"".join(opening)
    try:
        async for batch in answer.batches():
            made = []
            for number, tokens in batch.items():
                event_id = f"{answer.job_ids[number]}:{tokens[-1].index}"
                entries = shape.chunks(answer.choices[number], tokens)
                made += [event({**fields, "choices": [entry]}, event_id) for entry in entries]
            if made or not batch:
                yield b"".join(made) or KEEP_ALIVE
    except errors.ApiError as error:
        yield event(error.body())
        return
    if usage_of_prompt is not None:
        yield event({**fields, "choices": [], "usage": usage(usage_of_prompt, answer.choices)})
    yield DONE


async def whole(answer: Answer, shape: Shape, head: Head, prompt_tokens: int) -> dict[str, Any]:
    """The body of an answer that is not streamed; raises ApiError."""
    async for _ in answer.batches():
        pass
    return {
        **head.fields(shape.kind),
        "choices": [shape.answer(choice) for choice in answer.choices],
        "usage": usage(prompt_tokens, answer.choices),
    }


async def raw(answer: Answer) -> AsyncGenerator[bytes]:
    """The tokens of one generation as they are stored: what a reader that comes back gets."""
    try:
        async for batch in answer.batches():
            yield b"".join(_raw_event(answer, token) for token in batch.get(0, [])) or KEEP_ALIVE
    except errors.ApiError as error:
        yield event(error.body())
        return
    yield DONE


def _raw_event(answer: Answer, token: StreamedToken) -> bytes:
    generation = answer.job_ids[0]
    # A reader that has seen the last token, but not that it was the last, gets it again without its text.
    text = token.text if token.index >= answer.next_index else ""
    body = {
        "object": "generation.token",
        "generation": generation,
        "index": token.index,
        "token": token.token,
        "text": text,
        "finish_reason": token.finish or None,
    }
    return event(body, f"{generation}:{token.index}")
