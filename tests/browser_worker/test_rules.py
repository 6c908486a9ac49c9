"""The tab's small decisions, in Chromium: battery, pace, relay addresses, words, texts by code."""

from typing import Any

import pytest

from inference.benchmarks.wasm_page import WasmPage
from relay.addresses import RelayAddresses

pytestmark = pytest.mark.browser

BATTERY = """async ([battery, allowed, wasLow]) => {
  const { batteryReason, isLow } = await import("/battery.js");
  return [batteryReason(battery, allowed, wasLow), isLow(battery, wasLow)];
}"""
PACE = """async (steps) => {
  const { Pace } = await import("/pace.js");
  let taken = steps[0][1];
  const pace = new Pace(() => taken);
  return steps.slice(1).map(([now, seconds]) => ((taken = seconds), pace.check(now)));
}"""
DIGEST = """async () => {
  const { Pace, digestSeconds } = await import("/pace.js");
  const { Sha256 } = await import("/sha256.js");
  const { compileKernel } = await import("/kernel.js");
  const sha256 = new Sha256(await compileKernel("/kernel.wasm"));
  return digestSeconds(sha256);
}"""
ADDRESSES = """async ([given, told, failures]) => {
  const { RelayAddresses } = await import("/addresses.js");
  const addresses = new RelayAddresses(given);
  addresses.learn(told);
  const tried = [];
  for (let number = 0; number < failures; number++) {
    tried.push(addresses.current);
    addresses.failed();
  }
  return [addresses.known, tried];
}"""
WORDS = """async (claims) => {
  const { bytes, credits, summary } = await import("/words.js");
  return [summary(claims), bytes(37158912), bytes(1.36e9), credits(1234567), credits(3)];
}"""


@pytest.mark.parametrize(
    ("battery", "allowed", "was_low", "expected"),
    [
        (None, False, False, ""),
        ({"charging": True, "level": 0.5}, False, False, ""),
        ({"charging": False, "level": 0.9}, False, False, "not charging"),
        ({"charging": False, "level": 0.9}, True, False, ""),
        ({"charging": False, "level": 0.19}, True, False, "at 19%"),
        ({"charging": True, "level": 0.19}, False, False, "at 19%"),
        ({"charging": True, "level": 0.24}, False, True, "at 24%"),
        ({"charging": True, "level": 0.24}, False, False, ""),
        ({"charging": True, "level": 0.25}, False, True, ""),
    ],
)
def test_it_rests_off_the_charger_and_below_a_fifth(
    page: WasmPage, battery: dict[str, Any] | None, allowed: bool, was_low: bool, expected: str
) -> None:
    reason, is_low = page.run(BATTERY, [battery, allowed, was_low])

    assert expected in reason
    assert bool(reason) == bool(expected)
    assert is_low == ("%" in expected)


def test_one_slow_moment_is_no_reason_and_two_are(page: WasmPage) -> None:
    assert page.run(PACE, [[0, 1.0], [15, 4.0], [30, 1.0], [45, 4.0], [60, 4.0], [75, 1.0]]) == [0, 0, 0, 30, 0]


def test_rests_double_while_it_stays_slow_and_start_anew_after_good_times(page: WasmPage) -> None:
    slow = [[moment, 9.0] for start in (0, 60, 150, 1000) for moment in (start, start + 15)]

    assert page.run(PACE, [[0, 1.0], *slow])[1::2] == [30, 60, 120, 30]


def test_the_measured_work_takes_about_a_millisecond(page: WasmPage) -> None:
    assert 0.0001 <= page.run(DIGEST) < 0.1


@pytest.mark.parametrize(
    "given", ["wss://swarm.example/relay/", "ws://phone.test:8000/relay/", "ws://127.0.0.1:1/relay/"]
)
def test_relay_addresses_are_learned_as_by_the_python_worker(page: WasmPage, given: str) -> None:
    told = ["wss://one.example/relay/", "ws://two.example/relay/", "ws://127.0.0.1:9/relay/", "wss://localhost/relay/",
            "https://three.example/", "nonsense", "wss://one.example/relay/", 7, None]  # fmt: skip
    model = RelayAddresses(given)
    model.learn(told)

    known, _ = page.run(ADDRESSES, [given, told, 0])

    assert known == list(model.known)


def test_every_other_relay_is_tried_before_one_that_failed(page: WasmPage) -> None:
    told = [f"wss://{number}.example/relay/" for number in range(4)]

    known, tried = page.run(ADDRESSES, ["wss://swarm.example/relay/", told, 10])

    assert tried[0] == "wss://swarm.example/relay/"
    assert set(tried[:5]) == set(known)
    assert tried[5:] == tried[:5]


def test_few_ranges_are_named_and_many_counted(page: WasmPage) -> None:
    ranges = [{"layer": layer, "first": 8, "last": 15} for layer in (3, 4, 5, 6)]

    few, *amounts = page.run(WORDS, ranges[:1])
    many, *_ = page.run(WORDS, ranges)

    assert few == "layer 3, experts 8-14"
    assert many == "28 experts of 4 layers"
    assert amounts == ["37.2 MB", "1.4 GB", "1.235", "0.000003"]


def test_what_the_server_says_is_said_by_its_code_else_in_its_own_words(page: WasmPage) -> None:
    said = page.run("""async () => {
      const { sayCode, speak } = await import("/texts.js");
      speak({ texts: {}, codes: { suspended: "停用：{message}" } });
      return [sayCode("suspended", "too slow"), sayCode("brand_new", "wait"), sayCode("toString", "no code of ours")];
    }""")

    assert said == ["停用：too slow", "wait", "no code of ours"]
