"""The ASGI application of the rig: the relay's consumer, behind a door that believes what a token says.

Started as `inference.benchmarks.rig.door:application`. A worker's token is JSON, {"node": name, "held": [[first, last,
layer, layer ...], ...]}: the market's part is no part of these figures, and no address outside of this machine reaches
it.
"""

import json
from typing import Any

from channels.routing import ProtocolTypeRouter, URLRouter
from django.urls import path

from inference.benchmarks.relay.names import BUILD, SHA256
from inference.benchmarks.relay.server import OpenDoor
from inference.benchmarks.rig.placement import FENCE
from relay.admission import Claim, Node, Standing
from relay.connection import Timing
from relay.consumers import RelayConsumer
from relay.roster import Roster


def claims_of(held: list[list[int]]) -> list[Claim]:
    """The leases of a token, whose runs are [first, last, layer, layer ...]: numbered by run, then by layer."""
    places = sorted((first, last, layer) for first, last, *layers in held for layer in layers)
    return [
        Claim(number, BUILD, layer, first, last, FENCE, "live", SHA256)
        for number, (first, last, layer) in enumerate(places, start=1)
    ]


class TrustingDoor(OpenDoor):
    async def standing(self, token: str) -> Standing | None:
        said = json.loads(token)
        return Standing(Node(said["node"], said["node"], suspended=False), claims_of(said["held"]))


_relay = RelayConsumer.as_asgi(roster=Roster(), authenticator=TrustingDoor(), timing=Timing(10.0, 15.0))
# Channels' router takes any ASGI application; Django's types know views only.
_routes: list[Any] = [path("relay/", _relay)]
application = ProtocolTypeRouter({"websocket": URLRouter(_routes)})
