import random

import pytest

from inference.byte_range import Span, requested_span

SIZE, LIMIT = 1000, 100


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-9", Span(0, 10)),
        ("bytes=0-0", Span(0, 1)),
        ("BYTES = 5-6", Span(5, 7)),
        ("bytes=990-", Span(990, 1000)),
        ("bytes=990-5000", Span(990, 1000)),
        ("bytes=999-999", Span(999, 1000)),
        ("bytes=-1", Span(999, 1000)),
        ("bytes=-10", Span(990, 1000)),
        ("bytes=1000-", "unsatisfiable"),
        ("bytes=1000-2000", "unsatisfiable"),
        ("bytes=-0", "unsatisfiable"),
        ("bytes=5000-, -0", "unsatisfiable"),
    ],
)
def test_one_range_is_answered_exactly(header: str, expected: object) -> None:
    assert requested_span(header, SIZE, LIMIT) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-999", Span(0, 100)),
        ("bytes=50-", Span(50, 150)),
        ("bytes=-900", Span(100, 200)),
        ("bytes=2000-3000, 5-6, 8-9", Span(5, 7)),
        ("bytes=0-999,0-999,0-999", Span(0, 100)),
    ],
)
def test_a_wide_range_or_several_are_answered_in_part(header: str, expected: Span) -> None:
    assert requested_span(header, SIZE, LIMIT) == expected


@pytest.mark.parametrize(
    "header",
    [None, "", "bytes", "bytes=", "bytes=,", "items=0-9", "bytes=-", "bytes=9-5", "bytes=a-b", "bytes=0-9,x"],
)
def test_what_is_not_a_byte_range_is_ignored(header: str | None) -> None:
    assert requested_span(header, SIZE, LIMIT) is None


@pytest.mark.parametrize("range_text", ["1", "0x1-2", "+1-2", "١-٢", "1-2-3", "1_0-20", f"{'9' * 30}-"])
def test_odd_numbers_are_no_range(range_text: str) -> None:
    assert requested_span(f"bytes={range_text}", SIZE, LIMIT) is None


def test_whatever_is_sent_the_span_lies_inside_and_is_not_wide() -> None:
    dice = random.Random(3)
    for _ in range(5000):
        header = "bytes=" + "".join(dice.choice("0123456789-, ") for _ in range(dice.randrange(16)))

        span = requested_span(header, SIZE, LIMIT)

        if isinstance(span, Span):
            assert 0 <= span.start < span.stop <= SIZE
            assert span.stop - span.start <= LIMIT
