"""The tables of money after it was earned: holds, forfeits, payouts, incidents. Read models, as those of `models`."""

from typing import ClassVar

from django.db import models


class Hold(models.Model):
    """Rewards of one node that were credited in the ten minutes before earned_until, by where they are now."""

    natural_key: ClassVar = ("node_id", "earned_until")
    node_id = models.CharField(max_length=40)
    earned_until = models.DateTimeField()
    held_microcredits = models.BigIntegerField(default=0)
    released_microcredits = models.BigIntegerField(default=0)
    forfeited_microcredits = models.BigIntegerField(default=0)

    class Meta:
        app_label = "market"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["node_id", "earned_until"], name="market_hold_natural"),
            models.CheckConstraint(
                condition=models.Q(
                    held_microcredits__gte=0, released_microcredits__gte=0, forfeited_microcredits__gte=0
                ),
                name="market_hold_never_negative",
            ),
        ]
        indexes: ClassVar = [
            # What the timer looks for: rewards that are still held, oldest first.
            models.Index(fields=["earned_until"], name="market_hold_held", condition=models.Q(held_microcredits__gt=0)),
        ]

    def __str__(self) -> str:
        return f"{self.held_microcredits} of {self.node_id} held since {self.earned_until}"


class Forfeit(models.Model):
    """One earnings-forfeited, by its position."""

    natural_key: ClassVar = ("position",)
    position = models.BigIntegerField(primary_key=True)
    node_id = models.CharField(max_length=40, db_index=True)
    amount_microcredits = models.BigIntegerField()
    by = models.CharField(max_length=80)
    reason = models.CharField(max_length=200)
    at = models.DateTimeField()
    restored_at = models.DateTimeField(null=True)

    class Meta:
        app_label = "market"

    def __str__(self) -> str:
        return f"{self.amount_microcredits} of {self.node_id}: {self.reason}"


class PayoutBatch(models.Model):
    """A payout: drafted -> approved -> sending -> sent -> closed, or cancelled before it was sent."""

    natural_key: ClassVar = ("batch_id",)
    batch_id = models.IntegerField(primary_key=True)
    state = models.CharField(max_length=10)
    items = models.IntegerField()
    open_items = models.IntegerField()
    total_microcredits = models.BigIntegerField()
    minimum_microcredits = models.BigIntegerField()
    cutoff = models.DateTimeField()
    reserve_percent = models.IntegerField()
    drafted_by = models.CharField(max_length=80)
    reason = models.CharField(max_length=200)
    drafted_at = models.DateTimeField()
    approved_by = models.CharField(max_length=80, blank=True)
    approved_at = models.DateTimeField(null=True)
    provider = models.CharField(max_length=40, blank=True)
    reference = models.CharField(max_length=200, blank=True)
    sent_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        app_label = "market"
        verbose_name_plural = "payout batches"
        permissions: ClassVar = [
            ("draft_payouts", "Can draft, send, settle and cancel payouts"),
            ("approve_payouts", "Can approve payouts that somebody else drafted"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=models.Q(approved_by="") | ~models.Q(approved_by=models.F("drafted_by")),
                name="market_payout_two_people",
            ),
        ]

    def __str__(self) -> str:
        return f"payout {self.batch_id} ({self.state})"


class PayoutItem(models.Model):
    """One payment of a batch: reserved -> settled or failed, settled -> returned; a node has one in a batch."""

    natural_key: ClassVar = ("item_id",)
    item_id = models.CharField(primary_key=True, max_length=40)
    batch_id = models.IntegerField(db_index=True)
    node_id = models.CharField(max_length=40, db_index=True)
    amount_microcredits = models.BigIntegerField()
    state = models.CharField(max_length=10)
    reference = models.CharField(max_length=200, blank=True)
    reason = models.CharField(max_length=200, blank=True)
    changed_at = models.DateTimeField()

    class Meta:
        app_label = "market"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["batch_id", "node_id"], name="market_payoutitem_once"),
            models.CheckConstraint(condition=models.Q(amount_microcredits__gt=0), name="market_payoutitem_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.item_id} {self.amount_microcredits} ({self.state})"


class Incident(models.Model):
    """A time that is held against nobody."""

    natural_key: ClassVar = ("incident_id",)
    incident_id = models.IntegerField(primary_key=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True)
    by = models.CharField(max_length=80)
    reason = models.CharField(max_length=200)
    declared_at = models.DateTimeField()

    class Meta:
        app_label = "market"

    def __str__(self) -> str:
        return f"incident {self.incident_id}: {self.starts_at} to {self.ends_at}"
