"""`{% pairing token %}`: the link and the QR code that make a phone's browser lend as the device of that token."""

from django import template

from frontend.pairing import Pairing
from frontend.pairing import pairing as paired

register = template.Library()


@register.inclusion_tag("frontend/_pairing.html")
def pairing(token: str, server_url: str = "") -> dict[str, Pairing]:
    return {"pairing": paired(token, server_url)}
