"""A phone's tab for tests: real Chromium, a server with a build of the 122B's shape, and what an owner does."""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Route, ViewportSize, expect

from inference.synthetic import SHAPE_122B, shape122b
from tests.e2e.live_server import LiveServer

PHONE: ViewportSize = {"width": 360, "height": 740}
HOST = "phone.test"
# The market's clocks run so much faster in these tests: a replica is lost after 10 seconds, not 30.
QUICKER = 3
SERVING = "serving "
EXPERT_BYTES = 5_308_416
# Places of the slider (frontend.worker_views.budgets).
ONE_EXPERT, MEGABYTES_21, MEGABYTES_42, MEGABYTES_340 = 0, 1, 2, 5
# Every text that the page ever showed as its state.
RECORD = """addEventListener("DOMContentLoaded", () => {
  const state = document.getElementById("state"), said = (window.said = []);
  if (state) new MutationObserver(() => said.push(state.textContent)).observe(state, { childList: true });
});"""


def model(folder: Path) -> Path:
    """2 layers with 32 of the 122B's experts each, random weights: 0.45 GB, made in two seconds."""
    return shape122b(folder / "model.gguf", layers=2, shape=replace(SHAPE_122B, experts=32))


def quick_clocks() -> dict[str, str]:
    """Settings of a server whose claims end, and whose credits are written, sooner than by default."""
    lease, upkeep = settings.LEASE_SECONDS / QUICKER, settings.UPKEEP_SECONDS / QUICKER
    return {"CREDIT_WINDOW_SECONDS": "2", "LEASE_SECONDS": f"{lease:.2f}", "UPKEEP_SECONDS": f"{upkeep:.2f}"}


def key_digest(server: LiveServer) -> str:
    """How Chromium is told to trust the server's certificate, as a phone does that has installed its authority."""
    certificate = x509.load_pem_x509_certificate((server.var_dir / "tls" / "server.pem").read_bytes())
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(key).digest()).decode()


def launch(playwright: Playwright, chromium: str, server: LiveServer, *arguments: str) -> Browser:
    """Chromium that knows the server's name and trusts its certificate."""
    trusted = f"--ignore-certificate-errors-spki-list={key_digest(server)}"
    own = ["--no-sandbox", f"--host-resolver-rules=MAP {HOST} 127.0.0.1", trusted]
    return playwright.chromium.launch(executable_path=chromium, args=[*own, *arguments])


@dataclass
class Phone:
    """Opens pages of the server, each in a browser profile of its own."""

    browser: Browser
    server: LiveServer
    complaints: list[str] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)

    @property
    def https(self) -> str:
        found = re.search(rf"https://{HOST}:\d+", self.server.up.output)
        assert found is not None
        return found[0]

    @property
    def http(self) -> str:
        """The same server over plain HTTP, by a name that is not this machine's: an insecure context."""
        return f"http://{HOST}:{self.server.run.port}"

    def open(
        self,
        address: str,
        fragment: str = "",
        before: str = "",
        routes: Mapping[str, Callable[[Route], None]] | None = None,
        **options: Any,
    ) -> Page:
        """`before`: a script for the page, run before its own ones; `routes`: who answers for which addresses."""
        context = self.browser.new_context(viewport=PHONE, has_touch=True, **options)
        self.contexts.append(context)
        for pattern, answer in (routes or {}).items():
            context.route(pattern, answer)
        page = context.new_page()
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.add_init_script(RECORD)
        if before:
            page.add_init_script(before)
        page.goto(f"{address}/worker{fragment}")
        return page

    def renderers(self) -> list[psutil.Process]:
        """The processes of tabs, workers included."""
        found = self.browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
        return [psutil.Process(process["id"]) for process in found if process["type"] == "renderer"]

    def kill(self, page: Page) -> None:
        """The tab's process dies, as when a phone runs out of memory: no goodbye."""
        for process in self.renderers():
            process.kill()
        self.contexts.remove(page.context)

    def close(self) -> None:
        """Gives everything back, so that the next test finds nothing lent."""
        for context in self.contexts:
            for page in context.pages:
                if page.locator("#stop").is_visible():
                    give_back(page)
            context.close()


def choose(page: Page, place: int) -> str:
    """Moves the slider to a place; returns the words beside it."""
    page.locator("#budget").evaluate(
        "(slider, place) => { slider.value = place; for (const kind of ['input', 'change'])"
        " slider.dispatchEvent(new Event(kind)); }",
        place,
    )
    return page.inner_text("#budget-text")


def lend(page: Page, seconds: float = 60.0) -> None:
    page.get_by_role("button", name="Lend").click()
    serves(page, seconds)


def serves(page: Page, seconds: float = 60.0) -> None:
    expect(page.locator("#state")).to_contain_text(SERVING, timeout=1000 * seconds)


def give_back(page: Page) -> None:
    """In whatever language the page is."""
    page.locator("#stop").click()
    expect(page.locator("body")).to_have_attribute("data-phase", "stopped", timeout=15_000)


def says(page: Page, text: str, seconds: float = 15.0) -> None:
    expect(page.locator("#state")).to_contain_text(text, timeout=1000 * seconds)


def hide(page: Page, hidden: bool) -> None:
    """As when another tab comes to the front; headless Chromium never hides a tab by itself."""
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


def ask_now(page: Page) -> None:
    """The tab asks the server at once, as it does when a network comes back, and not at its next regular time."""
    page.evaluate("dispatchEvent(new Event('online'))")


def rows(page: Page) -> int:
    return int(page.inner_text("#rows").replace(",", ""))


def downloaded(page: Page) -> float:
    """Megabytes."""
    return float(page.inner_text("#received").removesuffix(" MB"))


def token_of(page: Page) -> str:
    return str(page.evaluate("localStorage.getItem('expertswarm.token')"))


def register(server: LiveServer) -> str:
    answer = server.http.post("/api/nodes", json={"name": "Bob's phone", "kernel_class": "wasm-1"})
    return str(answer.json()["token"])


def me(server: LiveServer, token: str) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get("/api/me", headers={"Authorization": f"Bearer {token}"}).json()
    return found


def generate(server: LiveServer, tokens: int = 16) -> str:
    client = server.client()
    name = client.models.list().data[0].id
    answer = client.completions.create(model=name, prompt="In the beginning", max_tokens=tokens, temperature=0)
    return answer.choices[0].text


def sessions(server: LiveServer) -> int:
    """Workers that the backbone sees at the relay."""
    return int(server.stats()["workers"]["sessions"])
