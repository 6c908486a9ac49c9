"""Numbers as people read them: bytes in decimal units, microcredits as credits."""

from django import template

register = template.Library()

MICROCREDITS_PER_CREDIT = 10**6


@register.filter
def size(count: int) -> str:
    """Bytes in the unit that fits: 110592 -> "111 kB", 5308416 -> "5.3 MB"."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 99.95 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


@register.filter
def credits(microcredits: int) -> str:
    """Microcredits as credits, with as many digits as such a small number needs."""
    return f"{microcredits / MICROCREDITS_PER_CREDIT:.6f}".rstrip("0").rstrip(".")


@register.filter
def percent(share: float) -> str:
    """Rounded down: 100% means all."""
    return f"{int(100 * share)}%"
