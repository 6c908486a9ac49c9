"""The event store in memory: places events as `market.store` does, and folds each at once."""

from collections.abc import Iterable
from datetime import datetime

from market import events as e
from market import fold
from market.claim_rules import Purse
from market.hours import hour_of, start_of_hour
from market.policy import Policy


class EventLog:
    """state: the fold of everything appended. The sums of the purse are kept up to date beside it.

    history: None, or a list that is given every event.
    """

    def __init__(self, policy: Policy) -> None:
        self.state = fold.State()
        self.policy = policy
        self.last_claim_id = 0
        self.history: list[e.Recorded] | None = None
        self.spent_by_hour: dict[datetime, int] = {}
        self.greatest_reserved = 0
        self._reserved = 0
        self._hour: datetime | None = None
        self._unreachable = 0
        self._earned_by_ended = 0

    def append(self, events: Iterable[e.Event]) -> None:
        first = self.state.position + 1
        for event in events:
            stream = e.stream_of(event)
            version = self.state.versions.get(stream, 0) + 1
            self._before(event)
            recorded = e.Recorded(self.state.position + 1, stream, version, first, event)
            fold.apply(self.state, recorded)
            if self.history is not None:
                self.history.append(recorded)

    def purse(self, now: datetime) -> Purse:
        """What `market.snapshots.purse` reads from the tables."""
        self._turn_to(start_of_hour(now))
        owed = self._reserved - self._unreachable + self._earned_by_ended
        return Purse(self.policy.budget_microcredits_per_hour, self._reserved, owed, now)

    def _turn_to(self, hour: datetime) -> None:
        if hour != self._hour:
            self._hour, self._unreachable, self._earned_by_ended = hour, 0, 0

    def _before(self, event: e.Event) -> None:
        match event:
            case e.ClaimGranted():
                self._turn_to(start_of_hour(event.at))
                self.last_claim_id = max(self.last_claim_id, event.claim_id)
                self._change(event.cap_microcredits_per_hour, fold.granted_claim(event).first_hour_microcredits)
                self.greatest_reserved = max(self.greatest_reserved, self._reserved)
            case e.ClaimReleased() | e.ClaimExpired():
                self._end(event.claim_id, start_of_hour(event.at))
            case e.WorkCredited():
                hour = hour_of(event.window_end)
                paid = sum(line.amount_microcredits for line in event.work)
                self.spent_by_hour[hour] = self.spent_by_hour.get(hour, 0) + paid

    def _change(self, cap: int, first_hour: int) -> None:
        self._reserved += cap
        self._unreachable += cap - first_hour

    def _end(self, claim_id: int, hour: datetime) -> None:
        self._turn_to(hour)
        claim = self.state.claims[claim_id]
        self._reserved -= claim.cap_microcredits_per_hour
        if start_of_hour(claim.granted_at) == hour:
            self._unreachable -= claim.cap_microcredits_per_hour - claim.first_hour_microcredits
        if claim.hour == hour:
            self._earned_by_ended += claim.hour_microcredits
