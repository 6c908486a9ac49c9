"""Accounts of the hostile run: a victim, an attacker, an operator; each as a browser would make it.

An account has a session, a device with a token, an API key and a generation of its own.
"""

import json
import re
import secrets
from dataclasses import dataclass, field
from typing import Any

import httpx

from inference.chaos.processes import ChaosFailed
from inference.chaos.target import Target as Server

SECONDS = 60.0
OPERATOR, OPERATOR_PASSWORD = "operator", "operator-of-the-hostile-run"


@dataclass
class Tenant:
    """cookies: of a signed-in browser; node_token, api_key: "" where there is none; text: what was generated."""

    name: str
    cookies: dict[str, str]
    node_id: str = ""
    node_token: str = ""
    api_key: str = ""
    key_id: str = ""
    generation_id: str = ""
    text: str = ""
    payee: str = ""
    password: str = ""
    claims: list[dict[str, Any]] = field(default_factory=list)

    @property
    def device_name(self) -> str:
        return f"{self.name}-phone"

    @property
    def ids(self) -> dict[str, str]:
        """What stands for the parts of paths: the ids of this account's things, by the names that addresses use."""
        claim = self.claims[0] if self.claims else {}
        return {
            "node_id": self.node_id,
            "generation_id": self.generation_id,
            "job_id": self.generation_id,
            "key_id": self.key_id,
            "claim_id": str(claim.get("claim_id", 1)),
            "build": str(claim.get("build", "0" * 32)),
            "fingerprint": str(claim.get("build", "0" * 32)),
            "layer": str(claim.get("layer", 0)),
            "first": str(claim.get("first", 0)),
            "last": str(claim.get("last", 1)),
            "name": "suspend",
            "code": "en",
            "object_id": "1",
            "app_label": "inference",
        }

    @property
    def secrets(self) -> dict[str, str]:
        """What nobody else may read, by what it is."""
        found = {
            "device token": self.node_token,
            "API key": self.api_key,
            "session": self.cookies.get("sessionid", ""),
            "payee": self.payee,
            "account name": self.name,
            "device name": self.device_name,
            "device id": self.node_id,
            "generation": self.generation_id,
            "generated text": json.dumps(self.text)[1:-1],
        }
        return {what: text for what, text in found.items() if len(text) >= 6}

    def session_headers(self) -> dict[str, str]:
        """Of a browser that is signed in and sends the token that forms carry."""
        jar = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {"Cookie": jar, "X-CSRFToken": self.cookies.get("csrftoken", "")}


class Browser:
    """A cookie jar and a form token."""

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(base_url=url, timeout=SECONDS)

    def post(self, path: str, **fields: str) -> httpx.Response:
        """A form, sent as the page at `/me/sign-in` would send it."""
        if "csrftoken" not in self.client.cookies:
            self.client.get("/me/sign-in")
        token = self.client.cookies["csrftoken"]
        return self.client.post(path, data={"csrfmiddlewaretoken": token, **fields})

    @property
    def cookies(self) -> dict[str, str]:
        return dict(self.client.cookies)


def open_tenant(server: Server, name: str) -> Tenant:
    """An account with everything in it. Raises ChaosFailed when the server refuses any part."""
    browser = Browser(server.run.url)
    password = secrets.token_urlsafe(16)
    _expect(browser.post("/me/sign-up", name=name, password=password), 302)
    tenant = Tenant(name, {}, password=password, payee=f"bank-account-of-{name}")
    _add_device(browser, tenant)
    _expect(browser.post("/me/payee", payee=tenant.payee), 302)
    _add_key(server, tenant)
    browser.client.get("/me/")
    tenant.cookies = browser.cookies
    return tenant


def _add_device(browser: Browser, tenant: Tenant) -> None:
    wish = {"name": tenant.device_name, "kernel_class": "numpy", "budget_bytes": 64 << 20}
    made = _expect(browser.client.post("/api/nodes", json=wish), 201).json()
    tenant.node_id, tenant.node_token = made["node_id"], made["token"]
    _expect(browser.post("/me/devices/adopt", token=tenant.node_token), 302)
    bearer = {"Authorization": f"Bearer {tenant.node_token}"}
    claimed = browser.client.post("/api/claims", json={"best_for_budget_bytes": 1 << 20}, headers=bearer)
    tenant.claims = _expect(claimed, 201).json()["claims"]


def _add_key(server: Server, tenant: Tenant) -> None:
    made = server.manage("apikey", "--json", "create", tenant.name)
    if made.returncode:
        raise ChaosFailed(f"no API key for {tenant.name}: {made.stderr[-500:]}")
    found = json.loads(made.stdout)
    tenant.api_key, tenant.key_id = found["key"], str(found["id"])
    with httpx.Client(base_url=server.run.url, timeout=SECONDS) as client:
        bearer = {"Authorization": f"Bearer {tenant.api_key}"}
        model = _expect(client.get("/v1/models", headers=bearer), 200).json()["data"][0]["id"]
        body = {"model": model, "prompt": f"My name is {tenant.name} and", "max_tokens": 16, "ignore_eos": True}
        answer = _expect(client.post("/v1/completions", json=body, headers=bearer), 200)
    tenant.generation_id = answer.headers["X-Generation-Ids"]
    tenant.text = answer.json()["choices"][0]["text"]


def open_operator(server: Server) -> Tenant:
    """A superuser's session. Its password comes to the command by the environment, see `run.ENVIRONMENT`."""
    made = server.manage("createsuperuser", "--noinput", "--username", OPERATOR, "--email", "")
    if made.returncode:
        raise ChaosFailed(f"no operator: {made.stderr[-500:]}")
    browser = Browser(server.run.url)
    _expect(browser.post("/admin/login/?next=/admin/", username=OPERATOR, password=OPERATOR_PASSWORD), 302)
    browser.client.get("/operator/nodes")
    return Tenant(OPERATOR, browser.cookies)


def _expect(response: httpx.Response, status: int) -> httpx.Response:
    if response.status_code != status:
        text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", response.text))
        raise ChaosFailed(
            f"{response.request.method} {response.request.url.path}: {response.status_code}: {text[:600]}"
        )
    return response
