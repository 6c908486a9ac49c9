"""Holds, forfeits, payouts and incidents; owners, trust and quarantine of nodes. Rewards that are pending are on hold."""

from collections import defaultdict
from datetime import datetime

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from market.ledger import held_until


def fill_holds(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """What a replay of the credits written so far (all of version 1) says."""
    held: dict[tuple[str, datetime], int] = defaultdict(int)
    database = editor.connection.alias
    credits = apps.get_model("market", "Event").objects.using(database).filter(name="work-credited")
    for body in credits.values_list("body", flat=True).iterator(500):
        until = held_until(datetime.fromisoformat(body["window_end"]))
        held[body["node_id"], until] += sum(line["amount_microcredits"] for line in body["work"])
    hold = apps.get_model("market", "Hold")
    hold.objects.using(database).bulk_create(
        [
            hold(node_id=node_id, earned_until=until, held_microcredits=amount)
            for (node_id, until), amount in held.items()
            if amount
        ],
        batch_size=500,
    )


class Migration(migrations.Migration):
    dependencies = [
        ("market", "0003_targets_and_hours"),
    ]

    operations = [
        migrations.CreateModel(
            name="Forfeit",
            fields=[
                ("position", models.BigIntegerField(primary_key=True, serialize=False)),
                ("node_id", models.CharField(db_index=True, max_length=40)),
                ("amount_microcredits", models.BigIntegerField()),
                ("by", models.CharField(max_length=80)),
                ("reason", models.CharField(max_length=200)),
                ("at", models.DateTimeField()),
                ("restored_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Hold",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("node_id", models.CharField(max_length=40)),
                ("earned_until", models.DateTimeField()),
                ("held_microcredits", models.BigIntegerField(default=0)),
                ("released_microcredits", models.BigIntegerField(default=0)),
                ("forfeited_microcredits", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="Incident",
            fields=[
                ("incident_id", models.IntegerField(primary_key=True, serialize=False)),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField(db_index=True)),
                ("by", models.CharField(max_length=80)),
                ("reason", models.CharField(max_length=200)),
                ("declared_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="OwnerProfile",
            fields=[
                ("owner_id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("name", models.CharField(blank=True, max_length=60)),
                ("payee", models.CharField(blank=True, max_length=200)),
            ],
        ),
        migrations.CreateModel(
            name="PayoutBatch",
            fields=[
                ("batch_id", models.IntegerField(primary_key=True, serialize=False)),
                ("state", models.CharField(max_length=10)),
                ("items", models.IntegerField()),
                ("open_items", models.IntegerField()),
                ("total_microcredits", models.BigIntegerField()),
                ("minimum_microcredits", models.BigIntegerField()),
                ("cutoff", models.DateTimeField()),
                ("reserve_percent", models.IntegerField()),
                ("drafted_by", models.CharField(max_length=80)),
                ("reason", models.CharField(max_length=200)),
                ("drafted_at", models.DateTimeField()),
                ("approved_by", models.CharField(blank=True, max_length=80)),
                ("approved_at", models.DateTimeField(null=True)),
                ("provider", models.CharField(blank=True, max_length=40)),
                ("reference", models.CharField(blank=True, max_length=200)),
                ("sent_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name_plural": "payout batches",
                "permissions": [
                    ("draft_payouts", "Can draft, send, settle and cancel payouts"),
                    ("approve_payouts", "Can approve payouts that somebody else drafted"),
                ],
            },
        ),
        migrations.CreateModel(
            name="PayoutItem",
            fields=[
                ("item_id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("batch_id", models.IntegerField(db_index=True)),
                ("node_id", models.CharField(db_index=True, max_length=40)),
                ("amount_microcredits", models.BigIntegerField()),
                ("state", models.CharField(max_length=10)),
                ("reference", models.CharField(blank=True, max_length=200)),
                ("reason", models.CharField(blank=True, max_length=200)),
                ("changed_at", models.DateTimeField()),
            ],
        ),
        migrations.AlterModelOptions(
            name="node",
            options={"permissions": [("operate_nodes", "Can suspend, reinstate, quarantine and erase nodes")]},
        ),
        migrations.AddField(
            model_name="node",
            name="erased_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="node",
            name="leaves_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="node",
            name="owner_id",
            field=models.CharField(blank=True, db_index=True, max_length=40),
        ),
        migrations.AddField(
            model_name="node",
            name="quarantined",
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name="node",
            name="trust",
            field=models.IntegerField(default=0),
        ),
        migrations.AddConstraint(
            model_name="balance",
            constraint=models.CheckConstraint(
                condition=models.Q(("balance_microcredits__gte", 0)), name="market_balance_never_negative"
            ),
        ),
        migrations.AddIndex(
            model_name="hold",
            index=models.Index(
                condition=models.Q(("held_microcredits__gt", 0)), fields=["earned_until"], name="market_hold_held"
            ),
        ),
        migrations.AddConstraint(
            model_name="hold",
            constraint=models.UniqueConstraint(fields=("node_id", "earned_until"), name="market_hold_natural"),
        ),
        migrations.AddConstraint(
            model_name="hold",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("forfeited_microcredits__gte", 0), ("held_microcredits__gte", 0), ("released_microcredits__gte", 0)
                ),
                name="market_hold_never_negative",
            ),
        ),
        migrations.AddConstraint(
            model_name="payoutbatch",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("approved_by", ""),
                    models.Q(("approved_by", models.F("drafted_by")), _negated=True),
                    _connector="OR",
                ),
                name="market_payout_two_people",
            ),
        ),
        migrations.AddConstraint(
            model_name="payoutitem",
            constraint=models.UniqueConstraint(fields=("batch_id", "node_id"), name="market_payoutitem_once"),
        ),
        migrations.AddConstraint(
            model_name="payoutitem",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount_microcredits__gt", 0)), name="market_payoutitem_positive"
            ),
        ),
        migrations.RunPython(fill_holds, migrations.RunPython.noop),
    ]
