"""Test vectors for other languages: `python -m relay.vectors docs/vectors` writes them from the codec.

Three files of JSON: `frames.json` (bytes and what they mean, both ways), `refused.json` (bytes that no decoder may
accept, with the error's code) and `sessions.json` (what each end accepts when). Long bodies are not written out: a body
`{"size": n, "pattern": p}` has at index i the byte (i * p + i // 251) % 256. A test compares the files with the codec.
"""

import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from relay.errors import FrameError
from relay.frames import (
    CHUNK_BYTES,
    HEADER_BYTES,
    KNOWN_FLAGS,
    MESSAGE_BYTES,
    PROTOCOL_VERSION,
    Frame,
    FrameType,
    Role,
    decode_frames,
    encode_frame,
    split_frame,
)
from relay.protocol import TRANSITIONS, Machine, Phase

Json = dict[str, Any]
SIZES = (0, 1, 93, 94, 125, 126, 65_503, 65_504, 65_535, 65_536, CHUNK_BYTES - 1, CHUNK_BYTES)
LONG_SIZES = (CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 1_500_000)
INLINE_BYTES = 128


def pattern(size: int, factor: int) -> bytes:
    """A body that any language can make, and in which a lost or repeated block shows."""
    index = np.arange(size)
    return ((index * factor + index // 251) % 256).astype(np.uint8).tobytes()


def _body(size: int) -> Json:
    factor = size % 97 + 3
    body = pattern(size, factor)
    if size <= INLINE_BYTES:
        return {"hex": body.hex()}
    return {"size": size, "pattern": factor, "sha256": sha256(body).hexdigest()}


def body_of(entry: Json) -> bytes:
    """The bytes that a body in a vector stands for."""
    return bytes.fromhex(entry["hex"]) if "hex" in entry else pattern(entry["size"], entry["pattern"])


def _entry(name: str, frame: Frame, body: Json) -> Json:
    fields = {field: int(value) for field, value in zip(Frame._fields[:11], frame[:11], strict=True)}
    header = encode_frame(frame)[:HEADER_BYTES]
    return {"name": name, "kind": frame.type.name, "header": header.hex(), "fields": fields, "body": body}


def _frames() -> Iterator[Json]:
    for size in SIZES:
        entry = _body(size)
        frame = Frame(FrameType.RESULT, 0, 3, 17, 5, 34, 2, 2, 0, 0, 0, body_of(entry))
        yield _entry(f"result, body of {size}", frame, entry)
    largest = Frame(
        FrameType.DISPATCH, KNOWN_FLAGS, 0xFFFF, 2**32 - 1, 2**64 - 1, 2**32 - 1, 0xFFFF, 0xFFFF, 255, 255, 0xFFFF
    )
    yield _entry("every field at its largest", largest, {"hex": ""})
    for number, kind in enumerate(FrameType):
        # Every field differs, so that two that were swapped show.
        frame = Frame(kind, 0, 259, 67_305_985, 578_437_695_752_307_201, 16_909_060, 513, 1027, 1, 0, number)
        yield _entry(f"{kind.name}, every field another", frame, {"hex": ""})


def _chunked() -> Iterator[Json]:
    for size in LONG_SIZES:
        entry = _body(size)
        whole = Frame(FrameType.RESULT, 0, 3, 17, 5, 34, 2, 2, 0, 0, 0, body_of(entry))
        parts = [
            {"header": encode_frame(part)[:HEADER_BYTES].hex(), "size": len(part.body)} for part in split_frame(whole)
        ]
        yield {"name": f"a body of {size} in chunks", "body": entry, "chunks": parts}


def _messages() -> Iterator[Json]:
    ping = encode_frame(Frame(FrameType.PING, body=b"12345678"))
    drain = encode_frame(Frame(FrameType.DRAIN))
    yield {"name": "two frames in one message", "hex": (ping + drain).hex(), "kinds": ["PING", "DRAIN"]}
    yield {"name": "one frame without a body", "hex": drain.hex(), "kinds": ["DRAIN"]}


def _refused() -> Iterator[Json]:
    ping = encode_frame(Frame(FrameType.PING, body=b"12345678"))
    for end in range(len(ping)):
        yield {"name": f"PING cut after {end} bytes", "hex": ping[:end].hex()}
    kinds = {int(kind) for kind in FrameType}
    for kind in range(256):
        if kind not in kinds:
            yield {"name": f"type 0x{kind:02x}", "hex": (bytes([kind]) + ping[1:]).hex()}
    for bit in range(2, 8):
        yield {"name": f"flag {1 << bit}", "hex": (ping[:1] + bytes([1 << bit]) + ping[2:]).hex()}
    size = (CHUNK_BYTES + 1).to_bytes(4, "little")
    yield {"name": "a body one byte above the limit", "hex": (ping[:28] + size).hex()}
    yield {"name": "a size that is negative where it is read as signed", "hex": (ping[:28] + b"\xff" * 4).hex()}


def _preambles() -> Json:
    return {role.name: role.value for role in Role}


def _sessions() -> Iterator[Json]:
    """One entry per machine, phase and kind: the phase after it, or null where the session ends."""
    for machine in Machine:
        for phase in Phase:
            if phase is Phase.CLOSED:
                continue
            accepts = {}
            for kind in FrameType:
                transition = TRANSITIONS.get((machine, phase, kind))
                accepts[kind.name] = None if transition is None else transition[0].value
            if any(accepts.values()):
                yield {"machine": machine.value, "phase": phase.value, "then": accepts}


def files() -> dict[str, Json]:
    """Every file's content by name."""
    head = {"protocol": PROTOCOL_VERSION, "header_bytes": HEADER_BYTES, "chunk_bytes": CHUNK_BYTES}
    frames = {**head, "message_bytes": MESSAGE_BYTES, "preambles": _preambles(), "frames": list(_frames())}
    return {
        "frames.json": {**frames, "chunked": list(_chunked()), "messages": list(_messages())},
        "refused.json": {**head, "messages": [{**entry, "code": _code_of(entry)} for entry in _refused()]},
        "sessions.json": {**head, "sessions": list(_sessions())},
    }


def _code_of(entry: Json) -> str:
    try:
        decode_frames(bytes.fromhex(entry["hex"]))
    except FrameError as error:
        return error.code
    raise AssertionError(f"{entry['name']} was accepted")


def text_of(content: Json) -> str:
    return json.dumps(content, indent=1) + "\n"


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (folder / name).write_text(text_of(content), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
