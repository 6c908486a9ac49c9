"""market/codec.py, with one stored sample of every version of every event that was ever written."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from market import codec
from market.errors import UnknownEvent
from market.events import EVENT_TYPES, Event, Recorded, WorkCredited, stream_of
from market.fold import State, fold
from market.upcasters import UPCASTERS

SAMPLES = Path(__file__).parent / "samples"
# An order in which the samples tell a possible story; a claim ends in one of two ways, and so does a payout.
BEGINNING = (
    "build-published",
    "node-registered",
    "node-token-rotated",
    "policy-changed",
    "claim-granted",
    "slice-delivered",
    "replica-verified",
    "demand-observed",
    "work-credited",
    "earnings-forfeited",
    "earnings-restored",
    "earnings-released",
    "balance-adjusted",
    "node-linked",
    "node-audited",
    "replica-lost",
)
END = (
    "node-suspended",
    "node-quarantined",
    "node-reinstated",
    "node-leaving",
    "node-stayed",
    "node-messaged",
    "build-retired",
    "build-restored",
    "incident-declared",
    "node-token-revoked",
    "node-erased",
)
PAID = (
    "payout-drafted",
    "payout-approved",
    "payout-sending",
    "payout-sent",
    "payout-item-settled",
    "payout-item-failed",
    "payout-item-returned",
)
CANCELLED = ("payout-drafted", "payout-cancelled")


def sample(name: str, version: int) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((SAMPLES / f"{name}-{version}.json").read_text())
    return body


def recorded(events: list[Event]) -> list[Recorded]:
    versions: dict[str, int] = {}
    history = []
    for position, event in enumerate(events, start=1):
        stream = stream_of(event)
        versions[stream] = versions.get(stream, 0) + 1
        history.append(Recorded(position, stream, versions[stream], position, event))
    return history


def test_every_version_ever_written_has_a_sample_and_no_sample_is_unknown() -> None:
    expected = {f"{kind.NAME}-{version}.json" for kind in EVENT_TYPES for version in range(1, kind.VERSION + 1)}

    assert {path.name for path in SAMPLES.iterdir()} == expected


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: str(kind.NAME))
def test_every_sample_of_every_version_becomes_an_event(kind: type[Event]) -> None:
    for version in range(1, kind.VERSION + 1):
        assert type(codec.decode(kind.NAME, version, sample(kind.NAME, version))) is kind


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: str(kind.NAME))
def test_the_newest_sample_is_what_would_be_stored_today(kind: type[Event]) -> None:
    body = sample(kind.NAME, kind.VERSION)

    event = codec.decode(kind.NAME, kind.VERSION, body)

    assert json.loads(json.dumps(codec.encode(event))) == body
    assert codec.decode(kind.NAME, kind.VERSION, codec.encode(event)) == event


@pytest.mark.parametrize(
    ("ending", "payout", "batch_state"),
    [("claim-expired", PAID, "closed"), ("claim-released", CANCELLED, "cancelled")],
)
@pytest.mark.parametrize("oldest", [True, False])
def test_all_samples_fold(ending: str, payout: tuple[str, ...], batch_state: str, oldest: bool) -> None:
    names = [*BEGINNING, ending, *payout, *END]
    newest = {kind.NAME: kind.VERSION for kind in EVENT_TYPES}
    chosen = [(name, 1 if oldest else newest[name]) for name in names]

    state = fold(recorded([codec.decode(name, version, sample(name, version)) for name, version in chosen]))

    assert state.position == len(names)
    assert state.claims[1].state == ending.removeprefix("claim-")
    assert state.claims[1].earned_microcredits == 3932
    assert state.batches[1].state == batch_state
    assert sum(posting.amount_microcredits for posting in state.postings) == 0
    told = {*BEGINNING, *PAID, *CANCELLED, *END, "claim-expired", "claim-released"}
    assert told == set(newest)


def test_a_credit_of_version_1_is_read_as_one_whose_rows_were_split_by_length() -> None:
    old = codec.decode("work-credited", 1, sample("work-credited", 1))
    new = codec.decode("work-credited", 2, sample("work-credited", 2))

    assert isinstance(old, WorkCredited)
    assert isinstance(new, WorkCredited)
    assert (old.counted_by_claim, new.counted_by_claim) == (False, True)
    assert old.at == old.window_end
    assert replace(old, counted_by_claim=True, at=new.at) == new


def test_an_old_body_goes_through_every_step_between(monkeypatch: pytest.MonkeyPatch) -> None:
    def upcast_node_suspended_0_to_1(body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "by": "unknown"}

    monkeypatch.setitem(UPCASTERS, ("node-suspended", 0), upcast_node_suspended_0_to_1)
    old = {name: value for name, value in sample("node-suspended", 1).items() if name != "by"}

    event = codec.decode("node-suspended", 0, old)

    assert codec.encode(event)["by"] == "unknown"
    assert "by" not in old


@pytest.mark.parametrize(
    ("name", "version", "change"),
    [
        ("node-vanished", 1, {}),
        ("node-suspended", 2, {}),
        ("node-suspended", 0, {}),
        ("node-suspended", 1, {"extra": 1}),
        ("node-suspended", 1, {"at": "yesterday"}),
        ("node-suspended", 1, {"at": None}),
        ("work-credited", 1, {"work": [{"layer": 1}]}),
        ("work-credited", 1, {"postings": 5}),
    ],
)
def test_what_it_cannot_read_is_an_unknown_event(name: str, version: int, change: dict[str, Any]) -> None:
    body = {**(sample(name, 1) if name != "node-vanished" else {}), **change}

    with pytest.raises(UnknownEvent):
        codec.decode(name, version, body)


def test_a_missing_field_is_an_unknown_event() -> None:
    body = sample("claim-granted", 1)
    del body["fence"]

    with pytest.raises(UnknownEvent, match="fence"):
        codec.decode("claim-granted", 1, body)


def test_it_starts_with_the_empty_state() -> None:
    assert fold([]) == State()
