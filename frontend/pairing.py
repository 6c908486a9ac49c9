"""How a device is paired: a link, and the same link as a QR code, that make a browser tab act as a registered device.

The token stands in the link's fragment, which browsers never send: no server, proxy or log sees it.
"""

from dataclasses import dataclass
from urllib.parse import quote

import segno
from django.conf import settings
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

# Level M survives a scratched or tilted screen (15% of the code); a link of 90 letters then has 37 x 37 squares.
ERROR_LEVEL = "m"
QUIET_SQUARES = 4


@dataclass(frozen=True)
class Pairing:
    """link: the page that lends, with the token; svg: its QR code, ready to be put into a page."""

    link: str
    svg: SafeString


def pairing(token: str, server_url: str = "") -> Pairing:
    """server_url: the address at which the device reaches the server, PUBLIC_URL unless given."""
    link = pairing_link(token, server_url or settings.PUBLIC_URL)
    return Pairing(link, qr_svg(link, "QR code of the link that lends with a phone"))


def pairing_link(token: str, server_url: str) -> str:
    """`https://swarm.example/worker#token=...`"""
    return f"{server_url.rstrip('/')}{reverse('worker')}#token={quote(token, safe='')}"


def invite_link(code: str, server_url: str) -> str:
    """`https://swarm.example/worker#invite=...`: the page that lends, for somebody who has no device here yet."""
    return f"{server_url.rstrip('/')}{reverse('worker')}#invite={quote(code, safe='')}"


def qr_svg(text: str, title: str) -> SafeString:
    """An inline SVG without scripts or styles, so that a strict content security policy lets it through.

    Dark squares on white in every colour scheme: many readers do not understand an inverted code.
    """
    code = segno.make_qr(text, error=ERROR_LEVEL)
    svg = code.svg_inline(
        border=QUIET_SQUARES, dark="#000", light="#fff", omitsize=True, svgclass="qr", lineclass=None, title=title
    )
    return mark_safe(svg.replace("<svg ", '<svg role="img" ', 1))
