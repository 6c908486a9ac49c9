"""The second WebSocket client: a worker in Chromium, some forty lines of JavaScript, at Daphne and uvicorn.

Its frames take the lengths at which implementations differ, in both directions; the `websockets` library does the same
in `test_relay_live.py`.
"""

import base64
import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from relay.codes import CloseCode
from relay.frames import CHUNK_BYTES, MESSAGE_BYTES, FrameType, encode_frame
from relay.messages import cancel_frame, hello_frame
from tests.relay.builders import hello_json
from tests.relay.live_server import RawBackbone, Server

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

WORKER = """
([url, hello]) => {
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const seen = (window.seen = { kinds: [], open: false, close: null, last: [] });
  const socket = (window.socket = new WebSocket(url));
  socket.binaryType = "arraybuffer";
  socket.onopen = () => { seen.open = true; socket.send(bytes(hello)); };
  socket.onclose = (event) => { seen.close = event.code; };
  const grant = (header, size) => {
    const frame = new DataView(new ArrayBuffer(36));
    frame.setUint8(0, 0x15);
    frame.setUint32(16, header.getUint32(16, true), true);
    frame.setUint32(28, 4, true);
    frame.setUint32(32, 32 + size, true);
    socket.send(frame.buffer);
  };
  socket.onmessage = ({ data }) => {
    for (let place = 0; place < data.byteLength; ) {
      const size = new DataView(data, place).getUint32(28, true);
      const frame = new Uint8Array(data.slice(place, place + 32 + size));
      const header = new DataView(frame.buffer);
      place += 32 + size;
      const kind = frame[0];
      seen.kinds.push(kind);
      if (kind === 0x03) seen.last.push(new TextDecoder().decode(frame.subarray(32)));
      if (kind === 0x20) { frame[0] = 0x21; socket.send(frame); }
      if (kind === 0x10) { frame[0] = 0x13; grant(header, size); socket.send(frame); }
    }
  };
  window.say = (kind, size) => {
    const frame = new Uint8Array(32 + size);
    frame[0] = kind;
    new DataView(frame.buffer).setUint32(28, size, true);
    socket.send(frame);
  };
}
"""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module", params=["daphne", "uvicorn"])
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Server]:
    live = Server(tmp_path_factory.mktemp("market"), request.param)
    live.start()
    yield live
    live.close()


def work(page: Page, server: Server) -> None:
    bob = server.nodes["bob"]
    hello = b"W" + encode_frame(hello_frame(hello_json(token=bob["token"], replicas=bob["replicas"])))
    page.evaluate(WORKER, [server.url, base64.b64encode(hello).decode()])
    page.wait_for_function("seen.kinds.includes(0x02)")


def test_every_length_goes_through_a_browser_and_back(page: Page, server: Server) -> None:
    work(page, server)
    alice = RawBackbone(server)

    session = alice.exchange_every_length(server, seed=2)

    # Frames without a body, both ways.
    alice._thread.loop.call_soon_threadsafe(alice.client.send, cancel_frame(1, session=session))
    page.wait_for_function("seen.kinds.includes(0x12)")
    page.evaluate("say(0x23, 0)")
    assert alice.next(FrameType.DRAIN).session == session
    alice.close()


def test_one_byte_more_than_a_chunk_is_refused_with_words(page: Page, server: Server) -> None:
    work(page, server)

    page.evaluate(f"say(0x13, {CHUNK_BYTES + 1})")
    page.wait_for_function("seen.close !== null")

    assert page.evaluate("seen.close") == CloseCode.VIOLATION
    (refusal,) = page.evaluate("seen.last")
    assert json.loads(refusal)["code"] == "protocol_violation"


def test_a_message_above_the_limit_ends_the_connection(page: Page, server: Server) -> None:
    work(page, server)

    page.evaluate(f"say(0x13, {MESSAGE_BYTES + 1})")
    page.wait_for_function("seen.close !== null")

    # Daphne drops such a connection without a word, before the relay sees anything of it.
    assert page.evaluate("seen.close") == {"daphne": 1006, "uvicorn": CloseCode.VIOLATION}[server.program]
