"""frontend/templatetags/amounts.py: numbers as people read them."""

import pytest

from frontend.templatetags import amounts


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (110_592, "111 kB"), (884_736, "885 kB"), (5_308_416, "5.3 MB"),
        (42_000_000, "42.0 MB"), (999_600_000, "1.0 GB"), (74_450_000_000, "74.5 GB"), (5 * 10**12, "5.0 TB"),
    ],
)  # fmt: skip
def test_sizes_have_the_unit_that_fits(count: int, text: str) -> None:
    assert amounts.size(count) == text


@pytest.mark.parametrize(
    ("microcredits", "text"), [(0, "0"), (1, "0.000001"), (1_500_000, "1.5"), (-250_000, "-0.25"), (10**12, "1000000")]
)
def test_microcredits_are_shown_as_credits_without_loss(microcredits: int, text: str) -> None:
    assert amounts.credits(microcredits) == text


@pytest.mark.parametrize(("share", "text"), [(0.0, "0%"), (0.999, "99%"), (1.0, "100%")])
def test_percent_is_rounded_down(share: float, text: str) -> None:
    assert amounts.percent(share) == text
