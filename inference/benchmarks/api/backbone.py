"""The measured backbone: the Celery worker of queue `backbone` as `manage.py up` starts it, and a thread that obeys.

{"sequences": N, "tokens": T}  N requests straight to the engine -> {"tokens": ..., "seconds": ...}
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import uuid
from typing import Any, TextIO

from config.celery import app
from inference.benchmarks.api.stack import MARK
from inference.benchmarks.api.workload import SAMPLING, prompt
from inference.errors import InferenceError

SPARE_THREADS = 4


def main() -> None:
    from django.conf import settings

    # Celery makes log lines of whatever goes to standard output: the answers need a way of their own.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    threading.Thread(target=obey, args=(answers,), name="orders", daemon=True).start()
    threads = settings.BACKBONE_SEQUENCES + SPARE_THREADS
    app.worker_main(
        ["worker", "--queues", "backbone", "--hostname", "bench@%h", "--pool", "threads", "--concurrency",
         str(threads), "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"]
    )  # fmt: skip


def obey(answers: TextIO) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = run_round(order["sequences"], order["tokens"])
        except (AssertionError, InferenceError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(MARK + json.dumps(answer) + "\n")
        answers.flush()
    os.kill(os.getpid(), signal.SIGTERM)  # whoever gave the orders is gone


def run_round(sequences: int, tokens: int) -> dict[str, Any]:
    """Every request at once; the clock stops with the last token."""
    from dataclasses import replace

    from inference.generation import GenerationRequest, TokenEvent
    from inference.node_host import NodeHost

    host = NodeHost.current()
    assert host is not None, "the backbone has not started"
    left = threading.Semaphore(0)
    counts = [0] * sequences

    def listener(number: int) -> Any:
        def on_event(event: TokenEvent) -> None:
            counts[number] += event.token >= 0
            if event.finish is not None:
                left.release()

        return on_event

    sampling = replace(SAMPLING, max_tokens=tokens)
    started = time.perf_counter()
    for number in range(sequences):
        request = GenerationRequest(uuid.uuid4().hex, prompt(number), sampling)
        host.engine.submit(request, listener(number))
    for _ in range(sequences):
        left.acquire()
    return {"tokens": sum(counts), "seconds": time.perf_counter() - started}


if __name__ == "__main__":
    main()
