"""The life of one server: own VAR_DIR, start stage by stage, tell the user, run until a signal, stop, clean up."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import redis

from config import embedded_redis
from config.supervisor import plan, readiness, run_file
from config.supervisor.authority import certificate_for
from config.supervisor.greeting import greeting
from config.supervisor.lan import BadName, lan_names
from config.supervisor.private_file import secret
from config.supervisor.supervise import StartFailed, StopRequested, Supervisor

STORE_SECONDS = 30.0
STORE_ANSWER_SECONDS = 5.0
MOST_PORT = 65535
WORKERS_SECONDS = 120.0
SETTLE_SECONDS = 20.0
# `/api/stats` is asked this often while the server starts.
ASK_EVERY_SECONDS = 0.5


def prepare(var_dir: Path) -> str:
    """Makes VAR_DIR (0700) with its folders and secrets (0600); keeps what is there; returns the SECRET_KEY.

    Raises OSError.
    """
    var_dir.mkdir(parents=True, exist_ok=True)
    var_dir.chmod(0o700)
    for name in ("logs", "redis", "workers", "traces"):
        (var_dir / name).mkdir(exist_ok=True)
    (var_dir / "redis").chmod(0o700)
    secret(var_dir / "backbone.token")
    return secret(var_dir / "secret.key")


def free_port(host: str, port: int) -> int:
    """`port`, or a free one for 0; raises StartFailed when another program listens there or the address is wrong."""
    if not 0 <= port <= MOST_PORT:
        raise StartFailed(f"There is no port {port}: choose one from 0 to {MOST_PORT} with --port.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: an address whose last connections are still fading away is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            return int(probe.getsockname()[1])
        except OSError as error:
            hint = "choose another with --port" if port else "check --host"
            raise StartFailed(f"Cannot listen on {host} port {port}: {error.strerror}; {hint}.") from error


def check_store(url: str) -> None:
    """Raises StartFailed, without the URL's password, unless a Redis answers there within a few seconds."""
    try:
        with redis.Redis.from_url(
            url, socket_connect_timeout=STORE_ANSWER_SECONDS, socket_timeout=STORE_ANSWER_SECONDS
        ) as client:
            client.ping()
    except (redis.RedisError, ValueError) as error:
        reason = str(error).rstrip(".")
        raise StartFailed(
            f"The Redis of REDIS_URL does not answer: {reason}. Start it, or unset REDIS_URL to use an embedded one."
        ) from error


@dataclass(frozen=True)
class Lan:
    """What `up --lan` asks for. names: given by the operator; tls_port: None: plain HTTP only, 0: any free one."""

    names: tuple[str, ...] = ()
    tls_port: int | None = None


def opened(options: plan.Options, lan: Lan) -> plan.Options:
    """The options for a server that the local network may use. Raises StartFailed, OSError."""
    try:
        names = lan_names(lan.names)
    except BadName as error:
        raise StartFailed(f"--lan-name: {error}.") from error
    if lan.tls_port is None:
        return replace(options, hosts=names.hosts, public_url=f"http://{names.best}:{options.port}")
    port = free_port("0.0.0.0", lan.tls_port)
    https = plan.Https(port, certificate_for(options.var_dir, names, datetime.now(UTC)))
    return replace(options, hosts=names.hosts, public_url=f"https://{names.best}:{port}", https=https)


class Launch:
    """One run of `up`. `open_database` migrates it and returns the development API key; `say` prints one line."""

    def __init__(
        self,
        options: plan.Options,
        sizes: plan.ExpertSizes,
        *,
        inherited: Mapping[str, str],
        database_url: str,
        open_database: Callable[[], str],
        say: Callable[[str], None],
        start_seconds: float,
        lan: Lan | None = None,
    ) -> None:
        self.options, self.sizes, self.inherited = options, sizes, inherited
        self._database_url, self._open_database, self._say = database_url, open_database, say
        self._start_seconds, self._lan = start_seconds, lan
        self._supervisor = Supervisor(options.logs, options.base_dir, say)
        self._started = time.monotonic()
        self._asked_at = 0.0
        self._workers_started = 0.0
        self._backbones_since = 0.0
        self._socket: Path | None = None
        self._readiness = readiness.Readiness()

    def run(self) -> None:
        """Returns after a clean stop; raises AlreadyRunning, StartFailed, NoRedisServer, OSError."""
        secret_key = prepare(self.options.var_dir)
        with run_file.owned(self.options.var_dir), self._supervisor.signals_handled():
            port = free_port(self.options.host, self.options.port)
            local_invite = secret(self.options.var_dir / "local.invite")
            self.options = replace(self.options, port=port, secret_key=secret_key, local_invite=local_invite)
            if self._lan is not None:
                self.options = opened(self.options, self._lan)
            try:
                self._start_store()
                api_key = self._open_database()
                self._tell("database", "up to date")
                self._start_server()
                self._start_workers()
                self._note(api_key)
                self._greet()
                self._supervisor.run()
            except StopRequested:
                self._say("Asked to stop while starting.")
            finally:
                self._say("Stopping ...")
                self._supervisor.stop()
                self._remove_socket()
                self._say("Stopped.")

    def _start_store(self) -> None:
        """Starts the embedded Redis unless a URL is given."""
        if self.options.redis_url:
            check_store(self.options.redis_url)
            return
        # This Redis is ours alone: a backbone that it remembers from before is dead.
        self._backbones_since = time.time()
        path = self._socket = embedded_redis.socket_path(self.options.redis_dir)
        path.unlink(missing_ok=True)
        self._supervisor.start([plan.store(self.options, path, self.inherited)])
        self._supervisor.wait_until(lambda: embedded_redis.answers(path), "Redis", STORE_SECONDS, "redis")
        self.options = replace(self.options, redis_url=embedded_redis.url(path))
        self._tell("redis", f"embedded, {path}")

    def _remove_socket(self) -> None:
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)
            if self._socket.parent != self.options.redis_dir:
                self._socket.parent.rmdir()

    def _start_server(self) -> None:
        self._supervisor.start(plan.server(self.options, self.inherited))
        self._wait(lambda now: now.answers, "The web server", self._start_seconds, "web")
        self._tell("web", self.options.url)
        self._wait(lambda now: now.backbone, "The backbone", self._start_seconds, "backbone")
        self._tell("backbone", f"{self.options.model.name}, {self._readiness.experts_offered} experts to share")

    def _start_workers(self) -> None:
        """Workers that get no work in time are a warning only: the backbone computes every expert itself."""
        if not self.options.workers:
            return
        if not self.sizes.experts:
            self._say("Warning: workers cannot compute the experts of this model; the backbone does it alone.")
            return
        self._workers_started = time.monotonic()
        self._supervisor.start(plan.workers(self.options, self.sizes, self.inherited))
        try:
            self._wait(self._workers_hold_enough, "The local workers", WORKERS_SECONDS, "local-1")
        except StartFailed as error:
            self._say(f"Warning: {error}\nThe server works without them.")
        now = self._readiness
        self._tell("workers", f"{now.workers_live} hold {now.experts_live} of {now.experts_offered} experts")

    def _workers_hold_enough(self, now: readiness.Readiness) -> bool:
        """All local workers serve, and every expert is held unless their budgets are too small for that.

        Experts that others hold already leave a local worker idle: after a while one that serves is enough.
        """
        budget = self.options.budget_bytes or plan.budget_per_worker(self.sizes, self.options.workers)
        room = self.options.workers * (budget // self.sizes.largest_bytes)
        if now.workers_live >= self.options.workers:
            return now.is_covered or room < self.sizes.experts
        return now.workers_live > 0 and now.is_covered and time.monotonic() > self._workers_started + SETTLE_SECONDS

    def _wait(self, is_ready: Callable[[readiness.Readiness], bool], what: str, seconds: float, suspect: str) -> None:
        def look() -> bool:
            if time.monotonic() - self._asked_at >= ASK_EVERY_SECONDS:
                self._readiness = readiness.ask(self.options.url, self._backbones_since)
                self._asked_at = time.monotonic()
            return is_ready(self._readiness)

        self._supervisor.wait_until(look, what, seconds, suspect)

    def _note(self, api_key: str) -> None:
        """Writes run.json now and whenever a child has a new process id."""
        started = datetime.now(UTC).isoformat(timespec="seconds")

        def write() -> None:
            run = run_file.RunFile(
                pid=os.getpid(),
                url=self.options.url,
                port=self.options.port,
                redis_url=self.options.redis_url,
                database_url=self._database_url,
                api_key=api_key,
                model=str(self.options.model),
                started=started,
                pids=self._supervisor.pids,
            )
            run_file.write(self.options.var_dir, run)

        write()
        self._supervisor.on_change = write

    def _tell(self, part: str, detail: str) -> None:
        self._say(f"  {part:<10} ready after {time.monotonic() - self._started:5.1f} s   {detail}")

    def _greet(self) -> None:
        self._say(greeting(self.options))
