"""The server that `bench api` measures: the processes of `manage.py up`, with a backbone that also takes orders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis

from config import embedded_redis
from config.supervisor import plan, private_file, readiness
from config.supervisor.launch import free_port
from inference.benchmarks.overhead import SideFailed
from inference.synthetic import DEMO_MODEL

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 120.0
# Answers of the children stand behind this mark: Celery writes to standard output too.
MARK = "ANSWER "
CONTEXT_TOKENS = 1024


class Child:
    """A process that obeys lines of JSON with one marked answer line each; leaving the context ends it."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.name, self._log = name, log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True,
            )  # fmt: skip

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()

    def ask(self, **order: Any) -> dict[str, Any]:
        """Raises SideFailed when the process died or failed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise self.failed() from error
        for line in self.process.stdout:
            if line.startswith(MARK):
                answer: dict[str, Any] = json.loads(line.removeprefix(MARK))
                if "error" in answer:
                    raise SideFailed(self.name, str(answer["error"]), self._tail())
                return answer
        raise self.failed()

    def failed(self) -> SideFailed:
        return SideFailed(self.name, f"ended with {self.process.wait(30)}", self._tail())

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def cpu_seconds(self) -> float:
        """Processor time so far, from /proc."""
        values = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        """Resident memory, from /proc."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


class Stack:
    """A running server: its web server, its backbone, its Redis and a process that plays all clients."""

    def __init__(self, web: Child, backbone: Child, clients: Child, redis_url: str) -> None:
        self._web, self._backbone, self._clients, self._redis_url = web, backbone, clients, redis_url

    def over_http(self, clients: int, tokens: int) -> dict[str, Any]:
        answer = self._with_cpu(lambda: self._clients.ask(clients=clients, tokens=tokens))
        return {**answer, **self._clients.ask(check=tokens)}

    def engine_alone(self, clients: int, tokens: int) -> dict[str, Any]:
        return self._with_cpu(lambda: self._backbone.ask(sequences=clients, tokens=tokens))

    def _with_cpu(self, action: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Adds `cpu_seconds`: what all processes of the server and the clients used meanwhile."""
        before = self._cpu_seconds()
        answer = action()
        return {**answer, "cpu_seconds": self._cpu_seconds() - before}

    def _cpu_seconds(self) -> float:
        with redis.Redis.from_url(self._redis_url) as client:
            store: Any = client.info("cpu")
        processes = (self._web, self._backbone, self._clients)
        own = sum(child.cpu_seconds() for child in processes)
        return own + float(store["used_cpu_user"]) + float(store["used_cpu_sys"])

    def memory(self) -> dict[str, int]:
        return {"web": self._web.memory_bytes(), "backbone": self._backbone.memory_bytes()}


@contextmanager
def running_stack(folder: Path, *, sequences: int, threads: int) -> Iterator[Stack]:
    """Raises SideFailed, NoRedisServer."""
    with ExitStack() as stack:
        folder.chmod(0o700)
        redis_folder = folder / "redis"
        redis_folder.mkdir(mode=0o700)
        options = plan.Options(
            var_dir=folder,
            base_dir=ROOT,
            model=DEMO_MODEL,
            host="127.0.0.1",
            port=free_port("127.0.0.1", 0),
            workers=0,
            sequences=sequences,
            redis_url=stack.enter_context(embedded_redis.running(redis_folder)),
            secret_key=private_file.secret(folder / "secret.key"),
        )
        private_file.secret(folder / "backbone.token")
        environment = {
            **plan.server_environment(options, os.environ),
            "DATABASE_URL": "",
            "BACKBONE_SEQUENCES": str(sequences),
            "BACKBONE_CONTEXT_TOKENS": str(CONTEXT_TOKENS),
            "BACKBONE_THREADS": str(threads),
            "API_REQUESTS_PER_MINUTE": "0",
        }
        key = prepare_database(environment)

        def child(name: str, command: list[str]) -> Child:
            return stack.enter_context(Child(name, command, environment, folder / f"{name}.log"))

        web_command = next(spec.command for spec in plan.server(options, environment) if spec.name == "web")
        web = child("web", list(web_command))
        backbone = child("backbone", [sys.executable, "-m", "inference.benchmarks.api.backbone"])
        clients = child("clients", [sys.executable, "-m", "inference.benchmarks.api.clients", options.url, key])
        wait_until(lambda: readiness.ask(options.url).backbone, [web, backbone, clients])
        yield Stack(web, backbone, clients, options.redis_url)


def prepare_database(environment: dict[str, str]) -> str:
    """Makes the tables and an API key; returns the key."""

    def manage(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise SideFailed(f"manage.py {arguments[0]}", f"exit status {done.returncode}", done.stderr[-2000:])
        return done.stdout

    manage("migrate", "--verbosity", "0")
    return str(json.loads(manage("apikey", "--json", "create", "bench api"))["key"])


def wait_until(is_ready: Callable[[], bool], children: list[Child]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_ready():
        for one in children:
            if one.process.poll() is not None:
                raise one.failed()
        if time.monotonic() > deadline:
            raise SideFailed("server", f"not ready within {START_SECONDS:g} s", "")
        time.sleep(0.2)
