"""Which request, task or generation a log line belongs to: bound around the work, read by `config.json_log`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_ids: ContextVar[Mapping[str, str] | None] = ContextVar("log_ids", default=None)


def current() -> Mapping[str, str]:
    return _ids.get() or {}


@contextmanager
def bound(**ids: str) -> Iterator[None]:
    """Lines of this block, and of the asyncio tasks made in it, carry these ids besides those bound already."""
    token = _ids.set({**current(), **ids})
    try:
        yield
    finally:
        _ids.reset(token)


def bind(**ids: str) -> None:
    """From now on, in this thread or task; for hooks that come in pairs."""
    _ids.set({**current(), **ids})


def forget(*names: str) -> None:
    _ids.set({name: value for name, value in current().items() if name not in names})
