"""Expert workers, many to a process: `python -m inference.benchmarks.rig.crowd LISTING MODEL`.

Each has a session, a computing thread and a row budget of its own: the worker's code below its market client. Workers
of one process share the kernel of a range and its lock, so together they take one core at most. LISTING is a JSON list
of members (`placement.Member`). Prints one line when all are dialling; ends when standard input is closed.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from inference.benchmarks.relay.names import BUILD, SHA256
from inference.benchmarks.rig.placement import FENCE, Member
from inference.benchmarks.rig.ranges import MappedRanges
from inference.gguf_index import ModelIndex, open_index
from inference.kernel import CpuRuntime, GgmlKernel, kernel_class_name
from inference.verify.local_swarm import Range
from inference.worker.holdings import Holding, Holdings
from inference.worker.market_client import Claim
from inference.worker.relay_link import RelayLink
from relay.records import TOKEN_LIMIT


class Kernels:
    """Open kernels by range."""

    def __init__(self, index: ModelIndex) -> None:
        self._ranges, self._runtime = MappedRanges(index), CpuRuntime(threads=1)
        self._open: dict[Range, GgmlKernel] = {}

    def kernel(self, held: Range) -> GgmlKernel:
        if held not in self._open:
            self._open[held] = GgmlKernel(self._ranges.slice_of(held), self._runtime)
        return self._open[held]


def holdings_of(member: Member, kernels: Kernels) -> Holdings:
    holdings = Holdings()
    for number, held in enumerate(sorted(member.held, key=lambda one: (one.first, one.last, one.layer)), start=1):
        claim = Claim(
            claim_id=number, build=BUILD, layer=held.layer, first=held.first, last=held.last, fence=FENCE,
            size_bytes=0, slice_url="", manifest_url="", rate_microcredits_per_hour=0, live=True,
        )  # fmt: skip
        holdings.add(Holding(claim, SHA256, kernels.kernel(held)))
    return holdings


def token_of(member: Member) -> str:
    """What the door reads. Raises ValueError where it would be longer than a relay lets a token be.

    Layers of the same run stand together: the workers of a deep model hold one run of each of 48 layers.
    """
    layers: dict[tuple[int, int], list[int]] = {}
    for held in member.held:
        layers.setdefault((held.first, held.last), []).append(held.layer)
    runs = [[first, last, *numbers] for (first, last), numbers in layers.items()]
    token = json.dumps({"node": member.name, "held": runs}, separators=(",", ":"))
    if len(token) > TOKEN_LIMIT:
        raise ValueError(f"{member.name} holds too many different runs for a token of {TOKEN_LIMIT} characters")
    return token


async def serve(members: Sequence[Member], kernels: Kernels) -> None:
    links = []
    for member in members:
        holdings = holdings_of(member, kernels)
        kernel_class = kernel_class_name()
        link = RelayLink(member.url, member.name, kernel_class, holdings, rows_per_second=member.rows_per_second)
        link.update(token_of(member))
        links.append(link)
    print(json.dumps({"ready": len(links)}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for link in links:
        await link.close()


def main(listing: str, model: str) -> None:
    logging.basicConfig(level=logging.ERROR)
    members = [Member.from_json(body) for body in json.loads(Path(listing).read_text())]
    asyncio.run(serve(members, Kernels(open_index(Path(model)))))


if __name__ == "__main__":
    main(*sys.argv[1:3])
