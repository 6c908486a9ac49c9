"""How tests read what the API sends."""

import json
from typing import Any


def data_of(body: bytes) -> list[Any]:
    """The events of a stream: JSON, or the text of the end mark."""
    lines = [line.removeprefix("data: ") for line in body.decode().splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


async def body_of(response: Any) -> bytes:
    return b"".join([chunk async for chunk in response.streaming_content])


def error_of(response: Any) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return response.status_code, error["code"], error["param"]
