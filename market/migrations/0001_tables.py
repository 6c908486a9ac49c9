from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Balance",
            fields=[
                ("account", models.CharField(max_length=80, primary_key=True, serialize=False)),
                ("balance_microcredits", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="Build",
            fields=[
                ("fingerprint", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200)),
                ("architecture", models.CharField(max_length=80)),
                ("n_embd", models.IntegerField()),
                ("n_ff", models.IntegerField()),
                ("experts_per_layer", models.IntegerField()),
                ("experts_used", models.IntegerField()),
                ("published_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="CurrentPolicy",
            fields=[
                ("number", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("budget_microcredits_per_hour", models.BigIntegerField()),
                ("price_ceiling_microcredits_per_teraflop", models.BigIntegerField()),
                ("target_replicas", models.IntegerField()),
                ("maximum_replicas", models.IntegerField()),
                ("changed_at", models.DateTimeField()),
            ],
            options={
                "verbose_name_plural": "current policy",
            },
        ),
        migrations.CreateModel(
            name="Demand",
            fields=[
                ("build", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("rows_per_hour", models.BinaryField()),
                ("observed_until", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Node",
            fields=[
                ("node_id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("kernel_class", models.CharField(max_length=120)),
                ("budget_bytes", models.BigIntegerField(null=True)),
                ("token_sha256", models.CharField(max_length=64, unique=True)),
                ("suspended_reason", models.CharField(blank=True, max_length=200)),
                ("registered_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="NodeProfile",
            fields=[
                ("node_id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=60)),
            ],
        ),
        migrations.CreateModel(
            name="Claim",
            fields=[
                ("claim_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("node_id", models.CharField(max_length=40)),
                ("build", models.CharField(max_length=32)),
                ("layer", models.IntegerField()),
                ("first", models.IntegerField()),
                ("last", models.IntegerField()),
                ("fence", models.IntegerField()),
                ("state", models.CharField(max_length=10)),
                ("size_bytes", models.BigIntegerField()),
                ("rate_microcredits_per_teraflop", models.BigIntegerField()),
                ("cap_microcredits_per_hour", models.BigIntegerField()),
                ("sha256", models.CharField(blank=True, max_length=64)),
                ("granted_at", models.DateTimeField()),
                ("verified_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("end_reason", models.CharField(blank=True, max_length=80)),
                ("earned_microcredits", models.BigIntegerField(default=0)),
                ("hour", models.DateTimeField(null=True)),
                ("hour_microcredits", models.BigIntegerField(default=0)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["node_id", "state"], name="market_claim_of_node"),
                    models.Index(fields=["state", "build"], name="market_claim_open"),
                    models.Index(fields=["hour"], name="market_claim_hour"),
                ],
            },
        ),
        migrations.CreateModel(
            name="CreditedRows",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("build", models.CharField(max_length=32)),
                ("node_id", models.CharField(max_length=40)),
                ("layer", models.IntegerField()),
                ("rows", models.BigIntegerField(default=0)),
                ("amount_microcredits", models.BigIntegerField(default=0)),
            ],
            options={
                "verbose_name_plural": "credited rows",
                "constraints": [
                    models.UniqueConstraint(fields=("build", "node_id", "layer"), name="market_creditedrows_natural")
                ],
            },
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                ("position", models.BigIntegerField(primary_key=True, serialize=False)),
                ("stream", models.CharField(max_length=120)),
                ("version", models.IntegerField()),
                ("append_position", models.BigIntegerField()),
                ("name", models.CharField(max_length=40)),
                ("schema_version", models.SmallIntegerField()),
                ("body", models.JSONField()),
                ("recorded_at", models.DateTimeField()),
                ("idempotency_key", models.CharField(max_length=200, null=True, unique=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("stream", "version"), name="market_event_stream_version")
                ],
            },
        ),
        migrations.CreateModel(
            name="Layer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("build", models.CharField(max_length=32)),
                ("layer", models.IntegerField()),
                ("ordinal", models.IntegerField()),
                ("expert_bytes", models.BigIntegerField()),
                ("expert_types", models.CharField(max_length=120)),
                ("replicas", models.BinaryField()),
                ("reserved_microcredits_per_hour", models.BigIntegerField(default=0)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("build", "layer"), name="market_layer_natural"),
                    models.CheckConstraint(
                        condition=models.Q(("reserved_microcredits_per_hour__gte", 0)),
                        name="market_layer_reserved_positive",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Posting",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("event_position", models.BigIntegerField()),
                ("line", models.SmallIntegerField()),
                ("account", models.CharField(db_index=True, max_length=80)),
                ("amount_microcredits", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("event_position", "line"), name="market_posting_natural")
                ],
            },
        ),
    ]
