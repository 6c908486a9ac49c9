"""Builds offer experts or stages, devices hold the one or the other: until now all were experts and workers."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("market", "0009_invites")]
    operations: ClassVar = [
        migrations.AddField("build", "kind", models.CharField(default="experts", max_length=10)),
        migrations.AddField("node", "role", models.CharField(default="worker", max_length=10)),
    ]
