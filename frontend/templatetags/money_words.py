"""`{{ batch.state|word }}`: a stored word of the market in the visitor's language."""

from django import template

from frontend.payouts.words import ALL, HINTS, LABELS

register = template.Library()


@register.filter
def word(stored: str) -> str:
    return str(ALL.get(stored, stored))


@register.filter
def label(name: str) -> str:
    return str(LABELS.get(name, name))


@register.filter
def hint(name: str) -> str:
    return str(HINTS.get(name, ""))
