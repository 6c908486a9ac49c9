from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("inference", "0002_api_keys"),)

    operations = (
        migrations.AddField(model_name="generationjob", name="priority", field=models.SmallIntegerField(default=0)),
    )
