"""A small client of the API for our own commands: streams a completion, and goes on after a lost connection.

Pure: httpx and JSON. Others use OpenAI's client.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from inference.errors import InferenceError

CONNECT_SECONDS = 5.0
# The server sends a comment every 10 s: longer silence is a lost connection.
SILENCE_SECONDS = 30.0
# A server that starts again on a busy machine takes half a minute.
RESUME_ATTEMPTS = 60
RESUME_DELAY_SECONDS = 1.0
# A server that starts again, or whose stores do, or the proxy in its place.
BUSY = frozenset({httpx.codes.BAD_GATEWAY, httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.GATEWAY_TIMEOUT})


class ApiRefused(InferenceError):
    """The server refused or failed the request; the message is the server's."""

    code = "api_refused"


class ApiBusy(ApiRefused):
    """The server cannot answer at this moment."""

    code = "api_busy"


class ApiUnreachable(InferenceError):
    """The server does not answer, or stopped answering."""

    code = "api_unreachable"


@dataclass
class Progress:
    """What has come of an answer so far. last_id: `GENERATION:INDEX` of the last event."""

    text: str = ""
    finish: str | None = None
    usage: dict[str, int] | None = None
    last_id: str = ""
    resumed: int = 0


class ApiClient:
    """One server; a context manager. Never goes through a proxy: the server is this machine's."""

    def __init__(self, url: str, api_key: str, transport: httpx.BaseTransport | None = None) -> None:
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {api_key}"},
            timeout=httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS),
            trust_env=False,
            transport=transport,
        )

    def __enter__(self) -> "ApiClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def model(self) -> str:
        """The name of the served model. Raises ApiRefused, ApiUnreachable."""
        try:
            response = self._http.get("/v1/models")
        except httpx.TransportError as error:
            raise ApiUnreachable(f"{self._http.base_url} does not answer ({error})") from error
        _check(response)
        return str(response.json()["data"][0]["id"])

    def stream(self, body: dict[str, Any], on_text: Callable[[str], None]) -> Progress:
        """Streams a completion; on_text is called with each new piece. Raises ApiRefused, ApiUnreachable.

        Leaving by an exception (KeyboardInterrupt too) closes the connection, which cancels the generation.
        """
        progress = Progress()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        try:
            with self._http.stream("POST", "/v1/completions", json={**body, **options}) as response:
                _follow(response, progress, on_text)
        except httpx.TransportError as error:
            if not progress.last_id:
                raise ApiUnreachable(f"{self._http.base_url} does not answer ({error})") from error
        while progress.finish is None:
            self._resume(progress, on_text)
        return progress

    def _resume(self, progress: Progress, on_text: Callable[[str], None]) -> None:
        """The connection was lost, the generation was not: read on after the last token."""
        for _ in range(RESUME_ATTEMPTS):
            generation, _, index = progress.last_id.rpartition(":")
            progress.resumed += 1
            try:
                with self._http.stream("GET", f"/v1/generations/{generation}/stream?after={index}") as response:
                    _follow(response, progress, on_text)
                return
            except (httpx.TransportError, ApiBusy):
                time.sleep(RESUME_DELAY_SECONDS)
        raise ApiUnreachable(f"{self._http.base_url} has stopped answering; generation {generation} may go on there")


def _check(response: httpx.Response) -> None:
    if response.status_code == httpx.codes.OK:
        return
    response.read()
    refusal = ApiBusy if response.status_code in BUSY else ApiRefused
    try:
        error = response.json()["error"]
        raise refusal(f"{error['message']} ({error['code']})")
    except (ValueError, KeyError, TypeError):
        raise refusal(f"the server answered {response.status_code}") from None


def _follow(response: httpx.Response, progress: Progress, on_text: Callable[[str], None]) -> None:
    """Reads the events of either kind of stream. Raises ApiRefused, httpx.TransportError."""
    _check(response)
    for event_id, data in _events(response.iter_lines()):
        if data == "[DONE]":
            return
        body = json.loads(data)
        if "error" in body:
            raise ApiRefused(body["error"]["message"])
        if body.get("usage"):
            progress.usage = body["usage"]
        for piece in body.get("choices", [body]):
            if piece["text"]:
                progress.text += piece["text"]
                on_text(piece["text"])
            progress.finish = piece["finish_reason"] or progress.finish
        progress.last_id = event_id or progress.last_id
    raise httpx.RemoteProtocolError("the stream ended without its end mark")


def _events(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """(id, data) of server-sent events as our server writes them: an id line, then one data line."""
    event_id = ""
    for line in lines:
        if line.startswith("id: "):
            event_id = line.removeprefix("id: ")
        elif line.startswith("data: "):
            yield event_id, line.removeprefix("data: ")
            event_id = ""
