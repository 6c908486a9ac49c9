"""`bench dashboard`: the operator's pages at 12,544 experts, 10,000 replicas and 2,000 nodes.

Server time is that of the whole Django stack, in process, from request to last byte; the heat map is drawn by Chromium,
whose processor is slowed down four times through its debugging protocol. Limits are the issue's.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.core.cache import cache
from django.test import Client, override_settings
from django.utils import timezone

from config import embedded_redis
from inference import backbone_status
from inference.benchmarks.progress import ProgressBar
from inference.benchmarks.report import Result
from inference.chromium import chromium
from inference.models import GenerationJob
from market import presence, queries
from market.benchmarks import databases, large
from market.builds import BuildDescription

SERVER_MILLISECONDS, PAYLOAD_BYTES, REDRAW_MILLISECONDS = 100.0, 30_000, 16.0
FIRST_LOAD_BYTES = 200_000
THROTTLE = 4
HOST = "localhost"
BUILD = BuildDescription(
    "0" * 32, "122B", "qwen35moe", 3072, 1024, 256, 8, tuple(range(49)), (5_308_416,) * 49, (("Q4_K",),) * 49
)
MEASURES = ("replicas", "deficit", "demand", "reward", "latency", "hot", "errors")
POLICY = "budget=5000&ceiling=10&target_replicas=3&maximum_replicas=8&target_bytes_percent=68&standby_percent=5"


@dataclass(frozen=True)
class Sizes:
    nodes: int
    replicas: int
    jobs: int
    repetitions: int
    redraws: int


FULL = Sizes(2_000, 10_000, 5_000, 15, 60)
QUICK = Sizes(60, 200, 20, 2, 5)


def dashboard(cache_folder: Path, *, quick: bool, threads: int, progress: ProgressBar) -> list[Result]:
    """All cases. threads: of no use here. Raises NoBrowser where there is no Chromium."""
    sizes = QUICK if quick else FULL
    progress(0.0, "a large market")
    with _server(cache_folder, sizes) as client:
        results = []
        pages = _pages()
        for number, (case, address) in enumerate(pages):
            progress(0.1 + 0.7 * number / len(pages), case)
            results.append(_page(client, case, address, sizes.repetitions))
        progress(0.8, "heat map in Chromium")
        results += _drawn(client, sizes)
    return results


@contextmanager
def _server(folder: Path, sizes: Sizes) -> Iterator[Client]:
    """An operator's client on a new database and a new Redis that hold the large market."""
    with embedded_redis.running(folder) as url, databases.sqlite_database(), _redis_settings(url):
        large.write(BUILD, sizes.nodes, sizes.replicas, timezone.now())
        GenerationJob.objects.bulk_create(
            GenerationJob(model="122B", state="done" if number else "running", finish="stop", generated_count=number)
            for number in range(sizes.jobs)
        )
        client = Client(SERVER_NAME=HOST)
        client.force_login(User.objects.create_superuser("bench"))
        yield client


@contextmanager
def _redis_settings(url: str) -> Iterator[None]:
    caches = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}}
    with override_settings(REDIS_URL=url, CACHES=caches):
        yield


def _pages() -> list[tuple[str, str]]:
    """(case, address)."""
    node = _speak()
    return [
        ("coverage", "/operator/"),
        *((f"cells {measure}", f"/operator/cells?build={BUILD.fingerprint}&measure={measure}") for measure in MEASURES),
        ("layer", f"/operator/layer/{BUILD.fingerprint}/12"),
        ("cell", f"/operator/cell/{BUILD.fingerprint}/12/34"),
        ("series", "/operator/series?minutes=1440"),
        ("nodes", "/operator/nodes?sort=-earned"),
        ("node", f"/operator/nodes/{node}"),
        ("builds", "/operator/builds"),
        ("requests", "/operator/requests"),
        ("alerts", "/operator/alerts"),
        ("policy", f"/operator/policy?{POLICY}"),
    ]


def _speak() -> str:
    """A backbone's status with a time for every node; a node that holds something."""
    nodes = list(dict.fromkeys(claim.node_id for claim in queries.open_claims(BUILD.fingerprint)))
    presence.mark_all_seen(nodes, timezone.now())
    owners = {node: {"seconds": 0.02 + 0.001 * (i % 70), "answers": 9} for i, node in enumerate(nodes)}
    status = {"started": time.time(), "build": BUILD.fingerprint, "model": BUILD.name, "owners": owners,
              "failures": [[node, "late", 3] for node in nodes[::10]]}  # fmt: skip
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        backbone_status.publish(client, "bench", status)
        client.persist(backbone_status.KEY_PREFIX + "bench")
    return nodes[0]


def _page(client: Client, case: str, address: str, repetitions: int) -> Result:
    """Milliseconds, each time with an empty cache of figures: the first visitor's time."""
    samples, size = [], 0
    for _ in range(repetitions):
        cache.delete("inference/stats")
        started = time.perf_counter()
        answer = client.get(address)
        size = len(answer.content)
        samples.append(1000 * (time.perf_counter() - started))
        if answer.status_code != 200:
            raise RuntimeError(f"{address} answered {answer.status_code}")
    result = Result(case, "ms", samples, extra={"bytes": size})
    limits = [(result.value <= SERVER_MILLISECONDS, f"server time at most {SERVER_MILLISECONDS:.0f} ms")]
    if case.startswith("cells"):
        limits.append((size <= PAYLOAD_BYTES, f"at most {PAYLOAD_BYTES} bytes"))
    return _judged(result, limits, f"{size} bytes")


def _judged(result: Result, limits: list[tuple[bool, str]], note: str) -> Result:
    met = all(kept for kept, _ in limits)
    what = ", ".join(words for _, words in limits)
    extra = {**result.extra, "goal": None, "goal_what": what, "met": met,
             "note": f"{note}; {what}: {'met' if met else 'MISSED'}"}  # fmt: skip
    return Result(result.case, result.unit, result.samples, extra=extra)


# --- in the browser ---------------------------------------------------------------------------------------------------
def _drawn(client: Client, sizes: Sizes) -> list[Result]:
    """What the first page loads, and how long the map takes to be drawn again. Raises NoBrowser."""
    loaded: dict[str, int] = {}
    # Playwright's loop runs in this thread, and Django's database does not work inside a loop.
    with ThreadPoolExecutor(1) as server, chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})

        def answer(route: Any) -> None:
            address = route.request.url.partition(HOST)[2]
            body, kind = server.submit(_served, client, address).result()
            loaded[address.partition("?")[0]] = len(body)
            route.fulfill(body=body, content_type=kind)

        page.route("**/*", answer)
        page.goto(f"http://{HOST}/operator/")
        page.wait_for_selector("#legend li")
        first_load = sum(loaded.values())
        page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": THROTTLE})
        redraws = page.evaluate(REDRAW, {"count": sizes.redraws, "cells": f"/operator/cells?build={BUILD.fingerprint}"})
    drawn = Result("redraw", "ms", redraws["draw"], extra={"size": redraws["size"]})
    shown = Result("redraw after new cells", "ms", redraws["show"])
    load = Result("first load of coverage", "bytes", [float(first_load)], extra={"files": loaded})
    limit = f"at most {REDRAW_MILLISECONDS:.0f} ms at {THROTTLE}x throttling"
    return [
        _judged(drawn, [(drawn.value <= REDRAW_MILLISECONDS, limit)], "12,544 cells"),
        _judged(shown, [(shown.value <= REDRAW_MILLISECONDS, limit)], "decode, colour and draw 12,544 cells"),
        _judged(load, [(first_load <= FIRST_LOAD_BYTES, f"at most {FIRST_LOAD_BYTES} bytes")], "uncompressed"),
    ]


# The page's own module; reading a pixel back makes the browser finish what it only queued.
REDRAW = """async ({ count, cells }) => {
    const { draw, show } = await import("/static/frontend/operator/heat_map.js");
    const canvas = document.getElementById("map");
    const finish = () => canvas.getContext("2d").getImageData(0, 0, 1, 1);
    const found = await (await fetch(cells)).json();
    const time = (act) => { const began = performance.now(); act(); finish(); return performance.now() - began; };
    const times = { draw: [], show: [], size: [canvas.width, canvas.height] };
    for (let i = 0; i < count; i++) {
        times.draw.push(time(draw));
        times.show.push(time(() => show(found)));
        await new Promise(requestAnimationFrame);
    }
    return times;
}"""


def _served(client: Client, address: str) -> tuple[bytes, str]:
    """A page of the server or a file of its pages: (body, content type)."""
    name = address.removeprefix("/" + settings.STATIC_URL.lstrip("/"))
    found = finders.find(name) if name != address else None
    if isinstance(found, str):
        kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
        return Path(found).read_bytes(), kinds.get(Path(found).suffix, "application/octet-stream")
    answer = client.get(address)
    return answer.content, answer["Content-Type"]
