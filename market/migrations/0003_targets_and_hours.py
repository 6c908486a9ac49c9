"""Targets by demand and the stand-by reward in the policy; what a claim may earn in the hour of its grant."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from market.hours import first_hour_allowance


def fill_first_hours(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    for claim in apps.get_model("market", "Claim").objects.using(editor.connection.alias).iterator(500):
        claim.first_hour_microcredits = first_hour_allowance(claim.cap_microcredits_per_hour, claim.granted_at)
        claim.save(update_fields=["first_hour_microcredits"])


class Migration(migrations.Migration):
    dependencies = [("market", "0002_guards")]

    operations = [
        migrations.AddField(
            model_name="claim",
            name="first_hour_microcredits",
            field=models.BigIntegerField(default=0),
            preserve_default=False,
        ),
        migrations.AddField(model_name="currentpolicy", name="standby_percent", field=models.IntegerField(default=0)),
        migrations.AddField(
            model_name="currentpolicy", name="target_bytes_percent", field=models.IntegerField(default=0)
        ),
        migrations.RunPython(fill_first_hours, migrations.RunPython.noop),
    ]
