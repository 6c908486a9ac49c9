"""Text of a growing answer: bytes of tokens in, whole characters out, stop strings never shown.

Knows bytes and strings; nothing of models. What it emits depends on the bytes alone, so a resumed request that is fed
the tokens of its earlier attempt continues with the right text.
"""

import codecs
from collections.abc import Sequence


class TokenText:
    """Turns token pieces into text increments, never half a UTF-8 character, withholding what may be a stop string."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = tuple(stop)
        self._longest = max((len(text) for text in self._stop), default=0)
        self._withheld = ""
        self.stopped = False

    def feed(self, piece: bytes) -> str:
        """The text that is certain after one more token. `stopped` is true once a stop string is complete."""
        return self._release(self._decoder.decode(piece))

    def finish(self) -> str:
        """What is still withheld when the answer ends for another reason; a broken last character becomes U+FFFD."""
        text = self._release(self._decoder.decode(b"", final=True)) + self._withheld
        self._withheld = ""
        return text

    def _release(self, text: str) -> str:
        if self.stopped:
            return ""
        text = self._withheld + text
        found = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            # The one that is complete first, so that the cut does not depend on where tokens end.
            self.stopped, self._withheld = True, ""
            return text[: min(found)[1]]
        keep = self._undecided(text)
        self._withheld = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _undecided(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        for length in range(min(len(text), self._longest - 1), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stop):
                return length
        return 0
