"""A Chromium of its own that is told little: the DevTools protocol over a pipe, without its network domain.

Playwright's inspector keeps the bodies of answers in the tab's process, so what a tab takes there says nothing.
"""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

# The protocol is read from descriptor 3 and written to 4.
LAUNCH = 'exec "${@:3}" 3<&"$1" 4>&"$2"'
POLL_SECONDS = 0.05
END_SECONDS = 20


class Refused(RuntimeError):
    """The browser could not do it, as when a page is just going away."""


class PlainChromium:
    """One tab at `url`. Leaving the context ends the browser."""

    def __init__(self, path: str, profile: Path, url: str, arguments: Sequence[str] = ()) -> None:
        self._command = [path, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        self._command += ["--remote-debugging-pipe", f"--user-data-dir={profile}", *arguments, "about:blank"]
        self._url, self._log = url, profile.with_suffix(".log")
        self._count, self._rest, self._session = 0, b"", ""

    def __enter__(self) -> Self:
        read, self._to = os.pipe()
        self._from, write = os.pipe()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", LAUNCH, "-", str(read), str(write), *self._command],
                pass_fds=(read, write),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        os.close(read)
        os.close(write)
        target = self._ask("Target.createTarget", url=self._url)["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        family = [
            self._process.pid,
            *(child.pid for child in psutil.Process(self._process.pid).children(recursive=True)),
        ]
        self._process.terminate()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        psutil.wait_procs([psutil.Process(pid) for pid in family if psutil.pid_exists(pid)], END_SECONDS)
        os.close(self._to)
        os.close(self._from)

    def run(self, script: str) -> Any:
        """What an expression gives in the tab. Raises AssertionError where it throws, Refused."""
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, script: str, seconds: float) -> int:
        """Until an expression holds; the most memory that the tabs took meanwhile, in bytes."""
        most, deadline = self.tab_bytes(), time.monotonic() + seconds
        while not self._holds(script):
            assert time.monotonic() < deadline, f"not within {seconds} s: {script}"
            most = max(most, self.tab_bytes())
            time.sleep(POLL_SECONDS)
        return max(most, self.tab_bytes())

    def _holds(self, script: str) -> bool:
        try:
            return bool(self.run(script))
        except Refused:
            return False

    def tab_bytes(self) -> int:
        """Memory of the tabs' processes that is their own: no file's pages."""
        return sum(_own_bytes(process.pid) for process in self._renderers())

    def _renderers(self) -> list[psutil.Process]:
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            try:
                if "--type=renderer" in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._count:
            pass
        if "error" in answer:
            raise Refused(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._from, 1 << 16)
            assert part, f"Chromium ended: {self._log.read_text()[-2000:]}"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


def _own_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
