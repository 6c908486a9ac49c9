"""A build may be taken off the market."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("market", "0006_append_function"),
    ]

    operations = [
        migrations.AddField(
            model_name="build",
            name="retired_at",
            field=models.DateTimeField(null=True),
        ),
    ]
