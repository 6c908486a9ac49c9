"""Alice has claimed a slice, Bob another one, Mallory none. The market behind the views is the real one."""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.http import HttpResponse
from django.test import Client
from pytest_django import Settings

from inference import slice_views
from inference.errors import Truncated
from inference.gguf_index import ModelIndex, open_index
from inference.slices import SliceManifest, SlicePlan, plan_slice, slice_manifest
from inference.stage_file import StageSource, open_stages
from market.commands import RangeWish, claim_ranges, publish_build, register_node, release_claim, suspend_node
from tests.builders import demo_build, stage_build
from tests.model_files import DEMO_MODEL

pytestmark = [pytest.mark.django_db, pytest.mark.urls("inference.urls")]

WIDE, SMALL = (1, 0, 32), (2, 4, 8)


@dataclass
class Node:
    """A registered node that speaks HTTP."""

    node_id: str
    token: str
    client: Client

    def get(self, path: str, **headers: str) -> HttpResponse:
        return self.client.get(path, headers={"authorization": f"Bearer {self.token}", **headers})  # type: ignore[return-value]


def node(name: str, client: Client) -> Node:
    return Node(*register_node(name, "numpy"), client)


@pytest.fixture
def index(settings: Settings, tmp_path: Path) -> ModelIndex:
    settings.MODEL_PATH = DEMO_MODEL
    settings.STATIC_ROOT = tmp_path  # WhiteNoise warns of a folder that does not exist
    index = open_index(DEMO_MODEL)
    publish_build(demo_build(index.fingerprint))
    return index


@pytest.fixture
def alice(index: ModelIndex, client: Client) -> Node:
    alice = node("Alice", client)
    claim_ranges(alice.node_id, [RangeWish(*WIDE), RangeWish(*SMALL)])
    return alice


def url(index: ModelIndex, layer: int, first: int, last: int) -> str:
    return f"/api/slices/{index.fingerprint}/{layer}/{first}-{last}"


def whole(index: ModelIndex, layer: int, first: int, last: int) -> bytes:
    plan = plan_slice(index, layer, first, last)
    return plan.read(0, plan.size)


def refusal_of(response: HttpResponse) -> tuple[int, str]:
    """Status and code of the error, which has words too."""
    error = response.json()["error"]  # type: ignore[attr-defined]
    assert error["message"]
    return response.status_code, error["code"]


def test_the_manifest_tells_size_and_digests(index: ModelIndex, alice: Node) -> None:
    response = alice.get(url(index, *WIDE) + "/manifest")

    assert response.status_code == 200
    assert response["Content-Type"] == "application/json"
    manifest = SliceManifest.from_json(response.content)
    assert manifest == slice_manifest(plan_slice(index, *WIDE))
    assert manifest.piece_bytes <= slice_views.RESPONSE_BYTES


def test_a_range_is_answered_with_its_bytes(index: ModelIndex, alice: Node) -> None:
    data = whole(index, *WIDE)

    response = alice.get(url(index, *WIDE), range="bytes=700000-700999")

    assert response.status_code == 206
    assert response.content == data[700_000:701_000]
    assert response["Content-Range"] == f"bytes 700000-700999/{len(data)}"
    assert response["Content-Length"] == "1000"
    assert response["Accept-Ranges"] == "bytes"
    assert response["ETag"] == f'"{hashlib.sha256(data).hexdigest()}"'
    digest = response["Repr-Digest"].removeprefix("sha-256=:").removesuffix(":")
    assert base64.b64decode(digest) == hashlib.sha256(data).digest()


def test_pieces_put_together_are_the_slice(index: ModelIndex, alice: Node) -> None:
    manifest = SliceManifest.from_json(alice.get(url(index, *WIDE) + "/manifest").content)

    received = b""
    for digest in manifest.pieces:
        stop = min(len(received) + manifest.piece_bytes, manifest.size)
        piece = alice.get(url(index, *WIDE), range=f"bytes={len(received)}-{stop - 1}").content
        assert hashlib.sha256(piece).hexdigest() == digest
        received += piece

    assert hashlib.sha256(received).hexdigest() == manifest.sha256
    assert received == whole(index, *WIDE)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, alice: Node, index: ModelIndex) -> list[tuple[int, int]]:
    """Every span that a view reads from disk; the manifest is in the cache already."""
    alice.get(url(index, *WIDE) + "/manifest")
    spans: list[tuple[int, int]] = []
    read = SlicePlan.read

    def counted(plan: SlicePlan, start: int, stop: int) -> bytes:
        spans.append((start, stop))
        return read(plan, start, stop)

    monkeypatch.setattr(SlicePlan, "read", counted)
    return spans


def test_a_wide_range_reads_and_sends_no_more_than_the_limit(
    index: ModelIndex, alice: Node, reads: list[tuple[int, int]]
) -> None:
    response = alice.get(url(index, *WIDE), range="bytes=10-")

    assert response.status_code == 206
    assert len(response.content) == slice_views.RESPONSE_BYTES
    assert response["Content-Range"].startswith(f"bytes 10-{slice_views.RESPONSE_BYTES + 9}/")
    assert reads == [(10, slice_views.RESPONSE_BYTES + 10)]


def test_a_whole_slice_is_sent_where_it_fits_and_refused_unread_where_not(
    index: ModelIndex, alice: Node, reads: list[tuple[int, int]]
) -> None:
    wide = alice.get(url(index, *WIDE))
    nothing_read = list(reads)
    small = alice.get(url(index, *SMALL))

    assert refusal_of(wide) == (400, "range_required")
    assert nothing_read == []
    assert small.status_code == 200
    assert small.content == whole(index, *SMALL)


def test_a_range_behind_the_end_is_not_satisfiable(index: ModelIndex, alice: Node) -> None:
    size = len(whole(index, *SMALL))

    response = alice.get(url(index, *SMALL), range=f"bytes={size}-")

    assert refusal_of(response) == (416, "range_not_satisfiable")
    assert response["Content-Range"] == f"bytes */{size}"


def test_a_client_that_has_it_is_told_so(index: ModelIndex, alice: Node) -> None:
    etag = alice.get(url(index, *SMALL))["ETag"]

    for value in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        response = alice.get(url(index, *SMALL), **{"if-none-match": value})
        assert (response.status_code, response.content, response["ETag"]) == (304, b"", etag)
    assert alice.get(url(index, *SMALL), **{"if-none-match": '"other"'}).status_code == 200


def test_if_range_guards_a_resumed_download(index: ModelIndex, alice: Node) -> None:
    etag = alice.get(url(index, *SMALL))["ETag"]
    wide_etag = alice.get(url(index, *WIDE), range="bytes=0-0")["ETag"]

    same = alice.get(url(index, *SMALL), range="bytes=5-9", **{"if-range": etag})
    other = alice.get(url(index, *SMALL), range="bytes=5-9", **{"if-range": '"other"'})
    weak = alice.get(url(index, *SMALL), range="bytes=5-9", **{"if-range": f"W/{etag}"})
    wide_same = alice.get(url(index, *WIDE), range="bytes=5-9", **{"if-range": wide_etag})
    wide_other = alice.get(url(index, *WIDE), range="bytes=5-9", **{"if-range": '"other"'})

    assert (same.status_code, other.status_code, weak.status_code) == (206, 200, 200)
    assert other.content == whole(index, *SMALL)
    assert wide_same.status_code == 206
    assert refusal_of(wide_other) == (412, "slice_changed")


def test_head_tells_the_size_and_sends_nothing(index: ModelIndex, alice: Node) -> None:
    for layer, first, last in (WIDE, SMALL):
        response = alice.client.head(
            url(index, layer, first, last), headers={"authorization": f"Bearer {alice.token}", "range": "bytes=0-9"}
        )

        assert response.status_code == 200
        assert response["Content-Length"] == str(len(whole(index, layer, first, last)))
        assert response["ETag"]
        assert response.content == b""


def test_only_the_holder_of_the_claim_gets_the_slice(index: ModelIndex, alice: Node, client: Client) -> None:
    bob, mallory = node("Bob", client), node("Mallory", client)
    claim_ranges(bob.node_id, [RangeWish(3, 0, 4)])

    for path in (url(index, *SMALL), url(index, *SMALL) + "/manifest"):
        assert alice.get(path).status_code == 200
        assert refusal_of(bob.get(path)) == (403, "not_claimed")
        assert refusal_of(mallory.get(path)) == (403, "not_claimed")
    assert bob.get(url(index, 3, 0, 4)).status_code == 200


def test_a_part_of_a_claim_is_not_a_claim(index: ModelIndex, alice: Node) -> None:
    assert refusal_of(alice.get(url(index, 2, 4, 7))) == (403, "not_claimed")
    assert refusal_of(alice.get(url(index, 2, 4, 9))) == (403, "not_claimed")


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong", "Basic QTpC", "Bearer " + "x" * 5000])
def test_without_a_token_nothing_is_told(index: ModelIndex, client: Client, authorization: str) -> None:
    response = client.get(url(index, *SMALL), headers={"authorization": authorization})

    assert refusal_of(response) == (401, "bad_token")  # type: ignore[arg-type]
    assert response["WWW-Authenticate"] == "Bearer"


def test_a_claim_that_ended_no_longer_counts(index: ModelIndex, client: Client) -> None:
    bob = node("Bob", client)
    claim = claim_ranges(bob.node_id, [RangeWish(5, 0, 2)])[0]
    before = bob.get(url(index, 5, 0, 2)).status_code

    release_claim(bob.node_id, claim.claim_id)

    assert before == 200
    assert refusal_of(bob.get(url(index, 5, 0, 2))) == (403, "not_claimed")


def test_a_suspended_node_gets_nothing(index: ModelIndex, alice: Node) -> None:
    suspend_node(alice.node_id, reason="wrong answers", by="admin")

    assert refusal_of(alice.get(url(index, *SMALL))) == (403, "suspended")


def test_a_build_that_is_not_here_any_more_is_unknown(
    index: ModelIndex, alice: Node, client: Client, settings: Settings
) -> None:
    other = demo_build("feed" * 8)
    publish_build(other)
    claim_ranges(alice.node_id, [RangeWish(0, 0, 2)], build=other.fingerprint)

    assert refusal_of(alice.get(f"/api/slices/{other.fingerprint}/0/0-2")) == (404, "unknown_build")


def test_a_model_that_cannot_be_read_is_the_servers_fault(
    index: ModelIndex, alice: Node, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(plan: SlicePlan, start: int, stop: int) -> bytes:
        raise Truncated("the model ends early")

    monkeypatch.setattr(SlicePlan, "read", broken)
    cut_off = alice.get(url(index, *SMALL), range="bytes=0-9")
    settings.MODEL_PATH = tmp_path / "absent.gguf"
    absent = alice.get(url(index, *SMALL))

    assert refusal_of(cut_off) == (503, "truncated")
    assert refusal_of(absent) == (503, "file_unreadable")


def test_other_methods_are_refused(index: ModelIndex, alice: Node) -> None:
    response = alice.client.post(url(index, *SMALL), headers={"authorization": f"Bearer {alice.token}"})

    assert refusal_of(response) == (405, "method_not_allowed")  # type: ignore[arg-type]
    assert response["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "path",
    [
        "/api/slices/xyz/0/0-1",
        "/api/slices/{build}/0/0-12345678",
        "/api/slices/{build}/-1/0-1",
        "/api/slices/{build}/0/0",
    ],
)
def test_addresses_that_cannot_be_slices_lead_nowhere(index: ModelIndex, alice: Node, path: str) -> None:
    assert alice.get("/api/slices/" + path.format(build=index.fingerprint)).status_code == 404


@pytest.fixture
def stages(index: ModelIndex) -> StageSource:
    """The demo model's stages, published as the backbone would."""
    source = open_stages(index)
    publish_build(stage_build(source.cuts.build, units=2, unit_bytes=max(source.unit_bytes)))
    return source


def test_a_stage_that_was_claimed_is_served_whole_or_without_experts(stages: StageSource, client: Client) -> None:
    carol = Node(*register_node("Carol's server", "ggml", role="stage"), client)
    claim = claim_ranges(carol.node_id, [RangeWish(0, 1, 2)])[0]
    path = f"/api/slices/{stages.cuts.build}/0/1-2"

    manifests = [SliceManifest.from_json(carol.get(f"{path}/manifest{query}").content) for query in ("", "?experts=0")]
    piece = carol.get(f"{path}?experts=0", range="bytes=0-999").content

    assert claim.build == stages.cuts.build
    assert manifests[0] == slice_manifest(stages.plan(1, 2))
    assert manifests[1] == slice_manifest(stages.plan(1, 2, without_experts=True))
    assert manifests[0].size == manifests[1].size
    assert manifests[0].sha256 != manifests[1].sha256
    assert piece == stages.plan(1, 2, without_experts=True).read(0, 1000)


def test_a_stage_is_not_for_who_claimed_another_run_of_units(stages: StageSource, client: Client) -> None:
    carol = Node(*register_node("Carol's server", "ggml", role="stage"), client)
    claim_ranges(carol.node_id, [RangeWish(0, 0, 1)])

    response = carol.get(f"/api/slices/{stages.cuts.build}/0/0-2", range="bytes=0-999")

    assert refusal_of(response) == (403, "not_claimed")
