"""Clients that forgive nothing: every request must be answered whole at the first attempt."""

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from inference.chaos.load import request_body
from tests.cluster.cluster import Cluster

TOKENS = 40


@dataclass
class StrictTally:
    finished: int = 0
    failures: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0


class StrictLoad:
    """Streams from `clients` threads while the block runs; every one ends its request before the block does."""

    def __init__(self, cluster: Cluster, clients: int = 6) -> None:
        self.tally = StrictTally()
        self._cluster = cluster
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(clients)]
        with cluster.client() as client:
            self._model = str(client.get("/v1/models").json()["data"][0]["id"])

    def __enter__(self) -> "StrictLoad":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(120)
        stuck = sum(thread.is_alive() for thread in self._threads)
        self.tally.failures += ["a request never ended"] * stuck

    def wait_for_answers(self, count: int, seconds: float = 60.0) -> int:
        """Until so many more requests have ended; how many did."""
        before, deadline = self.tally.finished, time.monotonic() + seconds
        while self.tally.finished < before + count and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.tally.finished - before

    def _run(self, number: int) -> None:
        # A new connection for every request, as separate users have.
        while not self._stopping.is_set():
            began = time.monotonic()
            with self._cluster.client() as client:
                problem = self._ask(client, request_body(number, self._model))
            with self._lock:
                seconds = time.monotonic() - began
                if problem:
                    self.tally.failures.append(f"after {seconds:.2f} s: {problem}")
                else:
                    self.tally.finished += 1
                self.tally.slowest_seconds = max(self.tally.slowest_seconds, seconds)

    @staticmethod
    def _ask(client: httpx.Client, body: dict[str, Any]) -> str:
        """What is wrong with the answer; empty: nothing."""
        finish, ended = None, False
        try:
            with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as answer:
                if answer.status_code != httpx.codes.OK:
                    return f"{answer.status_code}: {answer.read()[:300].decode(errors='replace')}"
                for line in answer.iter_lines():
                    if line == "data: [DONE]":
                        ended = True
                    elif line.startswith("data: "):
                        data = json.loads(line.removeprefix("data: "))
                        if "error" in data:
                            return str(data["error"])
                        finish = data["choices"][0]["finish_reason"] or finish
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}"
        return "" if ended and finish == "length" else f"ended: {ended}, finish: {finish}"
