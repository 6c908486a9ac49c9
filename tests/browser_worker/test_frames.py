"""frames.js and claim_plan.js in Chromium give what their models in Python give."""

import random
from dataclasses import replace

import pytest

from inference.benchmarks.wasm_page import WasmPage
from inference.worker.claim_plan import plan_claims
from inference.worker.market_client import Claim
from relay.frames import CHUNK_BYTES, Frame, FrameType, encode_frame, split_frame

pytestmark = pytest.mark.browser

DECODE = """async (bytes) => {
  const { FrameError, decodeFrames, encodeFrame } = await import("/frames.js");
  try {
    return decodeFrames(Uint8Array.from(bytes)).map((frame) => [...encodeFrame(frame)]);
  } catch (error) {
    if (error instanceof FrameError) return "refused";
    throw error;
  }
}"""
JOIN = """async (sizes) => {
  const { Reassembler, makeFrame, splitFrame } = await import("/frames.js");
  return sizes.map((size) => {
    const body = new Uint8Array(size).map((_, place) => place % 251);
    const chunks = splitFrame(makeFrame(0x13, { body, request: 7n }));
    const joiner = new Reassembler(1 << 24);
    const whole = chunks.map((chunk) => joiner.add(chunk)).at(-1);
    const same = whole.body.length === size && whole.body.every((value, place) => value === place % 251);
    return [chunks.map((chunk) => [chunk.flags, chunk.chunk, chunk.body.length]), same && joiner.bytes === 0];
  });
}"""
PLAN = """async ([held, claimed, budget]) => {
  const { planClaims } = await import("/claim_plan.js");
  const plan = planClaims(held, claimed, budget);
  const ids = (claims) => claims.map((claim) => claim.claim_id);
  return [ids(plan.drop), ids(plan.giveBack), ids(plan.fetch), plan.freeBytes];
}"""


def frame(kind: FrameType, size: int = 8) -> Frame:
    return Frame(kind, 1, 0xABCD, 0x89ABCDEF, 0xFEDCBA9876543210, 0x01020304, 5, 65535, 1, 0, 3, bytes(range(size)))


def test_every_kind_of_frame_survives_decoding_and_encoding(page: WasmPage) -> None:
    sent = [encode_frame(frame(kind, size)) for kind in FrameType for size in (0, 1, 125, 126)]

    assert page.run(DECODE, list(b"".join(sent))) == [list(one) for one in sent]


def test_every_truncation_and_foreign_byte_is_refused(page: WasmPage) -> None:
    whole = encode_frame(frame(FrameType.DISPATCH))

    for size in range(len(whole)):
        assert page.run(DECODE, list(whole[:size])) == "refused"
    for spoiled in (b"\x00" + whole[1:], whole[:1] + b"\x80" + whole[2:], whole[:28] + b"\xff" * 4 + whole[32:]):
        assert page.run(DECODE, list(spoiled)) == "refused"


def test_bodies_are_cut_and_joined_as_the_relay_does(page: WasmPage) -> None:
    sizes = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES + 5]

    answers = page.run(JOIN, sizes)

    for size, (chunks, same) in zip(sizes, answers, strict=True):
        expected = [
            [one.flags, one.chunk, len(one.body)] for one in split_frame(Frame(FrameType.RESULT, body=bytes(size)))
        ]
        assert chunks == expected
        assert same


def test_claims_are_planned_as_by_the_python_worker(page: WasmPage) -> None:
    draw = random.Random(6)
    for _ in range(100):
        known = [
            Claim(number, draw.choice("ab"), 0, 0, 1, 1, draw.randint(1, 40), "/s", "/m", 1, False)
            for number in range(draw.randint(0, 7))
        ]
        claimed = [claim for claim in known if draw.random() < 0.7]
        held = [claim for claim in known if draw.random() < 0.5]
        held = [claim if draw.random() < 0.9 else replace(claim, fence=2) for claim in held if claim.build == "a"]
        budget = draw.randint(1, 120)
        plan = plan_claims(held, claimed, budget)

        answer = page.run(PLAN, [[vars(one) for one in held], [vars(one) for one in claimed], budget])

        numbers = [[claim.claim_id for claim in part] for part in (plan.drop, plan.give_back, plan.fetch)]
        assert answer == [*numbers, plan.free_bytes]
