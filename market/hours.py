"""Caps are per clock hour: what a claim may earn in which hour. Pure.

A claim that begins within an hour may earn the part of its cap that is left of that hour. So a claim that ends and the
one that follows it share one hour's money, and the budget lasts however often devices come and go.
"""

from datetime import datetime, timedelta

SECONDS_PER_HOUR = 3600


def start_of_hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def hour_of(moment: datetime) -> datetime:
    """The full hour that a window belongs to: the one in which it ends, its last instant left out of the next."""
    full = start_of_hour(moment)
    return full if moment > full else full - timedelta(hours=1)


def first_hour_allowance(cap_microcredits_per_hour: int, granted_at: datetime) -> int:
    """What a claim may earn in the clock hour in which it was granted: its cap x what is left of the hour."""
    gone = granted_at.minute * 60 + granted_at.second
    return cap_microcredits_per_hour * (SECONDS_PER_HOUR - gone) // SECONDS_PER_HOUR


def allowance(
    cap_microcredits_per_hour: int, first_hour_microcredits: int, granted_at: datetime, hour: datetime
) -> int:
    """What a claim may earn in the clock hour that begins at `hour`."""
    return first_hour_microcredits if start_of_hour(granted_at) == hour else cap_microcredits_per_hour
