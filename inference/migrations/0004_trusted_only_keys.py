from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("inference", "0003_generation_priority"),)

    operations = (
        migrations.AddField(model_name="apikey", name="trusted_only", field=models.BooleanField(default=False)),
    )
