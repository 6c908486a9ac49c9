"""Codes that let somebody in where registration is by invite."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("market", "0008_trusted_class")]
    operations: ClassVar = [
        migrations.CreateModel(
            name="Invite",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("code_sha256", models.CharField(max_length=64, unique=True)),
                ("note", models.CharField(blank=True, max_length=60)),
                ("uses_left", models.PositiveIntegerField()),
                ("expires_at", models.DateTimeField()),
                ("made_by", models.CharField(max_length=80)),
                ("owner_id", models.CharField(blank=True, db_index=True, max_length=40)),
                ("made_at", models.DateTimeField(auto_now_add=True)),
            ],
        )
    ]
