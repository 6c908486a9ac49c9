"""The claims of the running hour are found without reading all others."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("market", "0004_ledger_lifecycle")]

    operations = [
        migrations.AddIndex(model_name="claim", index=models.Index(fields=["granted_at"], name="market_claim_granted"))
    ]
