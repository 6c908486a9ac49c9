"""M1: expert slices in separate worker processes on this host, logits identical.

The whole server is started in a folder of its own (`manage.py up --workers 3 --trace`): the workers enrol, claim,
download their slices over HTTP and answer through the relay, exactly as devices elsewhere would.
"""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from inference.demos import Figures, Say
from inference.demos.replayed import compare
from inference.demos.served import ask, complete, running_server

WORKERS, SEQUENCES, TOKENS = 3, 16, 64
PROMPT = "In the beginning"
STATUS_SECONDS = 2.0  # a backbone says what it did every second


def run(model: Path, say: Say) -> Figures:
    """Starts a server with `WORKERS` workers, generates `SEQUENCES` texts at once, replays every batch.

    Raises DemoFailed.
    """
    with tempfile.TemporaryDirectory(prefix="demo-m1-") as folder:
        var_dir = Path(folder)
        say(f"starting a server with {WORKERS} workers ...")
        with running_server(model, var_dir, ["--workers", str(WORKERS)]) as server:
            say(f"{SEQUENCES} requests of {TOKENS} tokens through the API ...")
            began = time.monotonic()
            with ThreadPoolExecutor(SEQUENCES) as pool:
                texts = list(pool.map(lambda number: complete(server, PROMPT, TOKENS, number), range(SEQUENCES)))
            seconds = time.monotonic() - began
            say(f"the first of them: {PROMPT}{texts[0]!r}")
            time.sleep(STATUS_SECONDS)
            rows = ask(server, "GET", "/api/stats")["rows"]
        say("replaying every batch through plain llama.cpp in another process ...")
        positions, difference = compare(sorted((var_dir / "traces").rglob("lane-*.jsonl")))
    return Figures(SEQUENCES * TOKENS, seconds, rows.get("remote", 0), sum(rows.values()), positions, difference)
