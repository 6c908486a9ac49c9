"""A progress bar on one line of a terminal; silent where nobody looks."""

from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

WIDTH = 24
# Called with (share done 0..1, what is being done).
Progress = Callable[[float, str], None]


class ProgressBar:
    """A `Progress`. Nothing is written when hidden or not on a terminal."""

    def __init__(self, stream: TextIO, *, hidden: bool = False) -> None:
        self._stream = stream
        self._shown = stream.isatty() and not hidden

    def __call__(self, share: float, text: str) -> None:
        if self._shown:
            done = round(WIDTH * min(max(share, 0.0), 1.0))
            self._stream.write(f"\r\x1b[K[{'#' * done}{'.' * (WIDTH - done)}] {share:4.0%} {text}")
            self._stream.flush()

    def clear(self) -> None:
        """Takes the bar away, so that a line can be printed."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
