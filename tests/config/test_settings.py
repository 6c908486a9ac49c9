"""config/settings.py and config/environment.py: typed, documented, and refused with the name of the variable."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from config.environment import Environment, EnvironmentValueError, Variable
from config.settings import BASE_DIR, ENVIRONMENT, database


def documented_row(variable: Variable) -> str:
    """A row of the table in docs/settings.md; paths are written as seen from the tree."""
    default = variable.default.replace(f"{BASE_DIR}/", "")
    return f"| `{variable.name}` | {variable.kind} | {f'`{default}`' if default else '(empty)'} | {variable.meaning} |"


def test_the_documentation_lists_every_setting_as_it_is() -> None:
    page = (BASE_DIR / "docs" / "settings.md").read_text()
    found = [line for line in page.splitlines() if line.startswith("| `")]

    wanted = [documented_row(variable) for variable in ENVIRONMENT.table]

    assert found == wanted, "docs/settings.md must hold these rows:\n" + "\n".join(wanted)


def test_no_other_module_reads_the_environment() -> None:
    readers = {
        path.relative_to(BASE_DIR).as_posix()
        for app in ("config", "market", "relay", "inference", "frontend")
        for path in (BASE_DIR / app).rglob("*.py")
        if "os.environ" in (text := path.read_text()) or "getenv" in text
    }

    # Start-up lines that name the settings module, and those that hand the environment on to a child process.
    assert readers <= {
        "config/environment.py",
        "config/asgi.py",
        "config/celery.py",
        "config/management/commands/up.py",
        "frontend/browser_worker/build.py",
        "frontend/screenshots/demo.py",
        "frontend/screenshots/site.py",
        "inference/benchmarks/api/stack.py",
        "inference/benchmarks/full_size/__main__.py",
        "inference/benchmarks/relay/server.py",
        "inference/benchmarks/scale/stack.py",
        "inference/benchmarks/scale/writer.py",
        "inference/chaos/processes.py",
        "inference/demos/served.py",
        # The worker runs without settings; its token must not stand on a command line.
        "inference/worker/options.py",
        # So does a stage, and so must its secret not.
        "inference/stage/options.py",
        # The benchmark's own PostgreSQL, as the tests name it.
        "market/benchmarks/databases.py",
    }


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("integer", "many"),
        ("integer", "-1"),
        ("seconds", "0"),
        ("seconds", "inf"),
        ("seconds", "soon"),
        ("flag", "perhaps"),
    ],
)
def test_a_value_that_cannot_be_read_is_refused_by_name(method: str, value: str) -> None:
    environment = Environment({"LIMIT": value})

    with pytest.raises(EnvironmentValueError, match="LIMIT must be"):
        getattr(environment, method)("LIMIT", 1, "A limit.")


def test_values_are_typed_and_an_empty_variable_means_the_default() -> None:
    environment = Environment({"COUNT": " 3 ", "WAIT": "0.5", "ON": "yes", "HOSTS": "a, b,,c", "EMPTY": "  "})

    assert environment.integer("COUNT", 1, "") == 3
    assert environment.seconds("WAIT", 1.0, "") == 0.5
    assert environment.flag("ON", False, "") is True
    assert environment.words("HOSTS", [], "") == ["a", "b", "c"]
    assert environment.text("EMPTY", "default", "") == "default"
    assert environment.path("ABSENT", Path("/default"), "") == Path("/default")
    assert [variable.name for variable in environment.table] == ["COUNT", "WAIT", "ON", "HOSTS", "EMPTY", "ABSENT"]


def test_a_database_url_is_either_sqlite_or_postgresql(tmp_path: Path) -> None:
    assert database("", tmp_path)["NAME"] == str(tmp_path / "expertswarm.sqlite3")
    assert database("sqlite:////srv/swarm.sqlite3", tmp_path)["NAME"] == "/srv/swarm.sqlite3"
    entry = database("postgresql://bob:p%40ss@db.example:5433/swarm", tmp_path)
    assert (entry["USER"], entry["PASSWORD"], entry["HOST"], entry["PORT"], entry["NAME"]) == (
        "bob",
        "p@ss",
        "db.example",
        "5433",
        "swarm",
    )
    with pytest.raises(EnvironmentValueError, match="mysql"):
        database("mysql://bob@db.example/swarm", tmp_path)


@pytest.mark.parametrize("url", ["redis://host:6379/0", "rediss://host/1", "unix:///run/redis.sock", ""])
def test_the_addresses_of_a_redis_are_read(url: str) -> None:
    assert Environment({"REDIS_URL": url}).redis_url("REDIS_URL", "") == url


def test_another_address_is_refused_without_its_password() -> None:
    with pytest.raises(EnvironmentValueError, match=r"REDIS_URL must start with redis://") as refusal:
        Environment({"REDIS_URL": "http://bob:secret@host"}).redis_url("REDIS_URL", "")

    assert "secret" not in str(refusal.value)


def test_a_wrong_setting_ends_every_command_with_one_line() -> None:
    environment = os.environ | {"BACKBONE_LANES": "many"}

    ended = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=BASE_DIR,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 1
    assert ended.stderr == (
        "Wrong setting: BACKBONE_LANES must be a whole number, not 'many' (docs/settings.md lists all).\n"
    )
