"""Read models from nothing: the fold over all events becomes rows, which replace or are compared with the tables."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import models as django_models
from django.db import transaction
from django.db.models import Max

from market import projections, rows, store
from market.events import Recorded
from market.fold import State, fold
from market.ledger import SYSTEM_ACCOUNTS, TREASURY
from market.ledger_models import Forfeit, Hold, Incident, PayoutBatch, PayoutItem
from market.models import Balance, Build, Claim, CreditedRows, CurrentPolicy, Demand, Layer, Node, Posting
from market.models import Event as EventRow

BATCH = 500
Key = tuple[Any, ...]
Values = dict[str, Any]
Progress = Callable[[Iterator[Recorded], int], Iterator[Recorded]]


def _no_progress(history: Iterator[Recorded], _total: int) -> Iterator[Recorded]:
    return history


@dataclass(frozen=True)
class ReadModel:
    """A table, the row class of the fold that it mirrors, and where the fold keeps those rows."""

    table: type[django_models.Model]
    row: type[Any]
    rows: Callable[[State], list[Any]]
    convert: dict[str, Callable[[Any], Any]]

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(self.row.__slots__)

    def key(self, values: Values) -> Key:
        return tuple(values[name] for name in self.table.natural_key)  # type: ignore[attr-defined]

    def folded(self, state: State) -> dict[Key, Values]:
        """The rows that the table must hold, by natural key."""
        found = [{name: self._stored(name, getattr(row, name)) for name in self.fields} for row in self.rows(state)]
        return {self.key(values): values for values in found}

    def _stored(self, name: str, value: Any) -> Any:
        return self.convert[name](value) if name in self.convert else value

    def live(self) -> dict[Key, Values]:
        """The rows that the table holds, by natural key."""
        found = [
            {name: bytes(value) if name in self.convert else value for name, value in values.items()}
            for values in self.table._default_manager.values(*self.fields).iterator(BATCH)
        ]
        return {self.key(values): values for values in found}


READ_MODELS = (
    ReadModel(Build, rows.BuildRow, lambda state: list(state.builds.values()), {}),
    ReadModel(
        Layer, rows.LayerRow, lambda state: list(state.layers.values()), {"replicas": projections.replicas_to_bytes}
    ),
    ReadModel(Node, rows.NodeRow, lambda state: list(state.nodes.values()), {}),
    ReadModel(Claim, rows.ClaimRow, lambda state: list(state.claims.values()), {}),
    ReadModel(
        Demand,
        rows.DemandRow,
        lambda state: list(state.demand.values()),
        {"rows_per_hour": projections.demand_to_bytes},
    ),
    ReadModel(CreditedRows, rows.CreditedRowsRow, lambda state: list(state.credited.values()), {}),
    ReadModel(Posting, rows.PostingRow, lambda state: state.postings, {}),
    ReadModel(Balance, rows.BalanceRow, lambda state: list(state.balances.values()), {}),
    ReadModel(Hold, rows.HoldRow, lambda state: list(state.holds.values()), {}),
    ReadModel(Forfeit, rows.ForfeitRow, lambda state: list(state.forfeits.values()), {}),
    ReadModel(PayoutBatch, rows.PayoutBatchRow, lambda state: list(state.batches.values()), {}),
    ReadModel(PayoutItem, rows.PayoutItemRow, lambda state: list(state.items.values()), {}),
    ReadModel(Incident, rows.IncidentRow, lambda state: list(state.incidents.values()), {}),
    ReadModel(CurrentPolicy, rows.PolicyRow, lambda state: [state.policy] if state.policy else [], {}),
)


@dataclass(frozen=True)
class Difference:
    """A row that the tables and the replay do not agree on; None stands for a row that is not there."""

    table: str
    key: Key
    live: Values | None
    replayed: Values | None

    def __str__(self) -> str:
        where = f"{self.table} {'/'.join(map(str, self.key))}"
        if self.live is None:
            return f"{where}: missing in the table"
        if self.replayed is None:
            return f"{where}: only in the table"
        wrong = [name for name, value in self.replayed.items() if self.live[name] != value]
        return f"{where}: " + ", ".join(f"{n} is {self.live[n]!r}, replay says {self.replayed[n]!r}" for n in wrong)


@dataclass(frozen=True)
class CheckReport:
    events: int
    rows: int
    differences: tuple[Difference, ...]
    broken_sums: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.differences and not self.broken_sums


def rebuild(progress: Progress = _no_progress) -> int:
    """Empties every read model and fills it from the events, in one transaction; the number of events.

    Raises BrokenHistory or UnknownEvent, and leaves the tables as they were. Writers wait meanwhile.
    """
    with store.writing():
        state = fold(progress(store.history(), store.last_position()))
        for model in READ_MODELS:
            model.table._default_manager.all().delete()
            instances = [model.table(**values) for values in model.folded(state).values()]
            model.table._default_manager.bulk_create(instances, batch_size=BATCH)
    return state.position


def position_at(moment: datetime) -> int:
    """The position of the last event recorded up to this time; 0 before the first."""
    return EventRow.objects.filter(recorded_at__lte=moment).aggregate(last=Max("position"))["last"] or 0


def rebuild_past(until: int, database: str, progress: Progress = _no_progress) -> State:
    """Writes the first `until` events and every read model of that moment into another, empty database; the state.

    database: its alias. Its guards are those of the live one, so the copied books are checked again by being written.
    """
    state = fold(progress(store.history(until=until), until))
    with transaction.atomic(using=database):
        for start in range(0, until, BATCH):
            rows = EventRow.objects.filter(position__gt=start, position__lte=min(start + BATCH, until))
            EventRow.objects.using(database).bulk_create([_copied(row) for row in rows.order_by("position")])
        for model in READ_MODELS:
            instances = [model.table(**values) for values in model.folded(state).values()]
            model.table._default_manager.using(database).bulk_create(instances, batch_size=BATCH)
    return state


def _copied(row: EventRow) -> EventRow:
    """A new row with the same values: an event that was read cannot be saved again."""
    return EventRow(**{field.attname: getattr(row, field.attname) for field in EventRow._meta.concrete_fields})


def check(progress: Progress = _no_progress) -> CheckReport:
    """Compares every row of the read models with a replay, and checks the sums of the ledger.

    Most of the history is folded while writers go on; only the newest events and the comparison happen under the lock.
    """
    until = store.last_position()
    state = fold(progress(store.history(until=until), until))
    with store.writing():
        fold(store.history(after=state.position), state)
        differences = tuple(difference for model in READ_MODELS for difference in _compare(model, state))
        count = sum(model.table._default_manager.count() for model in READ_MODELS)
    return CheckReport(state.position, count, differences, tuple(_broken_sums(state)))


def _compare(model: ReadModel, state: State) -> Iterator[Difference]:
    live, replayed = model.live(), model.folded(state)
    for key in sorted(live.keys() | replayed.keys(), key=repr):
        if live.get(key) != replayed.get(key):
            yield Difference(model.table.__name__, key, live.get(key), replayed.get(key))


def _broken_sums(state: State) -> Iterator[str]:
    """What docs/ledger.md promises of the books, checked on the replayed state."""
    total = sum(posting.amount_microcredits for posting in state.postings)
    if total != 0:
        yield f"all postings sum to {total} microcredits instead of zero"
    system = dict.fromkeys(SYSTEM_ACCOUNTS, 0)
    for posting in state.postings:
        if posting.account in system:
            system[posting.account] += posting.amount_microcredits
    treasury = system[TREASURY]
    nodes = sum(balance.balance_microcredits for balance in state.balances.values())
    if sum(system.values()) + nodes != 0:
        yield f"the accounts of the market hold {sum(system.values())} microcredits, the nodes {nodes}"
    credited = sum(total.amount_microcredits for total in state.credited.values())
    earned = sum(claim.earned_microcredits for claim in state.claims.values())
    if not credited == earned == -treasury:
        yield f"credited {credited}, earned by claims {earned}, paid by the treasury {-treasury} microcredits"
