"""deploy/: files that an operator copies hold only what exists, and what they must."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from config.settings import BASE_DIR, ENVIRONMENT
from inference.demos.nat.front import make_certificates
from tests.requirements_check import need

DEPLOY = BASE_DIR / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("expertswarm-*.service"))
SERVERS = [unit for unit in UNITS if unit.stem != "expertswarm-backup"]
# Read by the units themselves.
UNIT_VARIABLES = {"BIND", "PORT", "CONCURRENCY"}


def unit_lines(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        name, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def metric_names(text: str) -> set[str]:
    return set(re.findall(r"expertswarm_[a-z_]+", text)) - {"expertswarm_alerts"}


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("*.env")), ids=lambda path: path.name)
def test_environment_files_hold_settings_that_exist(path: Path) -> None:
    known = {variable.name for variable in ENVIRONMENT.table} | UNIT_VARIABLES

    names = {line.partition("=")[0] for line in path.read_text().splitlines() if line and not line.startswith("#")}

    assert names
    assert names <= known


@pytest.mark.parametrize("path", SERVERS, ids=lambda path: path.stem)
def test_units_start_again_have_files_time_to_drain_and_no_secret_in_their_command(path: Path) -> None:
    unit = unit_lines(path)

    (command,) = unit["ExecStart"]
    assert unit["Restart"] == ["always"]
    assert unit["LimitNOFILE"] == ["65536"]
    assert unit["EnvironmentFile"][0] == "/etc/expertswarm/env"
    assert unit["NoNewPrivileges"] == ["yes"]
    assert "TOKEN" not in command
    assert "SECRET" not in command
    drains = "relay" in path.stem or "backbone" in path.stem or "server" in path.stem
    example = dict(re.findall(r"^(\w+_DRAIN_SECONDS)=(\d+)", (DEPLOY / "expertswarm.env").read_text(), re.MULTILINE))
    if drains:
        assert int(unit["TimeoutStopSec"][0]) > max(int(seconds) for seconds in example.values())


def test_every_process_of_the_handbook_has_a_unit() -> None:
    assert {path.stem.removeprefix("expertswarm-") for path in UNITS} == {
        "server", "relay@", "backbone@", "upkeep", "beat", "backup",
    }  # fmt: skip


def test_nginx_takes_the_configuration(tmp_path: Path) -> None:
    need("nginx", shutil.which("nginx"), "apt-get install -y nginx")
    make_certificates(tmp_path, ["127.0.0.1"])
    site = (DEPLOY / "nginx" / "expertswarm.conf").read_text()
    site = site.replace("/etc/ssl/swarm/fullchain.pem", f"{tmp_path}/server.pem")
    (tmp_path / "site.conf").write_text(site.replace("/etc/ssl/swarm/privkey.pem", f"{tmp_path}/server.key"))
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid; error_log {tmp_path}/log; events {{}}\nhttp {{ include {tmp_path}/site.conf; }}\n"
    )

    tested = subprocess.run(
        ["nginx", "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "log")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert "syntax is ok" in tested.stderr, tested.stderr


def test_dashboard_and_alerts_use_metrics_that_exist() -> None:
    documented = metric_names((BASE_DIR / "docs" / "metrics.md").read_text())
    board: dict[str, Any] = json.loads((DEPLOY / "grafana" / "expertswarm.json").read_text())
    queries = " ".join(target["expr"] for panel in board["panels"] for target in panel["targets"])
    alerts = (DEPLOY / "prometheus" / "expertswarm-alerts.yml").read_text()

    assert metric_names(queries) <= documented
    assert metric_names(alerts) <= documented
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) > 10


def test_the_handbook_says_what_to_do_about_every_alert() -> None:
    alerts = re.findall(r"- alert: (\w+)", (DEPLOY / "prometheus" / "expertswarm-alerts.yml").read_text())
    page = (BASE_DIR / "docs" / "operations.md").read_text()

    assert len(alerts) > 8
    assert [alert for alert in alerts if f"**{alert}**" not in page] == []
