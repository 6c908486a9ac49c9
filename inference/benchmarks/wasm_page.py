"""The browser worker's kernel in headless Chromium, without the project's server: for `bench kernel` and its tests.

A small server on the loopback gives the page the files of the tree and the slice. Playwright's request routes would do,
but do not see what workers of workers load.
"""

import base64
import shutil
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from inference.chromium import chromium
from inference.rows import ByteArray, Float32Array, IntArray

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / "frontend" / "static" / "worker"
CONTENT_TYPES = {".js": "text/javascript", ".wasm": "application/wasm", ".html": "text/html"}
WORKER = Path(__file__).with_name("kernel_worker.js")
PAGE = """<!doctype html><title>kernel</title><script type="module">
const worker = new Worker("/kernel_worker.js", { type: "module" });
const waiting = new Map();
worker.onmessage = ({ data: { id, value, error } }) => {
  const { resolve, reject } = waiting.get(id);
  waiting.delete(id);
  if (error === undefined) resolve(value);
  else reject(new Error(error));
};
window.ask = (name, given) => new Promise((resolve, reject) => {
  const id = Math.random();
  waiting.set(id, { resolve, reject });
  worker.postMessage({ id, name, given });
});
window.ready = true;
</script>"""
# Arguments that give Chromium a WebGPU adapter without a graphics card.
SOFTWARE_GPU = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan")
# What browsers want before threads may share memory.
ISOLATION = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}


class PageServer(ThreadingHTTPServer):
    """Serves the page, the worker's modules and, at /slice, the file `slice`."""

    daemon_threads = True

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), PageHandler)
        self.headers = headers
        self.slice: Path | None = None
        threading.Thread(target=self.serve_forever, name="kernel-page", daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://localhost:{self.server_port}"

    def end(self) -> None:
        self.shutdown()
        self.server_close()


class PageHandler(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        path = {WORKER.name: WORKER, "slice": self.server.slice}.get(name, MODULES / name)
        if name == "index.html":
            self._answer(".html", PAGE.encode())
        elif path is not None and path.is_file():
            self._answer(path.suffix, path)
        else:
            self.send_error(404)

    def _answer(self, suffix: str, content: bytes | Path) -> None:
        self.send_response(200)
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        types = {"Content-Type": CONTENT_TYPES.get(suffix, "application/octet-stream"), "Content-Length": str(size)}
        for key, value in {**self.server.headers, **types}.items():
            self.send_header(key, value)
        self.end_headers()
        if isinstance(content, bytes):
            self.wfile.write(content)
        else:
            with content.open("rb") as file:
                shutil.copyfileobj(file, self.wfile)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: requests are not news."""


class WasmPage:
    """A tab whose worker has the kernel. Leaving the context ends the browser.

    options: of `openKernels` in frontend/static/worker/kernels.js; isolated: whether the page may share memory between
    threads; arguments: for Chromium.
    """

    def __init__(
        self, options: dict[str, Any] | None = None, *, isolated: bool = False, arguments: Sequence[str] = ()
    ) -> None:
        self._options = options or {"threads": 1, "gpu": False}
        self._server = PageServer(ISOLATION if isolated else {})
        self._arguments = arguments
        self._open = ExitStack()
        self.started: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Raises NoBrowser."""
        with ExitStack() as opened:
            opened.callback(self._server.end)
            self._page = opened.enter_context(chromium(*self._arguments)).new_page()
            self._page.goto(f"{self._server.address}/index.html")
            self._page.wait_for_function("window.ready", timeout=60_000)
            self.start(self._options)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def start(self, options: dict[str, Any]) -> None:
        """Computes with these options from now on; `started` says what came of them. No slice is open then."""
        self.started = self.ask("start", options)

    def open(self, path: Path) -> int:
        """Loads a slice in place of the one before; the bytes of memory that it takes."""
        self._server.slice = path
        return int(self.ask("openSlice"))

    def run(self, script: str, argument: Any = None) -> Any:
        """What a JavaScript function gives for `argument`; the modules are at `/NAME.js`."""
        return self._page.evaluate(script, argument)

    def digest(self, data: bytes) -> str:
        """SHA-256 as the kernel computes it."""
        return str(self.ask("digest", base64.b64encode(data).decode()))

    def digest_bytes_per_second(self, size: int) -> float:
        return float(self.ask("digestSpeed", size))

    def memory_bytes(self) -> int:
        """What the slice that is open takes now, requests included."""
        return int(self.ask("memoryBytes"))

    def compute(self, rows: Float32Array | ByteArray, expert_ids: IntArray) -> Float32Array:
        """As `inference.kernel.ExpertKernel.compute`. Raises playwright's Error where the kernel throws."""
        answer = self.ask("compute", *_request(rows, expert_ids))
        return np.frombuffer(base64.b64decode(answer), "<f4").reshape(len(expert_ids), -1)

    def compute_while(self, name: str, rows: Float32Array | ByteArray, expert_ids: IntArray) -> Float32Array:
        """The same, while another function of kernel_worker.js runs."""
        script = "([name, given]) => Promise.all([ask('compute', given), ask(name, [])]).then(([answer]) => answer)"
        answer = self._page.evaluate(script, [name, _request(rows, expert_ids)])
        return np.frombuffer(base64.b64decode(answer), "<f4").reshape(len(expert_ids), -1)

    def sums(
        self, rows: Float32Array, pairs: npt.NDArray[np.uint16], weights: Float32Array, *, as_half: bool
    ) -> Float32Array:
        """Partial sums as `inference.rows.partial_sums`; pairs (P, 2) of (row, expert), weights (P,)."""
        request = [0, len(rows), _text(rows), _text(pairs), len(pairs), _text(weights), as_half]
        answer = base64.b64decode(self.ask("compute", *request))
        return np.frombuffer(answer, "<f2" if as_half else "<f4").reshape(len(rows), -1).astype(np.float32)

    def rows_per_second(self, rows: Float32Array | ByteArray, expert_ids: IntArray, seconds: float) -> float:
        """The speed of computing this again and again, the copies to and from the kernel's memory included."""
        return float(self.ask("time", *_request(rows, expert_ids), seconds))

    def ask(self, name: str, *given: Any) -> Any:
        """What a function of kernel_worker.js answers."""
        return self._page.evaluate("([name, given]) => ask(name, given)", [name, list(given)])


def _request(rows: Float32Array | ByteArray, expert_ids: IntArray) -> list[Any]:
    pairs = np.stack([np.arange(len(expert_ids)), expert_ids], axis=1).astype("<u2")
    dtype = 1 if rows.dtype == np.uint8 else 0
    return [dtype, len(rows), _text(rows), _text(pairs), len(pairs)]


def _text(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
