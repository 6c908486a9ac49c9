"""The server's processes for `bench scale`: web processes over one database and one Redis, and clients that obey."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config import embedded_redis
from inference.benchmarks.api.stack import Child, wait_until
from inference.benchmarks.overhead import SideFailed
from market import commands
from market.benchmarks.databases import INSTALL_HINT, postgres_database, postgres_server
from market.builds import BuildDescription

WEB = 2


@dataclass(frozen=True)
class ScaleStack:
    """ports: of the web processes; tokens: of all registered devices; environment: of every process."""

    ports: tuple[int, ...]
    tokens: tuple[str, ...]
    environment: dict[str, str]
    folder: Path

    @contextmanager
    def child(self, name: str, module: str, *arguments: str) -> Iterator[Child]:
        command = [sys.executable, "-m", module, *arguments]
        with Child(name, command, self.environment, self.folder / f"{name}.log") as found:
            yield found


@contextmanager
def running_stack(folder: Path, devices: int, build: BuildDescription) -> Iterator[ScaleStack]:
    """Two web processes (uvicorn) over PostgreSQL and Redis, and so many registered devices. Raises SideFailed."""
    with ExitStack() as stack:
        server = stack.enter_context(postgres_server())
        if server is None:
            raise SideFailed("PostgreSQL", f"none is there: {INSTALL_HINT}", "")
        where = stack.enter_context(postgres_database(server))
        folder.chmod(0o700)
        redis_folder = folder / "redis"
        redis_folder.mkdir(mode=0o700)
        redis_url = stack.enter_context(embedded_redis.running(redis_folder))
        environment = {
            **os.environ,
            "DATABASE_URL": url_of(where),
            "REDIS_URL": redis_url,
            "VAR_DIR": str(folder),
            "API_REQUESTS_PER_MINUTE": "0",
            "OPENBLAS_NUM_THREADS": "1",
        }
        commands.publish_build(build)
        tokens = tuple(commands.register_node(f"device {number}", "numpy")[1] for number in range(devices))
        ports = tuple(_free_port() for _ in range(WEB))
        children = [stack.enter_context(_web(port, environment, folder)) for port in ports]
        wait_until(lambda: all(map(_listens, ports)), children)
        yield ScaleStack(ports, tokens, environment, folder)


def url_of(where: dict[str, Any]) -> str:
    """The database's URL from what psycopg needs to connect to it."""
    password = f":{where['password']}" if where["password"] else ""
    return f"postgresql://{where['user']}{password}@{where['host']}:{where['port']}/{where['dbname']}"


def _web(port: int, environment: dict[str, str], folder: Path) -> Child:
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "--log-level",
        "warning",
        "--port",
        str(port),
        "config.asgi:application",
    ]
    return Child(f"web-{port}", command, environment, folder / f"web-{port}.log")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
