"""A server of a demo's own: started by `manage.py up` in a folder of its own, asked over HTTP, stopped cleanly."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from config.supervisor import run_file
from inference.demos.replayed import DemoFailed

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS, STOP_SECONDS, REQUEST_SECONDS = 180.0, 60.0, 120.0
# What the caller's shell happens to have set must not reach a server that a demo starts, nor its workers.
FOREIGN = {"REDIS_URL", "DATABASE_URL"} | {
    name for word in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY") for name in (word, word.lower())
}


def clean_environment() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name not in FOREIGN}


def end(process: "subprocess.Popen[bytes]", seconds: float = STOP_SECONDS) -> None:
    """Asks a process to stop, and kills it when it does not."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def running_server(
    model: Path,
    var_dir: Path,
    options: Sequence[str],
    *,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[run_file.RunFile]:
    """A healthy server; stopped, and nothing left behind, at the end. prefix: runs the command elsewhere.

    Raises DemoFailed when it does not start.
    """
    log = var_dir / "up.log"
    command = [*prefix, sys.executable, "manage.py", "up", "--port", "0", "--trace", *options, "--model", str(model)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**clean_environment(), "VAR_DIR": str(var_dir), **(environment or {})},
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
        end(process)


def ask(server: run_file.RunFile, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON answer. Raises DemoFailed for any other status than 200."""
    with httpx.Client(trust_env=False, timeout=REQUEST_SECONDS) as client:
        answer = client.request(
            method, server.url + path, headers={"Authorization": f"Bearer {server.api_key}"}, json=body
        )
    if answer.status_code != httpx.codes.OK:
        raise DemoFailed(f"{path} was answered with {answer.status_code}: {answer.text[:500]}")
    found: dict[str, Any] = answer.json()
    return found


def complete(server: run_file.RunFile, prompt: str, tokens: int, seed: int) -> str:
    """One text of exactly `tokens` tokens. Raises DemoFailed."""
    body = {
        "model": ask(server, "GET", "/v1/models")["data"][0]["id"],
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0.8,
        "seed": seed,
        "ignore_eos": True,
    }
    return str(ask(server, "POST", "/v1/completions", body)["choices"][0]["text"])
