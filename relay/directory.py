"""The relays of one server, in Redis: every relay process writes its addresses, backbones and relays read all of them.

One hash with a field per boot of a process, which counts until TTL_SECONDS after its last word, by the clock of Redis.
An address may stand there twice for a moment, when a process was started again: readers see it once.
"""

import json
import logging
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from time import monotonic

import redis

from relay.addresses import MAX_ADDRESSES, is_relay_url
from relay.outage import Outage

logger = logging.getLogger(__name__)

KEY = "relay.processes"
TTL_SECONDS = 15
REFRESH_SECONDS = 4.0
WATCH_SECONDS = 2.0
FALLBACK_SECONDS = 6.0
# All addresses together in a WELCOME, whose body has at most 4 KiB.
MAX_PUBLIC_LENGTH = 3000


@dataclass(frozen=True)
class RelayProcess:
    """`address`: where backbones dial this very process. `public_url`: where workers do. `boot`: new at every start."""

    boot: str
    address: str
    public_url: str


def register(client: "redis.Redis", process: RelayProcess) -> None:
    """Says that the process is there, for TTL_SECONDS; takes out who said so too long ago. Raises redis.RedisError."""
    now, texts = _read_all(client)
    stale = [boot for boot, text in texts.items() if _until(text) < now]
    with client.pipeline() as pipeline:
        pipeline.hset(KEY, process.boot, json.dumps({**asdict(process), "until": now + TTL_SECONDS}))
        pipeline.expire(KEY, TTL_SECONDS)
        if stale:
            pipeline.hdel(KEY, *stale)
        pipeline.execute()


def withdraw(client: "redis.Redis", boot: str) -> None:
    """The process stops: nobody has to wait until its word is too old. Raises redis.RedisError."""
    client.hdel(KEY, boot)


def processes(client: "redis.Redis") -> list[RelayProcess]:
    """All that spoke within TTL_SECONDS, in the order of their addresses. Raises redis.RedisError."""
    now, texts = _read_all(client)
    found = [_read(text) for text in texts.values() if _until(text) >= now]
    return sorted((one for one in found if one is not None), key=lambda one: (one.address, one.boot))


def _read_all(client: "redis.Redis") -> tuple[float, dict[bytes, bytes]]:
    """The time of Redis, and what every boot wrote."""
    with client.pipeline(transaction=False) as pipeline:
        pipeline.time()
        pipeline.hgetall(KEY)
        (seconds, microseconds), texts = pipeline.execute()
    return seconds + microseconds / 1e6, texts


def _until(text: bytes) -> float:
    """When the word is too old; 0 for what a newer or a broken version wrote."""
    try:
        return float(json.loads(text)["until"])
    except (ValueError, KeyError, TypeError):
        return 0.0


def _read(text: bytes) -> RelayProcess | None:
    """None for what a newer or a broken version wrote."""
    try:
        data = json.loads(text)
        process = RelayProcess(*(str(data[name]) for name in ("boot", "address", "public_url")))
    except (ValueError, KeyError, TypeError):
        return None
    return process if is_relay_url(process.address) else None


def addresses(found: Iterable[RelayProcess]) -> tuple[str, ...]:
    """What a backbone dials, each address once."""
    return tuple(dict.fromkeys(process.address for process in found))


def public_urls(found: Iterable[RelayProcess]) -> tuple[str, ...]:
    """What a worker may dial, each address once, no more than a WELCOME can carry."""
    urls: list[str] = []
    length = 0
    for url in dict.fromkeys(process.public_url for process in found if is_relay_url(process.public_url)):
        length += len(url)
        if length > MAX_PUBLIC_LENGTH or len(urls) >= MAX_ADDRESSES:
            break
        urls.append(url)
    return tuple(urls)


class Registrar:
    """Keeps this process registered, and knows the others' public addresses. One thread; Redis may come and go."""

    def __init__(self, client: "redis.Redis", address: str, public_url: str) -> None:
        self.process = RelayProcess(secrets.token_hex(8), address, public_url or address)
        self.public_urls: tuple[str, ...] = public_urls([self.process])
        self._redis = client
        self._outage = Outage(logger, "Redis, where relays register,")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay-registrar", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Withdraws the registration."""
        self._stopping.set()
        self._thread.join(REFRESH_SECONDS)
        try:
            withdraw(self._redis, self.process.boot)
        except redis.RedisError as error:
            logger.warning("the relay stays registered for %d s: %s", TTL_SECONDS, error)

    def refresh(self) -> None:
        """One word to Redis and one look at the others. Raises redis.RedisError."""
        register(self._redis, self.process)
        self.public_urls = public_urls(processes(self._redis)) or self.public_urls

    def _run(self) -> None:
        while True:
            try:
                self.refresh()
            except redis.RedisError as error:
                self._outage.failed(error)
            else:
                self._outage.answered()
            if self._stopping.wait(REFRESH_SECONDS):
                return


class DirectoryWatch:
    """Calls `on_change(addresses)`, in its thread, when other relays than before are registered.

    A relay that is no longer registered is kept for another TTL_SECONDS, and for as long as none is: Redis may have
    been restarted, and the relays come back one by one. While nobody ever registered, `fallback` is used after
    FALLBACK_SECONDS.
    """

    def __init__(self, client: "redis.Redis", fallback: str, on_change: Callable[[tuple[str, ...]], None]) -> None:
        self._redis = client
        self._fallback = fallback
        self._on_change = on_change
        self._seen: dict[str, float] = {}
        self._known: tuple[str, ...] = ()
        self._began = monotonic()
        self._outage = Outage(logger, "Redis, where relays are registered,")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay-directory", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def look(self, now: float) -> None:
        """One look, at monotonic time `now`. Raises redis.RedisError."""
        registered = addresses(processes(self._redis))
        self._seen |= dict.fromkeys(registered, now)
        if registered:
            self._seen = {url: seen for url, seen in self._seen.items() if now - seen <= TTL_SECONDS}
        found = tuple(sorted(self._seen))
        if not found and now - self._began >= FALLBACK_SECONDS:
            found = (self._fallback,)
        if found != self._known:
            logger.info("relays: %s", ", ".join(found))
            self._known = found
            self._on_change(found)

    def _run(self) -> None:
        while True:
            try:
                self.look(monotonic())
            except redis.RedisError as error:
                self._outage.failed(error)
            else:
                self._outage.answered()
            if self._stopping.wait(WATCH_SECONDS):
                return
