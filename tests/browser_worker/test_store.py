"""store.js in Chromium: pieces of slices come back as they were put, and go with their slice."""

import pytest

from inference.benchmarks.wasm_page import WasmPage

pytestmark = pytest.mark.browser

STORE = """async (script) => {
  const { PieceStore } = await import("/store.js");
  const store = await PieceStore.open();
  const claim = { build: "b", layer: 3, first: 4, last: 6 };
  const piece = Uint8Array.from({ length: 300_000 }, (_, i) => i * i);
  await store.prune([]);
  await store.expect(claim, 1_000_000);
  await store.write(claim, 0, piece);
  const found = [store.trouble, await store.ranges(), await store.read(claim, 1, new Uint8Array(300_000))];
  const kept = new Uint8Array(piece.length);
  found.push(await store.read(claim, 0, kept), kept.every((value, i) => value === piece[i]));
  found.push(await store.read(claim, 0, new Uint8Array(299_999)));
  await store.prune([{ ...claim, layer: 4 }]);
  found.push(await store.read(claim, 0, kept), await store.ranges());
  store.database.close();
  return found;
}"""
# What pages kept before pieces were Blobs.
OLDER = """async () => {
  const { PieceStore } = await import("/store.js");
  const request = (one) => new Promise((done, failed) =>
    Object.assign(one, { onsuccess: () => done(one.result), onerror: failed }));
  await request(indexedDB.deleteDatabase("expertswarm"));
  const opening = indexedDB.open("expertswarm", 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore("pieces").put(7, "b/3/4-6/size");
  (await request(opening)).close();
  const store = await PieceStore.open();
  return [store.trouble, await store.ranges()];
}"""


def test_pieces_come_back_as_they_were_put_until_their_slice_goes(page: WasmPage) -> None:
    found = page.run(STORE)

    kept = {"build": "b", "layer": 3, "first": 4, "last": 6, "size_bytes": 1_000_000}
    assert found == ["", [kept], False, True, True, False, False, []]


def test_what_an_older_page_kept_is_forgotten(page: WasmPage) -> None:
    found = page.run(OLDER)

    assert found == ["", []]
