"""`manage.py bench scaling`: a smoke run with workers as slow as they are told to be."""

import json
from io import StringIO
from pathlib import Path

from django.core.management import call_command


def test_the_quick_run_gives_what_the_budgets_of_the_workers_allow(var_dir: Path) -> None:
    out = StringIO()

    call_command("bench", "scaling", "--quick", "--json", stdout=out)

    results = {result["case"]: result for result in json.loads(out.getvalue())["results"]}
    one, three = results["remote-only/workers1"], results["remote-only/workers3"]
    assert (one["limit"], three["limit"]) == (6.25, 18.75)  # workers x 200 rows/s / (4 layers x 8 experts)
    assert one["value"] < 1.3 * one["limit"]
    assert three["value"] > 1.5 * one["value"]
    assert one["remote_share"] == three["remote_share"] == 1.0
    assert results["fallback/workers3"]["value"] > 0
    assert results["free/workers3"]["value"] > three["value"]
