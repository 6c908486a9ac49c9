"""Bad input from a seed: bytes that were nearly right, bytes that never were, JSON that nobody would write. Pure."""

import json
import random
from collections.abc import Callable
from typing import Any

# Values at which sizes and signs turn over; written little-endian, in 1, 2, 4 or 8 bytes.
EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 32, 2**63 - 1, 2**63,
         2**64 - 1)  # fmt: skip
MOST_MUTATIONS = 6
MOST_RANDOM_BYTES = 512

ODD_TEXTS = (
    "", " ", "\0", "a\0b", "\n", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%00", "%", "%zz",
    "\u202e\u2066", "\ufeff",
    "'; DROP TABLE market_event; --", '" OR 1=1 --', "{{7*7}}", "{% debug %}", "<script>alert(1)</script>", "${jndi:x}",
    "-1", "0", "00", "1e309", "NaN", "Infinity", "9" * 30, "0x10", "\u0661\u0662",
    "x" * 3000, "\U0001f600", "\u00e9" * 200,
    "None", "null", "true", "[]", "=cmd|' /C calc'!A0", "a\r\nSet-Cookie: x=1", "\ud800",
)  # fmt: skip
ODD_NUMBERS: tuple[int | float, ...] = (
    0, -1, 1, 255, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**40, 0.5, -0.0,
    1e-300, 1e308, float("nan"), float("inf"),
)  # fmt: skip


def arbitrary(dice: random.Random) -> bytes:
    """Bytes without any sense, of up to MOST_RANDOM_BYTES bytes."""
    return dice.randbytes(dice.randrange(MOST_RANDOM_BYTES))


def mutated(dice: random.Random, sample: bytes) -> bytes:
    """A sample with a few things wrong: bits, numbers, order, ends."""
    data = bytearray(sample)
    for _ in range(dice.randint(1, MOST_MUTATIONS)):
        dice.choice(_WAYS)(dice, data)
    return bytes(data)


def _flip(dice: random.Random, data: bytearray) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _edge(dice: random.Random, data: bytearray) -> None:
    """A number at the edge of its type, where some number may stand."""
    size = dice.choice((1, 2, 4, 8))
    if len(data) >= size:
        at = dice.randrange(len(data) - size + 1)
        data[at : at + size] = (dice.choice(EDGES) & (1 << 8 * size) - 1).to_bytes(size, "little")


def _cut(dice: random.Random, data: bytearray) -> None:
    del data[dice.randrange(len(data) + 1) :]


def _drop(dice: random.Random, data: bytearray) -> None:
    start = dice.randrange(len(data) + 1)
    del data[start : start + dice.randint(1, 16)]


def _insert(dice: random.Random, data: bytearray) -> None:
    at = dice.randrange(len(data) + 1)
    data[at:at] = dice.randbytes(dice.randint(1, 16))


def _repeat(dice: random.Random, data: bytearray) -> None:
    start = dice.randrange(len(data) + 1)
    data += data[start : start + dice.randint(1, 256)]


_WAYS: tuple[Callable[[random.Random, bytearray], None], ...] = (
    _flip,
    _flip,
    _edge,
    _edge,
    _cut,
    _drop,
    _insert,
    _repeat,
)


def odd_text(dice: random.Random) -> str:
    return dice.choice(ODD_TEXTS) if dice.random() < 0.8 else "".join(chr(dice.randrange(1, 0xD800)) for _ in range(8))


def odd_value(dice: random.Random, depth: int = 3) -> Any:
    """Any JSON value, NaN and half surrogate pairs among them."""
    kind = dice.randrange(8 if depth else 6)
    if kind < 2:
        return odd_text(dice)
    if kind < 4:
        return dice.choice(ODD_NUMBERS)
    if kind == 4:
        return dice.choice((None, True, False))
    if kind == 5:
        return dice.choice(([], {}, [[]], {"": {}}))
    if kind == 6:
        return [odd_value(dice, depth - 1) for _ in range(dice.randint(1, 4))]
    return {odd_text(dice): odd_value(dice, depth - 1) for _ in range(dice.randint(1, 4))}


def odd_object(dice: random.Random, sample: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with fields replaced, left out or added."""
    changed = dict(sample)
    for _ in range(dice.randint(1, 3)):
        name = dice.choice([*sample, odd_text(dice)])
        if dice.random() < 0.2:
            changed.pop(name, None)
        else:
            changed[name] = odd_value(dice)
    return changed


def odd_json(dice: random.Random, sample: dict[str, Any]) -> bytes:
    """The body of somebody who almost knows what is wanted, or who nests, or who writes no JSON at all."""
    way = dice.random()
    if way < 0.7:
        return json.dumps(odd_object(dice, sample)).encode()
    if way < 0.85:
        return mutated(dice, json.dumps(sample).encode())
    if way < 0.9:
        depth = dice.choice((100, 5000, 20_000))
        return dice.choice((b"[", b'{"a":')) * depth
    if way < 0.95:
        return json.dumps(odd_value(dice)).encode()
    return arbitrary(dice)
