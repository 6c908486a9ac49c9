"""Writes tokens to Redis in a thread of its own: a lane must never wait for the network.

Under load it writes seldom and much: an entry costs this process, Redis, the web server and the reader about half a
millisecond together, whatever it holds, and on a small machine the engine shares its cores with all of them. So after a
write it waits, the longer the more generations are running, and sends what has gathered. One reader alone gets every
token as it comes, 16 get theirs eight times a second, 64 four times. First tokens and ends never wait.
docs/decisions/0009 has the measurements.
"""

import logging
import queue
import threading
import time

import redis

from inference import token_stream
from inference.token_stream import StreamedToken

logger = logging.getLogger(__name__)

Entry = tuple[str, StreamedToken]

MOST_TOKENS = 1024
PAUSE_PER_GENERATION_SECONDS = 0.008
LONGEST_PAUSE_SECONDS = 0.25
RETRY_SECONDS = 0.5


class TokenWriter:
    def __init__(self, client: "redis.Redis") -> None:
        self._client = client
        self._queue: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._urgent = threading.Event()
        self._thread = threading.Thread(target=self._run, name="token-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when everything queued is written."""
        self._queue.put(None)
        self._urgent.set()
        self._thread.join()

    def put(self, generation_id: str, token: StreamedToken) -> None:
        self._queue.put((generation_id, token))
        if token.index == 0 or token.finish:
            self._urgent.set()

    def _run(self) -> None:
        while True:
            gathered = [self._queue.get()]
            self._urgent.clear()
            while len(gathered) < MOST_TOKENS and not self._queue.empty():
                gathered.append(self._queue.get_nowait())
            entries = [entry for entry in gathered if entry is not None]
            self._write(entries)
            if len(entries) < len(gathered):
                return
            others = len({generation_id for generation_id, _ in entries}) - 1
            self._urgent.wait(min(LONGEST_PAUSE_SECONDS, PAUSE_PER_GENERATION_SECONDS * others))

    def _write(self, entries: list[Entry]) -> None:
        """Tries until Redis takes it: a lost entry would be a lost token. Order is kept, so later ones wait."""
        while entries:
            try:
                token_stream.append(self._client, entries)
                return
            except redis.RedisError as error:
                logger.warning("Redis does not take %d tokens (%s); trying again", len(entries), error)
                time.sleep(RETRY_SECONDS)
