// A slice into a kernel's memory, piece by piece: from the browser's store where the digest is right, else from the server.

import { ServerError, pause } from "./market.js";
import { say } from "./texts.js";

const PIECE_ATTEMPTS = 5;
const MOST_PIECE_BYTES = 64 << 20;
const MOST_OVERHEAD_BYTES = 1 << 20;
const DIGEST = /^[0-9a-f]{64}$/;

export class BadAnswer extends Error {}

// Throws BadAnswer unless the manifest describes the claim's slice.
export function checkManifest(manifest, claim) {
  const same = ["build", "layer", "first", "last"].every((key) => manifest[key] === claim[key]);
  const { size, piece_bytes: pieceBytes, pieces, sha256 } = manifest;
  const fits = Number.isSafeInteger(size) && size > 0 && Number.isSafeInteger(pieceBytes) && pieceBytes > 0
    && pieceBytes <= MOST_PIECE_BYTES && size <= claim.size_bytes + MOST_OVERHEAD_BYTES
    && Array.isArray(pieces) && pieces.length === Math.ceil(size / pieceBytes) && [sha256, ...pieces].every((digest) => DIGEST.test(digest));
  if (!same || !fits) throw new BadAnswer(say("the server's manifest is not that of the claimed slice"));
}

// {kernel, sha256, receivedBytes}. kernels: kernels.js; progress(doneBytes, sizeBytes) after each piece. Throws ServerError,
// BadAnswer, RangeError (no memory), BadSlice; AbortError when `signal` says so.
export async function downloadSlice({ market, store, kernels, sha256, claim, progress, signal }) {
  const manifest = await market.manifest(claim);
  checkManifest(manifest, claim);
  const source = { market, store, sha256, claim, manifest };
  const refill = (again) => fill(again, source, () => {}, new AbortController().signal);
  const kernel = await kernels.open(manifest.size, refill);
  await store.expect(claim, manifest.size);
  const receivedBytes = await fill(kernel, source, progress, signal);
  await kernel.open();
  return { kernel, sha256: manifest.sha256, receivedBytes };
}

// Writes the slice into a kernel's memory; the bytes that came from the server.
async function fill(kernel, { market, store, sha256, claim, manifest }, progress, signal) {
  let receivedBytes = 0, copy = null;
  progress(0, manifest.size);
  for (let number = 0; number < manifest.pieces.length; number++) {
    signal.throwIfAborted();
    const start = number * manifest.piece_bytes, stop = Math.min(start + manifest.piece_bytes, manifest.size);
    const place = () => kernel.bytes().subarray(start, stop);
    const right = () => sha256.of(place()) === manifest.pieces[number];
    if (!(await store.read(claim, number, place())) || !right()) {
      await fetchPiece(market, claim, start, place, right, signal);
      receivedBytes += stop - start;
      // What is stored is copied from an array of its own, the same one for all pieces: garbage is collected late.
      if (copy?.length !== stop - start) copy = new Uint8Array(stop - start);
      copy.set(place());
      await store.write(claim, number, copy);
    }
    progress(stop, manifest.size);
  }
  if (sha256.of(kernel.bytes()) !== manifest.sha256) throw new BadAnswer(say("the pieces do not give the slice of the manifest"));
  return receivedBytes;
}

// Straight to its place in the kernel's memory.
async function fetchPiece(market, claim, start, place, right, signal) {
  for (let attempt = 0; ; attempt++) {
    let trouble;
    try {
      await market.range(claim, start, place(), signal);
      if (right()) return;
      trouble = new BadAnswer(say("a piece of the slice arrived damaged"));
    } catch (error) {
      if (!(error instanceof ServerError) || (error.status && error.status < 500 && error.status !== 429)) throw error;
      trouble = error;
    }
    signal.throwIfAborted();
    if (attempt + 1 >= PIECE_ATTEMPTS) throw trouble;
    await pause(0.25 * 2 ** attempt * (0.5 + Math.random()));
  }
}
