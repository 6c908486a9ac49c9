"""market/codec.py, with one stored sample of every version of every event that was ever written."""

import json
from pathlib import Path
from typing import Any

import pytest

from market import codec
from market.errors import UnknownEvent
from market.events import EVENT_TYPES, Event, Recorded, stream_of
from market.fold import State, fold

SAMPLES = Path(__file__).parent / "samples"
# An order in which the samples tell a possible story; a claim ends in one of two ways.
STORY = (
    "build-published",
    "node-registered",
    "node-token-rotated",
    "policy-changed",
    "claim-granted",
    "slice-delivered",
    "replica-verified",
    "demand-observed",
    "work-credited",
    "replica-lost",
    "{ending}",
    "node-suspended",
    "node-reinstated",
)


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


@pytest.mark.parametrize("ending", ["claim-expired", "claim-released"])
def test_all_samples_fold(ending: str) -> None:
    names = [ending if name == "{ending}" else name for name in STORY]

    state = fold(recorded([codec.decode(name, 1, sample(name, 1)) for name in names]))

    assert state.position == len(STORY)
    assert state.claims[1].state == ending.removeprefix("claim-")
    assert state.claims[1].earned_microcredits == 3932
    assert {*names, "claim-expired", "claim-released"} == {kind.NAME for kind in EVENT_TYPES}


def test_an_old_body_goes_through_every_step_between(monkeypatch: pytest.MonkeyPatch) -> None:
    def upcast_node_suspended_0_to_1(body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "by": "unknown"}

    monkeypatch.setitem(codec.UPCASTERS, ("node-suspended", 0), upcast_node_suspended_0_to_1)
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
