"""What a payout pays, account by account, beside what the last one paid. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NEW, GONE, SAME, CHANGED = "new", "gone", "same", "changed"
# A payment that grew or shrank this many times is worth a second look.
REMARKABLE = 3.0


@dataclass(frozen=True)
class Difference:
    """One account. amounts in microcredits; before None: not on the last payout; now 0: not on this one."""

    owner_id: str
    name: str
    devices: int
    now: int
    before: int | None

    @property
    def change(self) -> int:
        return self.now - (self.before or 0)

    @property
    def kind(self) -> str:
        if self.before is None:
            return NEW
        if self.now == 0:
            return GONE
        return SAME if self.change == 0 else CHANGED

    @property
    def is_remarkable(self) -> bool:
        """New, gone, or at least REMARKABLE times more or less than last time."""
        if self.before is None or self.now == 0 or self.before == 0:
            return True
        ratio = self.now / self.before
        return ratio >= REMARKABLE or ratio <= 1 / REMARKABLE


def differences(
    now: Mapping[str, int], before: Mapping[str, int], owner_of: Mapping[str, str], names: Mapping[str, str]
) -> list[Difference]:
    """now, before: microcredits by node; owner_of: account by node. Largest change first, then by account."""
    amounts, last = by_owner(now, owner_of), by_owner(before, owner_of)
    devices: dict[str, int] = defaultdict(int)
    for node_id in now:
        devices[owner_of.get(node_id, node_id)] += 1
    found = [
        Difference(owner, names.get(owner, ""), devices.get(owner, 0), amounts.get(owner, 0), last.get(owner))
        for owner in amounts.keys() | last.keys()
    ]
    return sorted(found, key=lambda one: (-abs(one.change), one.owner_id))


def by_owner(amounts: Mapping[str, int], owner_of: Mapping[str, str]) -> dict[str, int]:
    """Sums per account; a node without one stands for itself."""
    sums: dict[str, int] = defaultdict(int)
    for node_id, amount in amounts.items():
        sums[owner_of.get(node_id) or node_id] += amount
    return dict(sums)


def totals(found: Iterable[Difference]) -> tuple[int, int]:
    """(now, before) over all accounts."""
    rows = list(found)
    return sum(one.now for one in rows), sum(one.before or 0 for one in rows)
