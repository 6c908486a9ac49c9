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
  await store.put(claim, 0, piece);
  const found = [store.trouble, await store.ranges(), await store.get(claim, 1)], kept = await store.get(claim, 0);
  found.push(kept.length === piece.length && kept.every((value, i) => value === piece[i]));
  await store.prune([{ ...claim, layer: 4 }]);
  return [...found, await store.get(claim, 0), await store.ranges()];
}"""


def test_pieces_come_back_as_they_were_put_until_their_slice_goes(page: WasmPage) -> None:
    found = page.run(STORE)

    kept = {"build": "b", "layer": 3, "first": 4, "last": 6, "size_bytes": 1_000_000}
    assert found == ["", [kept], None, True, None, []]
