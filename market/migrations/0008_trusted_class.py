"""Trust belongs to the program that earned it: until now that was the one with which the device enrolled."""

from typing import ClassVar

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps
from django.db.models import F


def _class_of_enrolment(apps: StateApps, _editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("market", "Node").objects.update(trusted_class=F("kernel_class"))


class Migration(migrations.Migration):
    dependencies: ClassVar = [("market", "0007_retired_builds")]
    operations: ClassVar = [
        migrations.AddField("node", "trusted_class", models.CharField(blank=True, max_length=120)),
        migrations.RunPython(_class_of_enrolment, migrations.RunPython.noop),
    ]
