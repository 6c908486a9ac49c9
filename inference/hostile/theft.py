"""Stolen, ended and replayed credentials: each must be refused, or at least be seen by its owner."""

import asyncio
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
from websockets.exceptions import InvalidStatus

from inference.chaos.target import Target as Server
from inference.hostile.relay_socket import Socket, dial, hello_fields, opened
from inference.hostile.tenants import SECONDS, Browser, Tenant
from inference.hostile.wire import ask, request_bytes
from relay.codes import CloseCode, RejectCode
from relay.frames import Frame, FrameType, Role, encode_frame
from relay.messages import read_roster
from relay.records import SMALL_JSON_BYTES, load_json

REPLACED_SECONDS = 20.0
OUTSIDE = (
    "/static/../config/settings.py",
    "/static/%2e%2e/config/settings.py",
    "/static/..%2f..%2fconfig%2fsettings.py",
    "/static/..%5c..%5cconfig%5csettings.py",
    "/static//etc/passwd",
    "/static/frontend/../../../config/settings.py",
    "/../../../../etc/passwd",
    "/authority.crt/../var/run.json",
)
# What stands in those files.
INSIDE_WORDS = (b"SECRET_KEY", b"root:", b"api_key")


@dataclass(frozen=True)
class Theft:
    """problem: "" where the thief got nothing unseen."""

    what: str
    problem: str


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class Thief:
    """Tries everything once. The owner is a tenant whose credentials end here; the victim's only are used wrongly."""

    def __init__(self, server: Server, owner: Tenant, victim: Tenant, backbone_token: str) -> None:
        self._server, self._owner, self._victim, self._backbone_token = server, owner, victim, backbone_token
        self._client = httpx.Client(base_url=server.run.url, timeout=SECONDS)

    def run(self) -> Iterator[Theft]:
        with self._client:
            for group in (self._wrong_kind, self._of_files, self._of_browsers, self._of_claims, self._ended):
                yield from group()
            yield from asyncio.run(self._of_the_relay())
            yield from self._closed()

    def _refused(self, what: str, response: httpx.Response, *statuses: int) -> Theft:
        problem = "" if response.status_code in statuses else f"{what}: answered {response.status_code}"
        return Theft(what, problem)

    def _get(self, path: str, token: str) -> httpx.Response:
        return self._client.get(path, headers=bearer(token))

    def _wrong_kind(self) -> Iterator[Theft]:
        victim = self._victim
        yield self._refused("a device token as an API key", self._get("/v1/models", victim.node_token), 401)
        yield self._refused("an API key as a device token", self._get("/api/me", victim.api_key), 401)
        yield self._refused("the backbone's token as a device token", self._get("/api/me", self._backbone_token), 401)
        yield self._refused("the backbone's token as an API key", self._get("/v1/models", self._backbone_token), 401)
        yield self._refused(
            "a device token in the query", self._client.get(f"/api/me?token={self._owner.node_token}"), 401
        )
        yield self._refused(
            "an API key in the query", self._client.get(f"/v1/models?api_key={self._owner.api_key}"), 401
        )
        for length in (8, 42):
            cut = self._get("/api/me", victim.node_token[:length])
            yield self._refused(f"the first {length} characters of a device token", cut, 401)
        yield self._refused("a device token in capitals", self._get("/api/me", victim.node_token.swapcase()), 401)

    def _of_files(self) -> Iterator[Theft]:
        """Files outside of what is served."""
        for path in OUTSIDE:
            answer = asyncio.run(ask(self._server.run.port, request_bytes("GET", path, {})))
            told = [word for word in INSIDE_WORDS if word in answer.body]
            yield Theft(f"the file {path}", f"{path}: answered {answer.status} with {told}" if told else "")

    def _of_browsers(self) -> Iterator[Theft]:
        victim = self._victim
        jar = f"sessionid={victim.cookies['sessionid']}"
        path = f"/me/devices/{victim.node_id}/token"
        yield self._refused(
            "a form without its token, from another site",
            self._client.post(path, headers={"Cookie": jar}), 403,
        )  # fmt: skip
        headers = victim.session_headers() | {"Origin": "https://evil.example"}
        yield self._refused("a form with its token, of another origin", self._client.post(path, headers=headers), 403)
        tampered = victim.cookies["sessionid"][:-1] + ("0" if victim.cookies["sessionid"][-1] != "0" else "1")
        other = self._client.get("/me/", headers={"Cookie": f"sessionid={tampered}"})
        yield self._refused("a session id that is one character off", other, 302)
        yield self._fixation()
        yield self._signed_out()

    def _fixation(self) -> Theft:
        """A session id that an attacker put into the owner's browser is another one after the sign-in."""
        browser, fixed = Browser(self._server.run.url), secrets.token_hex(16)
        browser.client.cookies.set("sessionid", fixed)
        signed_in = browser.post("/me/sign-in", name=self._owner.name, password=self._owner.password)
        if signed_in.status_code != 302:
            return Theft("a session id chosen by an attacker", f"the owner could not sign in: {signed_in.status_code}")
        other = self._client.get("/me/", headers={"Cookie": f"sessionid={fixed}"})
        return self._refused("a session id chosen by an attacker", other, 302)

    def _signed_out(self) -> Theft:
        browser = Browser(self._server.run.url)
        browser.post("/me/sign-in", name=self._owner.name, password=self._owner.password)
        stolen = browser.cookies["sessionid"]
        browser.post("/me/sign-out")
        again = self._client.get("/me/", headers={"Cookie": f"sessionid={stolen}"})
        return self._refused("a session that has signed out", again, 302)

    def _of_claims(self) -> Iterator[Theft]:
        claim, thief = self._victim.claims[0], bearer(self._owner.node_token)
        said = {"fence": claim["fence"], "sha256": "0" * 64}
        address = f"/api/claims/{claim['claim_id']}"
        delivered = self._client.post(f"{address}/delivered", json=said, headers=thief)
        yield self._refused("another device's claim, said to be delivered", delivered, 403, 404)
        yield self._refused("another device's claim, released", self._client.delete(address, headers=thief), 403, 404)
        yield self._refused("another device's slice", self._client.get(claim["slice_url"], headers=thief), 403)
        stale = {**said, "fence": claim["fence"] + 7}
        own = self._client.post(f"{address}/delivered", json=stale, headers=bearer(self._victim.node_token))
        yield self._refused("a delivery under another fence", own, 409, 410, 422)
        adopted = Browser(self._server.run.url)
        adopted.client.cookies.update(self._owner.cookies)
        answer = adopted.post("/me/devices/adopt", token=self._victim.node_token)
        yield self._refused("a stolen token, to take the device into another account", answer, 409)

    def _ended(self) -> Iterator[Theft]:
        owner = self._owner
        old = owner.node_token
        owner.node_token = self._client.post("/api/me/token", headers=bearer(old)).json()["token"]
        yield self._refused("a device token that was replaced", self._get("/api/me", old), 401)
        yield self._refused(
            "a device token that was replaced, to replace it again",
            self._client.post("/api/me/token", headers=bearer(old)), 401,
        )  # fmt: skip
        self._old_token = old
        revoked = self._server.manage("apikey", "--json", "revoke", owner.key_id)
        said = "" if revoked.returncode == 0 else revoked.stderr[-300:]
        answer = self._get("/v1/models", owner.api_key)
        yield Theft("an API key that was revoked", said or self._refused("", answer, 401).problem)
        generation = self._get(f"/v1/generations/{owner.generation_id}", owner.api_key)
        yield self._refused("a revoked key's own generation", generation, 401)

    async def _of_the_relay(self) -> list[Theft]:
        port, build = self._server.run.port, str(self._victim.claims[0]["build"])
        found = []

        async def rejected(what: str, role: Role, token: str, *codes: RejectCode) -> None:
            async with dial(port, role, hello_fields(token, build)) as socket:
                code = await reject_code(socket)
            found.append(Theft(what, "" if code in codes else f"{what}: {code or 'welcome'}"))

        await rejected("a replaced token at the relay", Role.WORKER, self._old_token, RejectCode.BAD_TOKEN)
        await rejected("an API key at the relay", Role.WORKER, self._victim.api_key, RejectCode.BAD_TOKEN)
        await rejected("a device as a backbone", Role.BACKBONE, self._victim.node_token, RejectCode.WRONG_ROLE)
        await rejected("no backbone's token as a backbone", Role.BACKBONE, "x" * 43, RejectCode.BAD_TOKEN)
        await rejected("the backbone's token as a worker", Role.WORKER, self._backbone_token, RejectCode.WRONG_ROLE)
        found.append(await foreign_page(port))
        found.append(await self._replaced(port, build))
        found.append(await self._foreign_replica(port, build))
        found.append(await self._forged_session(port, build))
        return found

    async def _replaced(self, port: int, build: str) -> Theft:
        """A stolen token works, as any bearer's does; its owner is told at once."""
        what = "a stolen device token while its owner is connected"
        fields = hello_fields(self._victim.node_token, build)
        async with dial(port, Role.WORKER, fields) as owner:
            if await reject_code(owner):
                return Theft(what, f"{what}: the owner was refused")
            async with dial(port, Role.WORKER, fields):
                code = await owner.closed(REPLACED_SECONDS)
        return Theft(what, "" if code == CloseCode.REPLACED else f"{what}: the owner's socket closed with {code}")

    async def _foreign_replica(self, port: int, build: str) -> Theft:
        """Backbones never hear of a replica whose claim is another device's."""
        what = "a HELLO with another device's claim"
        claim = self._victim.claims[0]
        replica = {name: claim[name] for name in ("claim_id", "fence", "layer", "first", "last")} | {"sha256": "0" * 64}
        fields = hello_fields(self._owner.node_token, build, replica)
        async with dial(port, Role.WORKER, fields) as worker:
            if code := await reject_code(worker):
                return Theft(what, f"{what}: {code}")
            async with dial(port, Role.BACKBONE, hello_fields(self._backbone_token, build)) as backbone:
                await backbone.frame()
                roster = read_roster(await backbone.frame_of(FrameType.ROSTER))
        replicas = [
            one for session in roster.joined if session.node_id == self._owner.node_id for one in session.replicas
        ]
        return Theft(what, f"{what}: backbones see {replicas}" if replicas else "")

    async def _forged_session(self, port: int, build: str) -> Theft:
        """A RESULT in another session's name, for a stream that asked nothing, arrives in its sender's own name."""
        what = "a RESULT in another session's name"
        fields = hello_fields(self._owner.node_token, build)
        async with (
            dial(port, Role.BACKBONE, hello_fields(self._backbone_token, build)) as backbone,
            dial(port, Role.WORKER, fields) as worker,
        ):
            stream = load_json((await backbone.frame()).body, SMALL_JSON_BYTES)["stream"]
            own = load_json((await worker.frame()).body, SMALL_JSON_BYTES)["session"]
            forged = Frame(
                FrameType.RESULT, session=own + 1, request=1, stream=stream, rows=1, pairs=1, body=bytes(128)
            )
            await worker.send(encode_frame(forged))
            seen = {frame.session for frame in await backbone.frames(2.0) if frame.type is FrameType.RESULT}
        return Theft(what, f"{what}: backbones saw sessions {seen}" if seen - {own} else "")

    def _closed(self) -> Iterator[Theft]:
        """The account is closed: whatever belonged to it is worth nothing."""
        owner, browser = self._owner, Browser(self._server.run.url)
        browser.post("/me/sign-in", name=owner.name, password=owner.password)
        stolen = browser.cookies["sessionid"]
        answer = browser.post("/me/close", password=owner.password)
        if answer.status_code != 302:
            yield Theft("a closed account", f"the account could not be closed: {answer.status_code}")
        again = self._client.get("/me/", headers={"Cookie": f"sessionid={stolen}"})
        yield self._refused("the session of a closed account", again, 302)
        yield self._refused("the device of a closed account", self._get("/api/me", owner.node_token), 401)
        sign_in = Browser(self._server.run.url).post("/me/sign-in", name=owner.name, password=owner.password)
        yield self._refused("the password of a closed account", sign_in, 400)


async def reject_code(socket: Socket) -> str:
    """The code of a REJECT; "" for a WELCOME."""
    frame = await socket.frame()
    return str(json.loads(bytes(frame.body))["code"]) if frame.type is FrameType.REJECT else ""


async def foreign_page(port: int) -> Theft:
    what = "a socket of a page of another site"
    try:
        async with opened(port, "https://evil.example"):
            return Theft(what, f"{what}: opened")
    except InvalidStatus as error:
        status = error.response.status_code
        return Theft(what, "" if status == 403 else f"{what}: {status}")
