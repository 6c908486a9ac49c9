"""config/supervisor/plan.py: which processes, with which environment."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from config.supervisor import plan
from config.supervisor.authority import Certificate
from config.supervisor.plan import ExpertSizes, Https, Options, Stage

OPTIONS = Options(
    var_dir=Path("/srv/var"),
    base_dir=Path("/srv"),
    model=Path("/srv/models/demo.gguf"),
    host="127.0.0.1",
    port=8000,
    workers=3,
    sequences=16,
    redis_url="unix:///srv/var/redis/redis.sock",
    secret_key="made for this folder",
)
SIZES = ExpertSizes(experts=256, largest_bytes=100_000)


def test_every_process_runs_under_this_python_and_stops_after_those_that_need_it() -> None:
    specs = [*plan.server(OPTIONS, {}), *plan.workers(OPTIONS, SIZES, {})]

    assert [(spec.name, spec.stage) for spec in specs] == [
        ("web", Stage.SERVER),
        ("upkeep", Stage.SERVER),
        ("backbone", Stage.BACKBONE),
        ("beat", Stage.BACKBONE),
        ("local-1", Stage.WORKERS),
        ("local-2", Stage.WORKERS),
        ("local-3", Stage.WORKERS),
    ]
    assert all(spec.command[:2] == (sys.executable, "-m") for spec in specs)


def test_the_backbone_worker_has_a_thread_for_every_sequence_and_four_more() -> None:
    backbone = next(spec for spec in plan.server(OPTIONS, {}) if spec.name == "backbone")

    assert backbone.command[backbone.command.index("--concurrency") + 1] == "20"
    assert backbone.command[backbone.command.index("--pool") + 1] == "threads"


def test_the_server_gets_its_secrets_and_the_workers_do_not() -> None:
    inherited = {"BACKBONE_TOKEN": "for the backbone alone", "SECRET_KEY": "set by the operator", "HOME": "/home/alice"}

    web = plan.server(OPTIONS, inherited)[0].environment
    worker = plan.workers(OPTIONS, SIZES, inherited)[0].environment

    assert web["SECRET_KEY"] == "set by the operator"
    assert web["REDIS_URL"] == OPTIONS.redis_url
    assert "SECRET_KEY" not in worker
    assert "BACKBONE_TOKEN" not in worker
    assert worker["HOME"] == "/home/alice"


def test_the_operator_s_own_address_and_hosts_win() -> None:
    options = replace(OPTIONS, host="0.0.0.0")

    made = plan.server_environment(options, {})
    given = plan.server_environment(options, {"PUBLIC_URL": "https://swarm.example", "ALLOWED_HOSTS": "swarm.example"})

    assert (made["PUBLIC_URL"], made["ALLOWED_HOSTS"]) == ("http://127.0.0.1:8000", "*")
    assert (given["PUBLIC_URL"], given["ALLOWED_HOSTS"]) == ("https://swarm.example", "swarm.example")
    assert given["RELAY_ADDRESS"] == "ws://127.0.0.1:8000/relay/"
    assert given["RELAY_PUBLIC_URL"] == "wss://swarm.example/relay/"


def test_a_trace_is_recorded_only_when_asked_for() -> None:
    assert "BACKBONE_TRACE_DIR" not in plan.server_environment(OPTIONS, {})
    assert plan.server_environment(replace(OPTIONS, trace=True), {})["BACKBONE_TRACE_DIR"] == "/srv/var/traces"


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:8000"), ("0.0.0.0", "http://127.0.0.1:8000"), ("::", "http://[::1]:8000")],
)
def test_a_wildcard_address_is_reached_through_the_loopback_one(host: str, url: str) -> None:
    assert replace(OPTIONS, host=host).url == url


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 256, 300])
def test_the_workers_together_can_hold_every_expert_once(workers: int) -> None:
    budget = plan.budget_per_worker(SIZES, workers)

    assert workers * (budget // SIZES.largest_bytes) >= SIZES.experts


def test_a_huge_model_does_not_fill_the_disk_but_each_worker_gets_an_expert() -> None:
    huge = ExpertSizes(experts=12_288, largest_bytes=6_000_000)

    assert 3 * plan.budget_per_worker(huge, 3) <= plan.MOST_LOCAL_BYTES
    assert plan.budget_per_worker(ExpertSizes(8, 3 << 30), 3) == 3 << 30


def test_a_budget_that_was_given_is_passed_on() -> None:
    worker = plan.workers(replace(OPTIONS, budget_bytes=42_000_000), SIZES, {})[0]

    assert worker.command[worker.command.index("--budget") + 1] == "42000000"


def test_several_backbones_have_names_of_their_own_and_share_the_cores() -> None:
    specs = [spec for spec in plan.server(replace(OPTIONS, backbones=2), {}) if spec.name.startswith("backbone")]
    given = plan.server(replace(OPTIONS, backbones=2), {"BACKBONE_THREADS": "7"})

    assert [spec.name for spec in specs] == ["backbone", "backbone-2"]
    assert [spec.command[spec.command.index("--hostname") + 1] for spec in specs] == ["backbone@%h", "backbone-2@%h"]
    cores = len(os.sched_getaffinity(0))
    assert {spec.environment["BACKBONE_THREADS"] for spec in specs} == {str(max(1, cores // 2))}
    assert next(spec for spec in given if spec.name == "backbone-2").environment["BACKBONE_THREADS"] == "7"
    assert "BACKBONE_THREADS" not in plan.server(OPTIONS, {})[2].environment


def test_https_is_an_endpoint_beside_plain_http_that_every_worker_trusts() -> None:
    files = Certificate(Path("/srv/tls/a.pem"), Path("/srv/tls/s.pem"), Path("/srv/tls:1/s.key"), "AA:BB")
    options = replace(OPTIONS, host="0.0.0.0", public_url="https://phone.test:8443", https=Https(8443, files))

    web = plan.server(options, {})[0]
    worker = plan.workers(options, SIZES, {})[0]

    endpoint = web.command[web.command.index("--endpoint") + 1]
    assert endpoint == r"ssl:8443:interface=0.0.0.0:privateKey=/srv/tls\:1/s.key:certKey=/srv/tls/s.pem"
    assert web.environment["PUBLIC_URL"] == "https://phone.test:8443"
    assert web.environment["RELAY_PUBLIC_URL"] == "wss://phone.test:8443/relay/"
    assert web.environment["RELAY_ADDRESS"] == "ws://127.0.0.1:8000/relay/"
    assert worker.command[worker.command.index("--ca") + 1] == "/srv/tls/a.pem"


def test_the_local_network_may_use_only_names_of_this_machine() -> None:
    options = replace(OPTIONS, host="0.0.0.0", hosts=("phone.test", "192.168.1.7", "[::1]"))

    assert plan.server(options, {})[0].environment["ALLOWED_HOSTS"] == "phone.test,192.168.1.7,[::1]"
    assert plan.server(options, {"ALLOWED_HOSTS": "a"})[0].environment["ALLOWED_HOSTS"] == "a"


def test_no_secret_stands_in_a_command_line_where_everybody_reads_it() -> None:
    secrets = {
        "SECRET_KEY": "k1-secret", "BACKBONE_TOKEN": "k2-secret", "EXPERTSWARM_TOKEN": "k3-secret",
        "DATABASE_URL": "postgresql://swarm:k4-secret@db/swarm", "REDIS_URL": "redis://:k5-secret@redis/0",
    }  # fmt: skip
    options = replace(
        OPTIONS, secret_key="k6-secret", local_invite="k7-secret", redis_url="redis://:k8-secret@redis/0", backbones=2
    )

    specs = [*plan.server(options, secrets), *plan.workers(options, SIZES, secrets)]

    assert [word for spec in specs for word in spec.command if "-secret" in word] == []


def test_local_workers_get_in_by_invite_and_know_none_of_the_servers_secrets() -> None:
    secrets = {"SECRET_KEY": "k1-secret", "BACKBONE_TOKEN": "k2-secret", "EXPERTSWARM_TOKEN": "k3-secret"}

    specs = plan.workers(replace(OPTIONS, local_invite="come in"), SIZES, secrets)

    assert {spec.environment["EXPERTSWARM_INVITE"] for spec in specs} == {"come in"}
    assert not any("-secret" in value for spec in specs for value in spec.environment.values())
