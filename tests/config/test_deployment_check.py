"""`manage.py check --deploy` under the settings that deploy/expertswarm.env gives a public server: no warning."""

import os
import re
import subprocess
import sys

from config.settings import BASE_DIR, database


def test_the_settings_of_a_public_server_pass_without_a_warning() -> None:
    example = (BASE_DIR / "deploy" / "expertswarm.env").read_text()
    production = dict(re.findall(r"^(\w+)=(.*)$", example, re.MULTILINE))
    secrets = {
        "SECRET_KEY": "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNO",
        "BACKBONE_TOKEN": "t" * 48,
    }

    checked = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=BASE_DIR,
        env={**os.environ, **production, **secrets, "VAR_DIR": str(BASE_DIR / "var")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stderr
    assert "no issues" in checked.stdout


def test_no_database_connection_outlives_its_request() -> None:
    entry = database("postgresql://user:pass@host/name", BASE_DIR)

    assert entry["CONN_MAX_AGE"] == 0
