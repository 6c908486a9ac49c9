import threading
from pathlib import Path

import pytest

from inference.errors import FileUnreadable
from inference.gguf_index import open_index
from inference.manifest_cache import ManifestCache
from inference.slices import SliceManifest, SlicePlan, plan_slice, slice_manifest
from tests.model_files import DEMO_MODEL, tiny_moe


def test_a_slice_is_digested_once_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_slice(open_index(DEMO_MODEL), 0, 0, 4)
    may_go_on = threading.Event()
    calls: list[SlicePlan] = []

    def slow(plan: SlicePlan) -> SliceManifest:
        calls.append(plan)
        assert may_go_on.wait(10)
        return slice_manifest(plan)

    monkeypatch.setattr("inference.manifest_cache.slice_manifest", slow)
    cache = ManifestCache()
    promises = [cache.get(plan) for _ in range(5)]
    may_go_on.set()

    assert {promise.result(10).sha256 for promise in promises} == {slice_manifest(plan).sha256}
    assert cache.get(plan).result(10) == slice_manifest(plan)
    assert len(calls) == 1


def test_the_least_recently_used_manifest_goes_first() -> None:
    index = open_index(DEMO_MODEL)
    plans = [plan_slice(index, 0, first, first + 1) for first in range(3)]
    cache = ManifestCache(entries=2)
    promises = [cache.get(plans[0]), cache.get(plans[1])]

    cache.get(plans[0])
    cache.get(plans[2])

    assert cache.get(plans[0]) is promises[0]
    assert cache.get(plans[1]) is not promises[1]


def test_a_failure_is_not_remembered(tmp_path: Path) -> None:
    source = tiny_moe(tmp_path / "model.gguf")
    plan = plan_slice(open_index(source), 0, 0, 4)
    hidden = source.rename(tmp_path / "hidden.gguf")
    cache = ManifestCache()

    with pytest.raises(FileUnreadable):
        cache.get(plan).result(10)
    hidden.rename(source)

    assert cache.get(plan).result(10) == slice_manifest(plan)
