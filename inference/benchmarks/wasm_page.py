"""The browser worker's kernel in headless Chromium, without a server: for `bench kernel` and the tests of the kernel.

The page's files come from the tree through Playwright's request routes; slices and requests the same way.
"""

import base64
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from inference.rows import ByteArray, Float32Array, IntArray

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / "frontend" / "static" / "worker"
ADDRESS = "http://localhost:9"
CONTENT_TYPES = {".js": "text/javascript", ".wasm": "application/wasm", ".html": "text/html"}
PAGE = """<!doctype html><title>kernel</title><script type="module">
import { SliceKernel, compileKernel } from "/kernel.js";
import { Sha256 } from "/sha256.js";
const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const toBase64 = (bytes) => {
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
};
const module = await compileKernel("/kernel.wasm");
window.digest = (text) => new Sha256(module).of(fromBase64(text));
window.openSlice = async () => {
  const data = new Uint8Array(await (await fetch("/slice")).arrayBuffer());
  window.kernel = new SliceKernel(module, data.length);
  window.kernel.bytes().set(data);
  window.kernel.open();
};
window.compute = (dtype, count, rows, pairs, pairCount, weights, asHalf) =>
  toBase64(window.kernel.compute(
    dtype, count, fromBase64(rows), fromBase64(pairs), pairCount, weights && fromBase64(weights), asHalf));
window.time = (dtype, count, rows, pairs, pairCount, seconds) => {
  const given = [fromBase64(rows), fromBase64(pairs)];
  const began = performance.now();
  let rounds = 0, taken = 0;
  do {
    window.kernel.compute(dtype, count, ...given, pairCount);
    rounds++;
    taken = (performance.now() - began) / 1000;
  } while (taken < seconds);
  return (rounds * pairCount) / taken;
};
window.ready = true;
</script>"""


class NoBrowser(RuntimeError):
    """Chromium or Playwright is missing; the text says how to get it."""


def chromium_path() -> str | None:
    """Debian's Chromium, where it is installed."""
    return shutil.which("chromium")


class WasmPage:
    """A tab with the kernel. Leaving the context ends the browser."""

    def __enter__(self) -> Self:
        """Raises NoBrowser."""
        path = chromium_path()
        if path is None:
            raise NoBrowser("Chromium is missing: apt-get install chromium")
        try:
            from playwright.sync_api import sync_playwright
        except ImportError as error:
            raise NoBrowser("Playwright is missing: `make setup` installs requirements-dev.txt") from error
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        self._page = self._browser.new_page()
        self._slice: Path | None = None
        self._page.route("**/*", self._answer)
        self._page.goto(f"{ADDRESS}/index.html")
        self._page.wait_for_function("window.ready", timeout=60_000)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._browser.close()
        self._playwright.stop()

    def open(self, path: Path) -> None:
        """Loads a slice in place of the one before."""
        self._slice = path
        self._page.evaluate("openSlice()")

    def run(self, script: str, argument: Any = None) -> Any:
        """What a JavaScript function gives for `argument`; the modules are at `/NAME.js`."""
        return self._page.evaluate(script, argument)

    def digest(self, data: bytes) -> str:
        """SHA-256 as the kernel computes it."""
        return str(self._page.evaluate("text => digest(text)", base64.b64encode(data).decode()))

    def compute(self, rows: Float32Array | ByteArray, expert_ids: IntArray) -> Float32Array:
        """As `inference.kernel.ExpertKernel.compute`. Raises playwright's Error where the kernel throws."""
        answer = self._page.evaluate("given => compute(...given)", _request(rows, expert_ids))
        return np.frombuffer(base64.b64decode(answer), "<f4").reshape(len(expert_ids), -1)

    def sums(
        self, rows: Float32Array, pairs: npt.NDArray[np.uint16], weights: Float32Array, *, as_half: bool
    ) -> Float32Array:
        """Partial sums as `inference.rows.partial_sums`; pairs (P, 2) of (row, expert), weights (P,)."""
        request = [0, len(rows), _text(rows), _text(pairs), len(pairs), _text(weights), as_half]
        answer = base64.b64decode(self._page.evaluate("given => compute(...given)", request))
        return np.frombuffer(answer, "<f2" if as_half else "<f4").reshape(len(rows), -1).astype(np.float32)

    def rows_per_second(self, rows: Float32Array | ByteArray, expert_ids: IntArray, seconds: float) -> float:
        """The speed of computing this again and again, in one thread, the copies to and from WASM included."""
        return float(self._page.evaluate("given => time(...given)", [*_request(rows, expert_ids), seconds]))

    def _answer(self, route: Any) -> None:
        name = route.request.url.removeprefix(ADDRESS).lstrip("/")
        if name == "index.html":
            route.fulfill(body=PAGE, content_type="text/html")
        elif name == "slice" and self._slice is not None:
            route.fulfill(path=self._slice, content_type="application/octet-stream")
        elif (MODULES / name).is_file():
            route.fulfill(path=MODULES / name, content_type=CONTENT_TYPES[Path(name).suffix])
        else:
            route.fulfill(status=404)


def _request(rows: Float32Array | ByteArray, expert_ids: IntArray) -> list[Any]:
    pairs = np.stack([np.arange(len(expert_ids)), expert_ids], axis=1).astype("<u2")
    dtype = 1 if rows.dtype == np.uint8 else 0
    return [dtype, len(rows), _text(rows), _text(pairs), len(pairs)]


def _text(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
