"""A whole deployment as deploy/ describes it: PostgreSQL, Redis, nginx, two relays, two backbones, six workers.

    with Cluster(folder) as cluster: ...

The real configuration files are used, with the addresses of this network. `ChaosTarget` lets `inference.chaos` at it.
"""

import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import psycopg

from config import embedded_redis
from config.supervisor.run_file import RunFile
from inference.chaos.target import StoredEvent
from inference.demos.nat.front import make_certificates
from inference.demos.served import clean_environment
from tests.cluster.hosts import Hosts, make_hosts
from tests.cluster.programs import ROOT, Keeper, Program, wait_until
from tests.model_files import DEMO_MODEL

WORKERS = 6
WORKER_EXPERTS = 90
START_SECONDS = 120.0
SPOOL_SECONDS = 2.0
SEQUENCES = 8
OUTER = """
daemon off;
worker_processes 1;
{user}
pid {folder}/nginx.pid;
error_log {folder}/logs/nginx-error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/site.conf;
}}
"""


class Cluster:
    """Started on entry, gone on exit; `keeper.programs` by name: postgres, redis, relay-1 ..., backbone-1 ..."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        workers = [f"worker-{number}" for number in range(1, WORKERS + 1)]
        names = ["front", "stores", "relay-1", "relay-2", "backbone-1", "backbone-2", "upkeep", *workers]
        self.hosts: Hosts = make_hosts(names, workers)
        self.keeper = Keeper()
        self._workers = workers
        self._ports: dict[str, int] = {}
        self._postgres: Path | None = None
        self.exit_statuses: dict[str, int] = {}

    def __enter__(self) -> "Cluster":
        self.hosts.__enter__()
        try:
            self._prepare()
            self._start_stores()
            self._start_server()
            for number, name in enumerate(self._workers, 1):
                self._start_worker(name, number)
            self.keeper.start()
            wait_until(self.is_covered, START_SECONDS, "six workers hold every expert", self.keeper)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._postgres is not None:
            shutil.rmtree(self._postgres, ignore_errors=True)
        self.hosts.__exit__(None, None, None)

    def stop(self) -> None:
        """Workers first, stores last; harmless twice."""
        if not self.exit_statuses:
            self.exit_statuses = self.keeper.stop()

    # --- how it is ----------------------------------------------------------------------------------------------------
    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, verify=self.tls, trust_env=False, timeout=60.0, headers=self.headers)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"}

    def stats(self) -> dict[str, Any]:
        """Empty while it does not answer."""
        with suppress(httpx.HTTPError, ValueError), self.client() as client:
            answer = client.get("/api/stats")
            if answer.status_code == httpx.codes.OK:
                found: dict[str, Any] = answer.json()
                return found
        return {}

    def is_covered(self) -> bool:
        stats = self.stats()
        return bool(stats) and self.is_connected(stats) and 0 < stats["experts"]["offered"] <= stats["experts"]["live"]

    @staticmethod
    def is_connected(stats: dict[str, Any]) -> bool:
        """Two backbones, each at two relays."""
        states = [backbone["relays_connected"] for backbone in stats.get("backbones", [])]
        return len(states) == 2 and all(len(state) == 2 and all(state) for state in states)

    def wait_connected(self, seconds: float = 60.0) -> None:
        wait_until(lambda: self.is_connected(self.stats()), seconds, "two backbones at two relays", self.keeper)

    def manage(self, *arguments: str, host: str = "upkeep", **changes: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self.hosts.inside(host), sys.executable, "manage.py", *arguments],
            cwd=ROOT, env={**self.environment, **changes}, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def events(self) -> list[StoredEvent]:
        with psycopg.connect(self.database_url) as connection:
            rows = connection.execute("SELECT position, name, body FROM market_event ORDER BY position").fetchall()
        return [StoredEvent(*row) for row in rows]

    # --- making it ----------------------------------------------------------------------------------------------------
    def _prepare(self) -> None:
        self.folder.chmod(0o755)
        for name in ("logs", "traces"):
            (self.folder / name).mkdir()
        front, stores = self.hosts.address("front"), self.hosts.address("stores")
        for name, wanted in (("front", 443), ("postgres", 5432), ("redis", 6379), ("relay-1", 8001), ("relay-2", 8001)):
            self._ports[name] = self.hosts.port(wanted)
        self.authority = make_certificates(self.folder, [front], days=90)
        self.tls = ssl.create_default_context(cafile=self.authority)
        self.url = f"https://{front}" + ("" if self._ports["front"] == 443 else f":{self._ports['front']}")
        self.redis_url = f"redis://{stores}:{self._ports['redis']}/0"
        self.database_url = f"postgresql://expertswarm@{stores}:{self._ports['postgres']}/expertswarm"
        self._admin_url = f"{self.database_url.rpartition('/')[0]}/postgres"
        hosts = {self.hosts.address(name) for name in ("front", "relay-1", "relay-2")}
        self.environment = {
            **clean_environment(),
            "PYTHONUNBUFFERED": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "SSL_CERT_FILE": str(self.authority),
            "SECRET_KEY": secrets.token_urlsafe(48),
            "BACKBONE_TOKEN": secrets.token_urlsafe(32),
            "ALLOWED_HOSTS": ",".join([*sorted(hosts), "127.0.0.1"]),
            "PUBLIC_URL": self.url,
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "MODEL_PATH": str(DEMO_MODEL),
            "TRUSTED_PROXIES": front,
            "LOG_FORMAT": "json",
            "WEB_DRAIN_SECONDS": "20",
            # Short: most generations are handed over to the other backbone in the middle.
            "BACKBONE_DRAIN_SECONDS": "0.5",
            "BACKBONE_LANES": "2",
            "BACKBONE_SEQUENCES": str(SEQUENCES),
            "BACKBONE_CONTEXT_TOKENS": "256",
            "BACKBONE_THREADS": "1",
            "BACKBONE_TRACE_DIR": str(self.folder / "traces"),
            "CREDIT_WINDOW_SECONDS": "5",
            "SPOOL_SECONDS": str(SPOOL_SECONDS),
            "LEASE_SECONDS": "20",
            "RELAY_PING_SECONDS": "3",
            "RELAY_RECHECK_SECONDS": "5",
            "TARGET_REPLICAS": "2",
        }

    def _start(
        self, name: str, host: str, command: list[str], *, stop_signal: signal.Signals = signal.SIGTERM, **changes: str
    ) -> Program:
        var_dir = self.folder / "var" / name
        var_dir.mkdir(parents=True, mode=0o700)
        return self.keeper.add(
            Program(
                name,
                [*self.hosts.inside(host), *command],
                {**self.environment, "VAR_DIR": str(var_dir), **changes},
                self.folder / "logs" / f"{name}.log",
                stop_signal,
            )
        )

    def _start_stores(self) -> None:
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[-2]))[-1]
        address, port = self.hosts.address("stores"), str(self._ports["postgres"])
        # Not below the test's own folder, which PostgreSQL's user must not enter.
        data = self._postgres = Path(tempfile.mkdtemp(prefix="cluster-postgres-"))
        owner: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(data, "postgres", "postgres")
            owner = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        made = subprocess.run(
            [*owner, programs / "initdb", "-D", data / "data", "-U", "expertswarm", "--auth=trust",
             "--locale=C", "-E", "UTF8"],
            cwd=data, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        with (data / "data" / "pg_hba.conf").open("a") as file:
            file.write("host all all 10.214.0.0/24 trust\n")
        options = {"listen_addresses": address, "unix_socket_directories": str(data), "fsync": "off"}
        settings = [item for name, value in options.items() for item in ("-c", f"{name}={value}")]
        command = [*owner, str(programs / "postgres"), "-D", str(data / "data"), "-p", port, *settings]
        self._start("postgres", "stores", command, stop_signal=signal.SIGINT)
        redis_folder = self.folder / "redis"
        redis_folder.mkdir()
        command = [
            *(str(embedded_redis.find_server()), "--bind", address, "--port", str(self._ports["redis"])),
            *("--protected-mode", "no", "--dir", str(redis_folder), "--appendonly", "yes", "--save", ""),
            *("--maxmemory-policy", "noeviction"),
        ]
        self._start("redis", "stores", command)
        wait_until(self._has_database, 30, "PostgreSQL answers", self.keeper)
        self.make_database("expertswarm")
        migrated = self.manage("migrate", "--verbosity", "0")
        assert migrated.returncode == 0, migrated.stderr
        self.api_key = str(json.loads(self.manage("apikey", "--json", "create", "test").stdout)["key"])

    def make_database(self, name: str) -> str:
        """An empty one; its URL."""
        with psycopg.connect(self._admin_url, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
        return f"{self._admin_url.rpartition('/')[0]}/{name}"

    def _has_database(self) -> bool:
        with suppress(psycopg.OperationalError):
            psycopg.connect(self._admin_url, connect_timeout=2).close()
            return True
        return False

    def _start_server(self) -> None:
        python, quiet = sys.executable, ("--without-gossip", "--without-mingle", "--without-heartbeat")
        for number, program in ((1, "daphne"), (2, "uvicorn")):
            name = f"relay-{number}"
            address, port = self.hosts.address(name), str(self._ports[name])
            own = (f"ws://{address}:{port}/relay/", f"wss{self.url.removeprefix('https')}/relay/{number}/")
            options = {
                "daphne": ["--websocket_timeout", "-1", "--verbosity", "0", "--bind", address, "--port", port],
                "uvicorn": ["--no-access-log", "--ws-per-message-deflate", "false", "--timeout-graceful-shutdown", "5",
                            "--host", address, "--port", port],
            }[program]  # fmt: skip
            command = [python, "-m", program, *options, "config.asgi:application"]
            self._start(name, name, command, RELAY_ADDRESS=own[0], RELAY_PUBLIC_URL=own[1])
        self._start_nginx()
        celery = [python, "-m", "celery", "-A", "config"]
        for number in (1, 2):
            name = f"backbone-{number}"
            pool = ["--pool", "threads", "--concurrency", str(SEQUENCES + 4), "--hostname", f"{name}@test", *quiet]
            self._start(name, name, [*celery, "worker", "--queues", "backbone", *pool])
        pool = ["--pool", "threads", "--concurrency", "2", "--hostname", "upkeep@test", *quiet]
        self._start("upkeep", "upkeep", [*celery, "worker", "--queues", "upkeep", *pool])
        self._start(
            "beat", "upkeep", [*celery, "beat", "--scheduler", "celery.beat:Scheduler", "--pidfile=", "-l", "WARNING"]
        )

    def _start_nginx(self) -> None:
        """deploy/nginx/expertswarm.conf with this network's addresses in place of the example's."""
        site = (ROOT / "deploy" / "nginx" / "expertswarm.conf").read_text()
        front = self.hosts.address("front")
        for number, example in ((1, "10.0.0.11:8001"), (2, "10.0.0.12:8001")):
            name = f"relay-{number}"
            site = site.replace(example, f"{self.hosts.address(name)}:{self._ports[name]}")
        site = site.replace("/etc/ssl/swarm/fullchain.pem", f"{self.folder}/server.pem")
        site = site.replace("/etc/ssl/swarm/privkey.pem", f"{self.folder}/server.key")
        site = site.replace("swarm.example", front)
        if not self.hosts.is_separate:
            site = site.replace("listen 80;", f"listen {front}:{self.hosts.port(80)};")
        site = site.replace("    listen [::]:80;\n", "").replace("    listen [::]:443 ssl;\n", "")
        site = site.replace("listen 443 ssl;", f"listen {front}:{self._ports['front']} ssl;")
        (self.folder / "site.conf").write_text(site)
        # Started by root, nginx would give up its rights and then not reach a private folder.
        user = "user root;" if os.geteuid() == 0 else ""
        (self.folder / "nginx.conf").write_text(OUTER.format(folder=self.folder, user=user))
        log = str(self.folder / "logs" / "nginx-error.log")
        self._start(
            "nginx", "front", ["nginx", "-p", str(self.folder), "-c", str(self.folder / "nginx.conf"), "-e", log]
        )

    def _start_worker(self, name: str, number: int) -> None:
        command = [
            *(sys.executable, "-m", "inference.worker", "--server", self.url, "--ca", str(self.authority)),
            *("--name", name, "--threads", "1", "--experts", str(WORKER_EXPERTS)),
            *("--state", str(self.folder / "state" / name)),
        ]
        self._start(name, name, command)


class ChaosTarget:
    """The cluster as `inference.chaos` sees a server: blows fall on one of several processes; the keeper starts it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.var_dir = cluster.folder
        self.tls: ssl.SSLContext | None = cluster.tls
        self.exit_status: int | None = None
        self.leaked: list[int] = []
        self._relays, self._backbones = cycle(["relay-1", "relay-2"]), cycle(["backbone-1", "backbone-2"])

    def __enter__(self) -> "ChaosTarget":
        return self

    def __exit__(self, *_: object) -> None:
        """The cluster's owner stops it."""

    @property
    def run(self) -> RunFile:
        pids = {name: program.pid for name, program in self.cluster.keeper.programs.items()}
        return RunFile(
            os.getpid(), self.cluster.url, 443, self.cluster.redis_url, self.cluster.database_url,
            self.cluster.api_key, str(DEMO_MODEL), "", pids,
        )  # fmt: skip

    def hit(self, child: str, number: signal.Signals) -> int:
        name = {"web": next(self._relays), "backbone": next(self._backbones)}.get(child, child)
        program = self.cluster.keeper.programs[name]
        pid = program.pid
        program.hit(number)
        return pid

    def manage(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self.cluster.manage(*arguments)

    def events(self) -> list[StoredEvent]:
        return self.cluster.events()

    def stop(self) -> None:
        """The server's processes only: books and credit are judged on the living database."""
        keeper = self.cluster.keeper
        servers = [name for name in keeper.programs if name not in {"postgres", "redis"}]
        statuses = {name: keeper.programs[name].stop() for name in reversed(servers)}
        wrong = {name: status for name, status in statuses.items() if status not in (0, -signal.SIGTERM)}
        self.exit_status = 1 if wrong else 0
        if wrong:
            print(f"ended badly: {wrong}", file=sys.stderr)
