"""M1: expert slices in separate worker processes on this host, logits identical.

The whole server is started in a folder of its own (`manage.py up --workers 3 --trace`): the workers enrol, claim,
download their slices over HTTP and answer through the relay, exactly as devices elsewhere would.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from config.supervisor import run_file
from inference.demos import Figures, Say
from inference.demos.replayed import DemoFailed, compare

ROOT = Path(__file__).resolve().parents[2]
WORKERS, SEQUENCES, TOKENS = 3, 16, 64
PROMPT = "In the beginning"
START_SECONDS, STOP_SECONDS, REQUEST_SECONDS = 180.0, 60.0, 120.0
STATUS_SECONDS = 2.0  # a backbone says what it did every second


def run(model: Path, say: Say) -> Figures:
    """Starts a server with `WORKERS` workers, generates `SEQUENCES` texts at once, replays every batch.

    Raises DemoFailed.
    """
    with tempfile.TemporaryDirectory(prefix="demo-m1-") as folder:
        var_dir = Path(folder)
        with _server(model, var_dir, say) as server:
            name = _ask(server, "GET", "/v1/models")["data"][0]["id"]
            say(f"{SEQUENCES} requests of {TOKENS} tokens through the API ...")
            began = time.monotonic()
            with ThreadPoolExecutor(SEQUENCES) as pool:
                texts = list(pool.map(lambda number: _complete(server, name, number), range(SEQUENCES)))
            seconds = time.monotonic() - began
            say(f"the first of them: {PROMPT}{texts[0]!r}")
            time.sleep(STATUS_SECONDS)
            rows = _ask(server, "GET", "/api/stats")["rows"]
        say("replaying every batch through plain llama.cpp in another process ...")
        positions, difference = compare(sorted((var_dir / "traces").glob("*/lane-*.jsonl")))
    return Figures(SEQUENCES * TOKENS, seconds, rows.get("remote", 0), sum(rows.values()), positions, difference)


@contextmanager
def _server(model: Path, var_dir: Path, say: Say) -> Iterator[run_file.RunFile]:
    """A running server whose workers hold every expert; stopped, and nothing left behind, at the end."""
    log = var_dir / "up.log"
    command = [sys.executable, "manage.py", "up", "--workers", str(WORKERS), "--port", "0", "--trace"]
    say(f"starting a server with {WORKERS} workers ...")
    environment = {name: text for name, text in os.environ.items() if name not in {"REDIS_URL", "DATABASE_URL"}}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--model", str(model)],
            cwd=ROOT,
            env={**environment, "VAR_DIR": str(var_dir)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while "Ready." not in log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise DemoFailed(f"the server did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
        yield run_file.read(var_dir)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _complete(server: run_file.RunFile, model: str, number: int) -> str:
    body = {
        "model": model,
        "prompt": PROMPT,
        "max_tokens": TOKENS,
        "temperature": 0.8,
        "seed": number,
        "ignore_eos": True,
    }
    return str(_ask(server, "POST", "/v1/completions", body)["choices"][0]["text"])


def _ask(server: run_file.RunFile, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = httpx.request(
        method,
        server.url + path,
        headers={"Authorization": f"Bearer {server.api_key}"},
        json=body,
        timeout=REQUEST_SECONDS,
    )
    if answer.status_code != httpx.codes.OK:
        raise DemoFailed(f"{path} was answered with {answer.status_code}: {answer.text[:500]}")
    found: dict[str, Any] = answer.json()
    return found
