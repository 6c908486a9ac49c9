"""Fills a fresh database for the live tests, as a process of its own: `python -m tests.relay.market_day COMMAND`.

`open` migrates, publishes the build, enrols Bob and Carol, grants each a claim and prints them as JSON;
`suspend NODE` suspends a node.
"""

import json
import sys

import django
from django.core.management import call_command

from tests.relay.builders import BUILD, SHA256


def open_market() -> None:
    from market import commands
    from market.builds import BuildDescription

    call_command("migrate", verbosity=0)
    layers = (3, 4)
    commands.publish_build(
        BuildDescription(BUILD, "toy", "toymoe", 256, 512, 32, 4, layers, (200_000,) * 2, (("Q4_K",) * 3,) * 2)
    )
    nodes = {}
    for name, first in (("Bob", 0), ("Carol", 8)):
        node_id, token = commands.register_node(name, "numpy", 100_000_000)
        (claim,) = commands.claim_ranges(node_id, [commands.RangeWish(3, first, first + 8)], BUILD)
        commands.record_delivery(node_id, claim.claim_id, claim.fence, SHA256)
        replica = {
            "claim_id": claim.claim_id,
            "fence": claim.fence,
            "layer": claim.layer,
            "first": claim.first,
            "last": claim.last,
            "sha256": SHA256,
        }
        nodes[name.lower()] = {"node_id": node_id, "token": token, "replicas": [replica]}
    print(json.dumps(nodes))


def suspend(node_id: str) -> None:
    from market import commands

    commands.suspend_node(node_id, by="tests", reason="a test wished so")


if __name__ == "__main__":
    django.setup()
    if sys.argv[1] == "open":
        open_market()
    else:
        suspend(sys.argv[2])
