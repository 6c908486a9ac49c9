"""An expert worker in a browser tab: `python -m inference.verify.browser_process --socket FD --holdings FILE`.

As `inference.verify.expert_process`, but a tab in headless Chromium holds the slices and answers, with the code of the
page `/worker`: its kernels, its checks of requests, its frames. This process only carries messages.
"""

from __future__ import annotations

import argparse
import base64
import json
import logging
import socket
from pathlib import Path
from typing import Any, Self

from inference.benchmarks.wasm_page import WasmPage
from inference.errors import InferenceError
from inference.verify.expert_process import LENGTH, READY, FrameReader, send_frame
from relay.frames import Frame, FrameType, encode_frame, split_frame
from relay.messages import ping_frame

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
        chunks = [base64.b64encode(encode_frame(chunk)).decode() for chunk in split_frame(frame)]
        answer = self._page.run("chunks => tell({ chunks })", chunks)
        return [base64.b64decode(text) for text in answer]


def main() -> None:
    parser = argparse.ArgumentParser(description="Answers expert requests on an inherited socket, in a browser tab.")
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--holdings", type=Path, required=True)
    # What LocalSwarm says to every kind of worker: a tab has one kernel, and threads of its own choice.
    parser.add_argument("--kernel", default="browser")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    reader = FrameReader()
    with Tab() as tab, socket.socket(fileno=options.socket) as channel:
        for claim in json.loads(options.holdings.read_text()):
            tab.hold(claim)
        send_frame(channel, ping_frame(READY))
        while data := channel.recv(1 << 20):
            for frame in reader.feed(data):
                if frame.type in (FrameType.DISPATCH, FrameType.CHALLENGE):
                    for message in tab.answer(frame):
                        channel.sendall(LENGTH.pack(len(message)) + message)


if __name__ == "__main__":
    main()
