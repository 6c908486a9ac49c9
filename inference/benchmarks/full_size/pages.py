"""Arm `pages`: a model of 12,288 offered experts before anybody computes: index, `inspect`, publishing, heat map.

The file may be sparse (`tools.make_shape --sparse`): only its header and the samples of its fingerprint are read.
Django must be set up before this is imported. Pages are timed in process, from request to last byte.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client, override_settings
from django.utils import timezone

from config import embedded_redis
from inference.benchmarks.progress import ProgressBar
from inference.benchmarks.relay.processes import ROOT
from inference.benchmarks.report import Result
from inference.gguf_index import open_index
from inference.reports import build_description
from market import commands
from market.benchmarks import databases, large
from market.builds import BuildDescription

REPETITIONS = 7
DEVICES, CLAIMS = 500, 4_000
# The peak is read from the process's own memory map: what a parent is told of a child begins with the parent's own.
INDEX_PROGRAM = """
import json, sys, time
from pathlib import Path
from inference.gguf_index import open_index
before = time.perf_counter()
index = open_index(Path(sys.argv[1]))
seconds = time.perf_counter() - before
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps({"seconds": seconds, "peak_bytes": 1024 * int(status["VmHWM"].split()[0])}))
"""


def pages(model: Path, progress: ProgressBar) -> Iterator[Result]:
    """Cases `pages/...`."""
    progress(0.0, "index")
    found = [json.loads(_output("-c", INDEX_PROGRAM, model)) for _ in range(3)]
    peak = max(one["peak_bytes"] for one in found)
    build = build_description(open_index(model))
    experts = len(build.layers) * build.experts_per_layer
    note = f"{experts} experts on offer; at most {peak / 1e6:.0f} MB resident"
    yield Result(
        "pages/index", "s", [one["seconds"] for one in found],
        extra={"experts": experts, "peak_bytes": peak, "file_bytes": model.stat().st_size, "note": note},
    )  # fmt: skip
    progress(0.2, "manage.py inspect")
    yield _inspect(model)
    with tempfile.TemporaryDirectory(prefix="full-size-") as folder, embedded_redis.running(Path(folder)) as url:
        progress(0.4, "publishing")
        with databases.sqlite_database():
            yield _published(build)
        progress(0.5, "a market")
        with databases.sqlite_database(), _operator(build, url) as client:
            for case, address in _addresses(build):
                progress(0.7, case)
                yield _page(client, case, address)


def _output(*arguments: object) -> str:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _inspect(model: Path) -> Result:
    """The whole command, Python's start included."""
    samples, size = [], 0
    for _ in range(2):
        began = time.perf_counter()
        size = len(_output("manage.py", "inspect", model, "--json"))
        samples.append(time.perf_counter() - began)
    return Result("pages/inspect", "s", samples, extra={"bytes": size, "note": f"{size} bytes of JSON"})


def _published(build: BuildDescription) -> Result:
    began = time.perf_counter()
    commands.publish_build(build)
    took = time.perf_counter() - began
    size = len(json.dumps(asdict(build)))
    return Result(
        "pages/publish", "ms", [1000 * took], extra={"bytes": size, "note": f"one event, a description of {size} bytes"}
    )


@contextmanager
def _operator(build: BuildDescription, redis_url: str) -> Iterator[Client]:
    """An operator's client of a market with devices and claims, where Redis is at that address."""
    large.write(build, DEVICES, CLAIMS, timezone.now())
    caches = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_url}}
    with override_settings(REDIS_URL=redis_url, CACHES=caches):
        client = Client(SERVER_NAME="localhost")
        client.force_login(User.objects.create_superuser("bench"))
        yield client


def _addresses(build: BuildDescription) -> list[tuple[str, str]]:
    return [
        ("heat map", "/operator/"),
        ("cells", f"/operator/cells?build={build.fingerprint}&measure=replicas"),
        ("layer", f"/operator/layer/{build.fingerprint}/{build.layers[-1]}"),
        ("status", "/status"),
    ]


def _page(client: Client, case: str, address: str) -> Result:
    """Milliseconds, each time with an empty cache. Raises RuntimeError for any other answer than a page."""
    samples, size = [], 0
    for _ in range(REPETITIONS):
        cache.clear()
        began = time.perf_counter()
        answer = client.get(address)
        size = len(answer.content)
        samples.append(1000 * (time.perf_counter() - began))
        if answer.status_code != 200:
            raise RuntimeError(f"{address} answered {answer.status_code}")
    return Result(f"pages/{case}", "ms", samples, extra={"bytes": size, "note": f"{size} bytes"})
