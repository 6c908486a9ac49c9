"""Which processes make up a server, in which order they start, how each is stopped: a pure function of the options."""

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from config import embedded_redis
from config.supervisor.authority import Certificate

# Tasks beside the generations (canary, cancellations) still find a thread when every sequence is busy.
SPARE_BACKBONE_THREADS = 4
UPKEEP_THREADS = 2
# Local workers hold no more than this together unless --budget says so: a 122B model has 65 GB of experts.
MOST_LOCAL_BYTES = 2 << 30
SECRET_NAMES = ("SECRET_KEY", "BACKBONE_TOKEN", "EXPERTSWARM_TOKEN")


class Stage(IntEnum):
    """Children start in this order and stop in the reverse one."""

    STORE = 0
    SERVER = 1
    BACKBONE = 2
    WORKERS = 3


@dataclass(frozen=True)
class ChildSpec:
    """One process. After `stop_signal` it has `stop_seconds` to end, then its process group is killed."""

    name: str
    stage: Stage
    command: tuple[str, ...]
    environment: Mapping[str, str]
    stop_seconds: float
    stop_signal: signal.Signals = signal.SIGTERM


@dataclass(frozen=True)
class ExpertSizes:
    """What the local workers share: experts offered by the model, and the bytes of its largest one."""

    experts: int
    largest_bytes: int


@dataclass(frozen=True)
class Https:
    """Where the web server listens for HTTPS and WSS beside plain HTTP, on all addresses, and with which files."""

    port: int
    certificate: Certificate

    @property
    def endpoint(self) -> str:
        """As Twisted, below Daphne, reads it; colons separate its fields."""
        key, certificate = (
            str(path).replace(":", r"\:") for path in (self.certificate.key, self.certificate.certificate)
        )
        return f"ssl:{self.port}:interface=0.0.0.0:privateKey={key}:certKey={certificate}"


@dataclass(frozen=True)
class Options:
    """`redis_url` empty: an embedded server. `budget_bytes` None: enough that all workers hold each expert once.
    `sequences`: of each of the `backbones`, which share the cores.

    `local_invite`: lets this server's own workers in, whoever else may register.

    `hosts`: names by which other devices may come in; `public_url`: where they do, empty: only this machine comes in.
    """

    var_dir: Path
    base_dir: Path
    model: Path
    host: str
    port: int
    workers: int
    sequences: int
    redis_url: str
    secret_key: str
    budget_bytes: int | None = None
    trace: bool = False
    backbones: int = 1
    hosts: tuple[str, ...] = ()
    public_url: str = ""
    https: Https | None = None
    local_invite: str = ""

    @property
    def url(self) -> str:
        """Where this machine reaches the server; a wildcard address is reached through the loopback one."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def logs(self) -> Path:
        return self.var_dir / "logs"

    @property
    def redis_dir(self) -> Path:
        return self.var_dir / "redis"


def budget_per_worker(sizes: ExpertSizes, workers: int) -> int:
    """Bytes such that `workers` together hold every expert once, one more each for what does not divide evenly."""
    wanted = (-(-sizes.experts // workers) + 1) * sizes.largest_bytes
    return max(sizes.largest_bytes, min(wanted, MOST_LOCAL_BYTES // workers))


def relay_url(url: str) -> str:
    """http://host:port -> ws://host:port/relay/, https -> wss."""
    return f"ws{url.removeprefix('http').rstrip('/')}/relay/"


def server_environment(options: Options, inherited: Mapping[str, str]) -> dict[str, str]:
    """Environment of the server's own processes: the settings that `up` decides, over what the user has set."""
    public_url = inherited.get("PUBLIC_URL") or options.public_url or options.url
    environment = {
        **inherited,
        "VAR_DIR": str(options.var_dir),
        "MODEL_PATH": str(options.model),
        "REDIS_URL": options.redis_url,
        "PUBLIC_URL": public_url,
        # The backbone dials this machine's relay, whatever name strangers use for it.
        "RELAY_ADDRESS": inherited.get("RELAY_ADDRESS") or options.url.replace("http://", "ws://") + "/relay/",
        "RELAY_PUBLIC_URL": inherited.get("RELAY_PUBLIC_URL") or relay_url(public_url),
        "SECRET_KEY": inherited.get("SECRET_KEY") or options.secret_key,
        "PYTHONUNBUFFERED": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    if options.trace:
        environment["BACKBONE_TRACE_DIR"] = str(options.var_dir / "traces")
    if options.hosts and not inherited.get("ALLOWED_HOSTS"):
        environment["ALLOWED_HOSTS"] = ",".join(options.hosts)
    elif options.host not in {"127.0.0.1", "localhost", "::1"} and not inherited.get("ALLOWED_HOSTS"):
        environment["ALLOWED_HOSTS"] = (
            "*" if options.host in {"0.0.0.0", "::"} else f"{options.host},localhost,127.0.0.1"
        )
    return environment


def worker_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """A local worker is a stranger like any other: it gets none of the server's secrets, and one thread."""
    kept = {name: value for name, value in inherited.items() if name not in SECRET_NAMES}
    return {**kept, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def store(options: Options, socket: Path, inherited: Mapping[str, str]) -> ChildSpec:
    """The embedded Redis server; kept on disk, so that queued work survives its crash."""
    command = embedded_redis.command(embedded_redis.find_server(), options.redis_dir, socket, keep=True)
    return ChildSpec("redis", Stage.STORE, tuple(command), dict(inherited), stop_seconds=10.0)


def server(options: Options, inherited: Mapping[str, str]) -> list[ChildSpec]:
    """Daphne, both Celery workers and beat."""
    environment = server_environment(options, inherited)
    celery = (sys.executable, "-m", "celery", "-A", "config")
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO")

    def worker(queue: str, threads: int, name: str = "") -> tuple[str, ...]:
        pool = ("--pool", "threads", "--concurrency", str(threads))
        return (*celery, "worker", "--queues", queue, "--hostname", f"{name or queue}@%h", *pool, *quiet)

    web = (
        *(sys.executable, "-m", "daphne", "--bind", options.host, "--port", str(options.port)),
        *(("--endpoint", options.https.endpoint) if options.https else ()),
        # Daphne would end every relay session after a day; the relay has timers of its own.
        *("--websocket_timeout", "-1", "--no-server-name", "config.asgi:application"),
    )
    # In memory: the timetable is fixed and short, and a schedule file that a killed beat left behind keeps it from
    # ever starting again.
    beat = (*celery, "beat", "--scheduler", "celery.beat:Scheduler", "--pidfile", "", "--loglevel", "WARNING")
    threads = options.sequences + SPARE_BACKBONE_THREADS
    backbone_environment = environment
    if options.backbones > 1 and not inherited.get("BACKBONE_THREADS"):
        cores = len(os.sched_getaffinity(0))
        backbone_environment = {**environment, "BACKBONE_THREADS": str(max(1, cores // options.backbones))}
    return [
        ChildSpec("web", Stage.SERVER, web, environment, stop_seconds=10.0),
        ChildSpec("upkeep", Stage.SERVER, worker("upkeep", UPKEEP_THREADS), environment, stop_seconds=15.0),
        # Longer than BACKBONE_DRAIN_SECONDS by default plus the last write of the credit spool.
        *(
            ChildSpec(name, Stage.BACKBONE, worker("backbone", threads, name), backbone_environment, stop_seconds=40.0)
            for name in backbone_names(options.backbones)
        ),
        ChildSpec("beat", Stage.BACKBONE, beat, environment, stop_seconds=5.0),
    ]


def backbone_names(count: int) -> list[str]:
    """backbone, backbone-2, backbone-3 ..."""
    return ["backbone", *(f"backbone-{number}" for number in range(2, count + 1))]


def workers(options: Options, sizes: ExpertSizes, inherited: Mapping[str, str]) -> list[ChildSpec]:
    """The local expert workers; each keeps its identity and slices in a folder of its own."""
    if not options.workers:
        return []
    budget = options.budget_bytes or budget_per_worker(sizes, options.workers)
    environment = {**worker_environment(inherited), "EXPERTSWARM_INVITE": options.local_invite}
    # The server tells its workers all its relays, those over TLS too.
    trust = ("--ca", str(options.https.certificate.authority)) if options.https else ()
    return [
        ChildSpec(
            f"local-{number}",
            Stage.WORKERS,
            (
                *(sys.executable, "-m", "inference.worker", "--server", options.url, "--name", f"local-{number}"),
                *("--state", str(options.var_dir / "workers" / str(number))),
                *("--budget", str(budget), "--threads", "1", *trust),
            ),
            environment,
            stop_seconds=15.0,
        )
        for number in range(1, options.workers + 1)
    ]
