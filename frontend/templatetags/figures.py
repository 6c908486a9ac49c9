"""Measured numbers as people read them: three digits that mean something, a dash where nothing is known."""

from django import template

register = template.Library()

UNKNOWN = "–"


@register.filter
def figure(value: float | None) -> str:
    """1234567.8 -> "1,234,568", 12.345 -> "12.3", 0.012345 -> "0.0123", None -> "–"."""
    if value is None:
        return UNKNOWN
    if value == int(value):
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
