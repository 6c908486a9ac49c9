"""The `Range` header for bytes (RFC 9110 section 14): a pure function from header text and size to one span."""

import re
from typing import Literal, NamedTuple

SPEC = re.compile(r"([0-9]{0,18})-([0-9]{0,18})")


class Span(NamedTuple):
    """Bytes [start, stop) of a representation; never empty."""

    start: int
    stop: int


def requested_span(header: str | None, size: int, limit: int) -> Span | Literal["unsatisfiable"] | None:
    """The bytes to answer with: None where the whole representation is asked for, at most `limit` bytes otherwise.

    A header of another unit or a broken one is ignored, as the RFC demands. A 206 may carry less than was asked for
    (section 15.3.7: a server may send only a subset, the answer says which): a wider range is cut to `limit`, and of
    several ranges the first that can be satisfied is sent.
    """
    unit, _, ranges = (header or "").partition("=")
    if unit.strip().lower() != "bytes":
        return None
    spans = [_span(text.strip(), size) for text in ranges.split(",") if text.strip()]
    if not spans or "broken" in spans:
        return None
    for span in spans:
        if isinstance(span, Span):
            return Span(span.start, min(span.stop, span.start + limit))
    return "unsatisfiable"


def _span(text: str, size: int) -> Span | Literal["broken", "unsatisfiable"]:
    match = SPEC.fullmatch(text)
    if match is None or not (match[1] or match[2]):
        return "broken"
    if not match[1]:
        length = min(int(match[2]), size)
        return Span(size - length, size) if length else "unsatisfiable"
    start = int(match[1])
    last = int(match[2]) if match[2] else size - 1
    if match[2] and last < start:
        return "broken"
    return Span(start, min(last + 1, size)) if start < size else "unsatisfiable"
