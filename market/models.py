"""The tables: the append-only history, the read models made from it, and the one table of personal data.

`Event` is the truth. Triggers of migration 0002 refuse every UPDATE and DELETE on it, in SQLite and PostgreSQL alike,
and refuse a commit while the postings of an event do not sum to zero. Read models are written by market.projections
only, in the transaction that appends; `manage.py replay` makes them again from nothing.
"""

from typing import Any, ClassVar, NoReturn

from django.db import models

from market.errors import MarketError

# Django finds the models of an app through this module.
from market.ledger_models import Forfeit as Forfeit
from market.ledger_models import Hold as Hold
from market.ledger_models import Incident as Incident
from market.ledger_models import PayoutBatch as PayoutBatch
from market.ledger_models import PayoutItem as PayoutItem


class AppendOnly(MarketError):
    """An attempt to change history; repair by appending a compensating event."""

    code = "append_only"
    status = 500


class EventQuerySet(models.QuerySet["Event"]):
    def update(self, **kwargs: Any) -> NoReturn:
        raise AppendOnly("events are never updated: append a compensating event")

    def delete(self) -> NoReturn:
        raise AppendOnly("events are never deleted: append a compensating event")


class Event(models.Model):
    """One fact. Positions run 1, 2, 3 ... without gaps, handed out inside the append lock.

    append_position: the position of the first event of the same append; only that one carries the idempotency key.
    """

    position = models.BigIntegerField(primary_key=True)
    stream = models.CharField(max_length=120)
    version = models.IntegerField()
    append_position = models.BigIntegerField()
    name = models.CharField(max_length=40)
    schema_version = models.SmallIntegerField()
    body = models.JSONField()
    recorded_at = models.DateTimeField()
    idempotency_key = models.CharField(max_length=200, null=True, unique=True)

    objects: ClassVar[models.Manager["Event"]] = EventQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["stream", "version"], name="market_event_stream_version"),
        ]

    def __str__(self) -> str:
        return f"{self.position} {self.name} in {self.stream}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise AppendOnly("events are never updated: append a compensating event")
        kwargs["force_insert"] = True
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise AppendOnly("events are never deleted: append a compensating event")


class NodeProfile(models.Model):
    """What is personal about a device. Not a read model: no event holds it, and it may be erased."""

    node_id = models.CharField(primary_key=True, max_length=40)
    name = models.CharField(max_length=60)

    def __str__(self) -> str:
        return self.name


class OwnerProfile(models.Model):
    """Who an account belongs to, and where its money is sent. Not a read model, and may be erased, as NodeProfile."""

    owner_id = models.CharField(primary_key=True, max_length=40)
    name = models.CharField(max_length=60, blank=True)
    payee = models.CharField(max_length=200, blank=True)

    def __str__(self) -> str:
        return self.name or self.owner_id


class Invite(models.Model):
    """Lets somebody open an account or enrol a device. Not a read model. owner_id: who invites, "": the operator."""

    code_sha256 = models.CharField(max_length=64, unique=True)
    note = models.CharField(max_length=60, blank=True)
    uses_left = models.PositiveIntegerField()
    expires_at = models.DateTimeField()
    made_by = models.CharField(max_length=80)
    owner_id = models.CharField(max_length=40, blank=True, db_index=True)
    made_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"invite {self.pk} by {self.made_by}"


class Build(models.Model):
    """A published model build. `natural_key` names the fields that identify a row for `replay --check`."""

    natural_key: ClassVar = ("fingerprint",)
    fingerprint = models.CharField(primary_key=True, max_length=32)
    name = models.CharField(max_length=200)
    architecture = models.CharField(max_length=80)
    n_embd = models.IntegerField()
    n_ff = models.IntegerField()
    experts_per_layer = models.IntegerField()
    experts_used = models.IntegerField()
    # "experts" or "stages", see market.kinds.
    kind = models.CharField(max_length=10, default="experts")
    published_at = models.DateTimeField()
    retired_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.fingerprint})"


class Layer(models.Model):
    """One layer on offer. replicas: little-endian uint16 per expert, claims that are pending or live."""

    natural_key: ClassVar = ("build", "layer")
    build = models.CharField(max_length=32)
    layer = models.IntegerField()
    ordinal = models.IntegerField()
    expert_bytes = models.BigIntegerField()
    expert_types = models.CharField(max_length=120)
    replicas = models.BinaryField()
    reserved_microcredits_per_hour = models.BigIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["build", "layer"], name="market_layer_natural"),
            models.CheckConstraint(
                condition=models.Q(reserved_microcredits_per_hour__gte=0), name="market_layer_reserved_positive"
            ),
        ]

    def __str__(self) -> str:
        return f"layer {self.layer} of {self.build}"


class Node(models.Model):
    """A registered device; its name is in NodeProfile."""

    natural_key: ClassVar = ("node_id",)
    node_id = models.CharField(primary_key=True, max_length=40)
    # "worker" or "stage", see market.kinds.
    role = models.CharField(max_length=10, default="worker")
    kernel_class = models.CharField(max_length=120)
    budget_bytes = models.BigIntegerField(null=True)
    token_sha256 = models.CharField(max_length=64, unique=True)
    suspended_reason = models.CharField(max_length=200, blank=True)
    quarantined = models.BooleanField(default=False)
    trust = models.IntegerField(default=0)
    # The kernel class that earned it.
    trusted_class = models.CharField(max_length=120, blank=True)
    owner_id = models.CharField(max_length=40, blank=True, db_index=True)
    leaves_at = models.DateTimeField(null=True)
    erased_at = models.DateTimeField(null=True)
    registered_at = models.DateTimeField()

    class Meta:
        permissions: ClassVar = [("operate_nodes", "Can suspend, reinstate, quarantine and erase nodes")]

    def __str__(self) -> str:
        return self.node_id


class Claim(models.Model):
    """A lease of the experts [first, last) of one layer. hour: the clock hour that hour_microcredits counts for.

    first_hour_microcredits: what it may earn in the clock hour of its grant, of which a part was over.
    """

    natural_key: ClassVar = ("claim_id",)
    claim_id = models.BigIntegerField(primary_key=True)
    node_id = models.CharField(max_length=40)
    build = models.CharField(max_length=32)
    layer = models.IntegerField()
    first = models.IntegerField()
    last = models.IntegerField()
    fence = models.IntegerField()
    state = models.CharField(max_length=10)
    size_bytes = models.BigIntegerField()
    rate_microcredits_per_teraflop = models.BigIntegerField()
    cap_microcredits_per_hour = models.BigIntegerField()
    first_hour_microcredits = models.BigIntegerField()
    sha256 = models.CharField(max_length=64, blank=True)
    granted_at = models.DateTimeField()
    verified_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    end_reason = models.CharField(max_length=80, blank=True)
    earned_microcredits = models.BigIntegerField(default=0)
    hour = models.DateTimeField(null=True)
    hour_microcredits = models.BigIntegerField(default=0)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["node_id", "state"], name="market_claim_of_node"),
            models.Index(fields=["state", "build"], name="market_claim_open"),
            models.Index(fields=["hour"], name="market_claim_hour"),
            models.Index(fields=["granted_at"], name="market_claim_granted"),
        ]

    def __str__(self) -> str:
        return f"claim {self.claim_id}: layer {self.layer} [{self.first}, {self.last})"


class Demand(models.Model):
    """rows_per_hour: little-endian float64, shape (layers, experts) of the build."""

    natural_key: ClassVar = ("build",)
    build = models.CharField(primary_key=True, max_length=32)
    rows_per_hour = models.BinaryField()
    observed_until = models.DateTimeField()

    def __str__(self) -> str:
        return f"demand of {self.build}"


class CreditedRows(models.Model):
    """Rows and microcredits per (build, node, layer), summed over all credits."""

    natural_key: ClassVar = ("build", "node_id", "layer")
    build = models.CharField(max_length=32)
    node_id = models.CharField(max_length=40)
    layer = models.IntegerField()
    rows = models.BigIntegerField(default=0)
    amount_microcredits = models.BigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "credited rows"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["build", "node_id", "layer"], name="market_creditedrows_natural"),
        ]

    def __str__(self) -> str:
        return f"{self.rows} rows of {self.node_id} in layer {self.layer}"


class Posting(models.Model):
    """One line of the ledger. The postings of one event sum to zero, or its transaction cannot commit."""

    natural_key: ClassVar = ("event_position", "line")
    event_position = models.BigIntegerField()
    line = models.SmallIntegerField()
    account = models.CharField(max_length=80, db_index=True)
    amount_microcredits = models.BigIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["event_position", "line"], name="market_posting_natural"),
        ]

    def __str__(self) -> str:
        return f"{self.account} {self.amount_microcredits:+d}"


class Balance(models.Model):
    """The sum of a node account's postings; system accounts have no row that all writers would queue for."""

    natural_key: ClassVar = ("account",)
    account = models.CharField(primary_key=True, max_length=80)
    balance_microcredits = models.BigIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=models.Q(balance_microcredits__gte=0), name="market_balance_never_negative"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.account} {self.balance_microcredits}"


class CurrentPolicy(models.Model):
    """The policy in force (one row, number 1), absent until somebody changed it."""

    natural_key: ClassVar = ("number",)
    number = models.SmallIntegerField(primary_key=True)
    budget_microcredits_per_hour = models.BigIntegerField()
    price_ceiling_microcredits_per_teraflop = models.BigIntegerField()
    target_replicas = models.IntegerField()
    maximum_replicas = models.IntegerField()
    target_bytes_percent = models.IntegerField(default=0)
    standby_percent = models.IntegerField(default=0)
    changed_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "current policy"

    def __str__(self) -> str:
        return f"target {self.target_replicas}, {self.budget_microcredits_per_hour} microcredits per hour"
