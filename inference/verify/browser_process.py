"""An expert worker in a browser tab: `python -m inference.verify.browser_process --socket FD --holdings FILE`.

As `inference.verify.expert_process`, but a tab in headless Chromium holds the slices and answers, with the code of the
page `/worker`: its kernels, its checks of requests, its frames. This process only carries messages. A tab has one
kernel and threads of its own choice, whatever `--kernel` and `--threads` say.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Self

from inference.benchmarks.wasm_page import WasmPage
from inference.errors import InferenceError
from inference.verify.expert_process import arguments, messages_of, serve
from relay.frames import Frame

TAB = Path(__file__).with_name("browser_tab.js")
START = """(source) => {
  const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const tab = new Worker(address, { type: "module" });
  window.tell = (message) => new Promise((resolve, reject) => {
    tab.onmessage = ({ data }) => ("error" in data ? reject(new Error(data.error)) : resolve(data.value));
    tab.onerror = () => reject(new Error("the worker of the tab does not start"));
    tab.postMessage(message);
  });
  return tell({ origin: location.origin });
}"""


class TabFailed(InferenceError):
    """The tab cannot hold or compute what it should."""

    code = "tab_failed"


class Tab:
    """The tab, with slices. A context manager; raises NoBrowser, TabFailed."""

    def __init__(self) -> None:
        self._page = WasmPage(isolated=True)

    def __enter__(self) -> Self:
        self._page.__enter__()
        self.kernels = self._page.run(START, TAB.read_text())
        return self

    def __exit__(self, *problem: Any) -> None:
        self._page.__exit__(*problem)

    def hold(self, claim: dict[str, Any]) -> None:
        """claim: an entry of the holdings file; see `expert_process.open_holdings`."""
        self._page.open(Path(claim["path"]))  # from now on at /slice
        self._page.run("claim => tell({ claim })", claim)

    def answer(self, frame: Frame) -> list[bytes]:
        """The messages of the answer to a request."""
        chunks = [base64.b64encode(chunk).decode() for chunk in messages_of(frame)]
        answer = self._page.run("chunks => tell({ chunks })", chunks)
        return [base64.b64decode(text) for text in answer]


def main() -> None:
    options = arguments("Answers expert requests on an inherited socket, in a browser tab.")
    with Tab() as tab:
        for claim in json.loads(options.holdings.read_text()):
            tab.hold(claim)
        serve(options.socket, tab.answer)


if __name__ == "__main__":
    main()
