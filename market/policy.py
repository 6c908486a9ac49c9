"""The operator's wishes that steer prices and placement. Pure."""

from dataclasses import dataclass

MICROCREDITS_PER_CREDIT = 1_000_000


@dataclass(frozen=True)
class Policy:
    """Before the first PolicyChanged event these defaults hold (the target comes from the settings).

    budget_microcredits_per_hour: the sum of all live claims' caps never exceeds it.
    price_ceiling_microcredits_per_teraflop: the most that 10^12 operations are ever paid.
    target_replicas: copies wanted of every expert before extra copies are worth anything much.
    maximum_replicas: copies of an expert beyond which no claim is granted.
    target_bytes_percent: experts in demand get a higher target while all targets together stay below this share of the
        bytes that devices hold; 0: every expert has the same target.
    standby_percent: share of its cap that a verified replica earns for being there, asked or not.
    """

    budget_microcredits_per_hour: int = 1_000 * MICROCREDITS_PER_CREDIT
    price_ceiling_microcredits_per_teraflop: int = 10 * MICROCREDITS_PER_CREDIT
    target_replicas: int = 1
    maximum_replicas: int = 8
    target_bytes_percent: int = 68
    standby_percent: int = 5

    def problem(self) -> str:
        """Why this policy cannot hold, or an empty text."""
        if self.budget_microcredits_per_hour < 0:
            return "the budget per hour must not be negative"
        if self.price_ceiling_microcredits_per_teraflop < 1:
            return "the price ceiling must be at least one microcredit"
        if not 1 <= self.target_replicas <= self.maximum_replicas <= 64:
            return "replicas must satisfy 1 <= target <= maximum <= 64"
        if not 0 <= self.target_bytes_percent <= 100 or not 0 <= self.standby_percent <= 100:
            return "percentages must be between 0 and 100"
        return ""
