"""Tokens on their way to readers: one Redis stream per generation, entries of (attempt, index, token, text, finish).

An entry holds one token or several that were written together. A restarted generation writes under a higher attempt
and continues at the next index, so a reader that drops lower attempts and indexes it has seen neither loses nor doubles
a token, whenever it connects.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from inference.row_places import Places

KEEP_SECONDS = 3600
CANCEL_CHANNEL = "generations.cancel"


@dataclass(frozen=True)
class StreamedToken:
    """One entry. token: its id, -1 in an entry that only carries `finish`; text: what it adds to the answer;
    finish: empty, or stop, length, cancelled, error; top: ((token, text, logprob), ...) and
    places, where its rows were computed, when asked for."""

    attempt: int
    index: int
    token: int
    text: str
    finish: str = ""
    logprob: float | None = None
    top: tuple[tuple[int, str, float], ...] = ()
    error: str = ""
    places: Places | None = None


# One field per entry: every field costs each of writer, Redis and reader more than the JSON of several tokens.
FIELD = "tokens"
DEFAULTS = ("", None, (), "", None)  # of finish, logprob, top, error, places: left out at the end of a token's list


def pack(tokens: Iterable[StreamedToken]) -> dict[Any, Any]:
    """The fields of one entry."""
    return {FIELD: json.dumps([_values(token) for token in tokens], separators=(",", ":"))}


def unpack(fields: dict[bytes, bytes]) -> list[StreamedToken]:
    return [_token(*values) for values in json.loads(fields[FIELD.encode()])]


def _values(token: StreamedToken) -> list[Any]:
    values = [token.attempt, token.index, token.token, token.text]
    optional = [token.finish, token.logprob, token.top, token.error, token.places]
    while optional and optional[-1] == DEFAULTS[len(optional) - 1]:
        optional.pop()
    return values + optional


def _token(
    attempt: int,
    index: int,
    token: int,
    text: str,
    finish: str = "",
    logprob: float | None = None,
    top: Iterable[tuple[int, str, float]] = (),
    error: str = "",
    places: Iterable[int] | None = None,
) -> StreamedToken:
    alternatives = tuple((t, s, p) for t, s, p in top)
    where = None
    if places is not None:
        remote, hot, other = places
        where = (remote, hot, other)
    return StreamedToken(attempt, index, token, text, finish, logprob, alternatives, error, where)


def stream_key(generation_id: str) -> str:
    return f"generation:{generation_id}:tokens"


def cancel_key(generation_id: str) -> str:
    return f"generation:{generation_id}:cancel"


class FreshTokens:
    """Drops what a reader has seen: lower attempts, and indexes below the next one."""

    def __init__(self, next_index: int = 0) -> None:
        self.attempt = 0
        self.next_index = next_index

    def admit(self, token: StreamedToken) -> bool:
        """Whether the entry is new; remembers it."""
        if token.attempt < self.attempt:
            return False
        self.attempt = token.attempt
        if token.finish:
            self.next_index = max(self.next_index, token.index + 1)
            return True
        if token.index < self.next_index:
            return False
        self.next_index = token.index + 1
        return True


def append(client: "redis.Redis", entries: Sequence[tuple[str, StreamedToken]]) -> None:
    """Writes (generation id, token) pairs in one round trip, tokens of the same generation as one entry.

    As one transaction: a reader that waits on all streams is then woken once, by all of them.
    """
    of_generation: dict[str, list[StreamedToken]] = {}
    for generation_id, token in entries:
        of_generation.setdefault(generation_id, []).append(token)
    with client.pipeline(transaction=True) as pipeline:
        for generation_id, tokens in of_generation.items():
            key = stream_key(generation_id)
            pipeline.xadd(key, pack(tokens))
            if tokens[0].index == 0 or tokens[-1].finish:
                pipeline.expire(key, KEEP_SECONDS)
        pipeline.execute()


def stored(client: "redis.Redis", generation_id: str) -> list[StreamedToken]:
    """What earlier attempts have written, without doubles, in order."""
    fresh = FreshTokens()
    entries: Any = client.xrange(stream_key(generation_id))
    return [token for _, fields in entries for token in unpack(fields) if fresh.admit(token)]


def may_be_asked_again(client: "redis.Redis", generation_id: str, pause_seconds: float) -> bool:
    """Whether a generation that waits is put into the queue once more: yes, but not again within the pause."""
    return bool(client.set(f"generation:{generation_id}:asked", 1, nx=True, ex=int(pause_seconds)))


def request_cancel(client: "redis.Redis", generation_id: str) -> None:
    """Asks whoever runs the generation to stop; the key serves a backbone that takes it later."""
    client.set(cancel_key(generation_id), 1, ex=KEEP_SECONDS)
    client.publish(CANCEL_CHANNEL, generation_id)


def is_cancelled(client: "redis.Redis", generation_id: str) -> bool:
    return bool(client.exists(cancel_key(generation_id)))


def read(client: "redis.Redis", generation_id: str, timeout_seconds: float) -> Iterator[StreamedToken]:
    """New tokens until the finish; raises TimeoutError when none comes for `timeout_seconds`."""
    fresh, position = FreshTokens(), "0"
    while True:
        answer: Any = client.xread({stream_key(generation_id): position}, block=int(timeout_seconds * 1000))
        if not answer:
            raise TimeoutError(f"no token of generation {generation_id} in {timeout_seconds:.0f} s")
        entries = _entries(answer)
        position = entries[-1][0]
        for token in (token for _, fields in entries for token in unpack(fields)):
            if fresh.admit(token):
                yield token
                if token.finish:
                    return


def _entries(answer: Any) -> list[tuple[str, dict[bytes, bytes]]]:
    """XREAD's answer for one stream: a list of [key, entries] (RESP2) or a dict of key to [entries] (RESP3)."""
    entries = next(iter(answer.values()))[0] if isinstance(answer, dict) else answer[0][1]
    return [(position.decode(), fields) for position, fields in entries]
