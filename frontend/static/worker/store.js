// Pieces of slices in IndexedDB, which browsers offer at insecure addresses too. What cannot be kept is downloaded again.
// Keys: BUILD/LAYER/FIRST-LAST/NUMBER for a piece, a Blob, and .../size for the bytes of the whole slice. A Blob is read as a
// stream, into memory that is there; an array would come as a copy of a copy, both garbage.

import { fillFrom } from "./body.js";
import { say } from "./texts.js";

const NAME = "expertswarm", VERSION = 2, PIECES = "pieces", SIZE = "size";
const SPARE_BYTES = 8 << 20; // what the browser needs beside the pieces
const KEY = /^([^/]+)\/(\d+)\/(\d+)-(\d+)\/size$/;

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

// A write is only written when its transaction is: a full disk shows there, after the request succeeded.
const committed = (transaction) => new Promise((resolve, reject) => {
  transaction.oncomplete = () => resolve();
  transaction.onabort = () => reject(transaction.error);
});

// What an older page kept in another form is downloaded again.
function renew(database) {
  for (const name of database.objectStoreNames) database.deleteObjectStore(name);
  database.createObjectStore(PIECES);
}

export class PieceStore {
  // `trouble`: why nothing is kept (a private window, a full disk), empty while all is well.
  static async open() {
    const store = new PieceStore();
    store.trouble = "";
    try {
      const opening = indexedDB.open(NAME, VERSION);
      opening.onupgradeneeded = () => renew(opening.result);
      store.database = await done(opening);
    } catch (error) {
      store.note(error);
    }
    return store;
  }

  note(error) {
    const full = error?.name === "QuotaExceededError";
    this.trouble = full
      ? say("this browser gives no more room for storage: after a reload the experts are downloaded again")
      : say("this browser keeps nothing (a private window?): after a reload the experts are downloaded again");
  }

  // Says beforehand when the browser has no room for so much; where it does not tell its room, writing will.
  async expect(claim, size) {
    if (!this.database) return;
    await this.put(claim, SIZE, size);
    const { quota = Infinity, usage = 0 } = (await navigator.storage?.estimate?.().catch(() => ({}))) ?? {};
    if (size + SPARE_BYTES > quota - usage && !(await this.get(claim, 0))) this.note({ name: "QuotaExceededError" });
  }

  // Slices of which pieces are here: [{build, layer, first, last, size_bytes}].
  async ranges() {
    if (!this.database) return [];
    try {
      const found = [];
      for (const key of await done(this.table("readonly").getAllKeys())) {
        const [, build, layer, first, last] = KEY.exec(key) ?? [];
        if (!build) continue;
        const size = await done(this.table("readonly").get(key));
        found.push({ build, layer: Number(layer), first: Number(first), last: Number(last), size_bytes: size });
      }
      return found;
    } catch {
      return [];
    }
  }

  static folder(claim) {
    return `${claim.build}/${claim.layer}/${claim.first}-${claim.last}/`;
  }

  table(mode) {
    return this.database.transaction(PIECES, mode).objectStore(PIECES);
  }

  // Fills `target` with a piece; whether one of that size is here.
  async read(claim, number, target) {
    const piece = await this.get(claim, number);
    if (piece?.size !== target.length) return false;
    try {
      return (await fillFrom(piece.stream(), target)) === target.length;
    } catch {
      return false; // its file is gone
    }
  }

  async write(claim, number, piece) {
    await this.put(claim, number, new Blob([piece]));
  }

  // null: nothing is kept under that name.
  async get(claim, name) {
    if (!this.database) return null;
    try {
      return (await done(this.table("readonly").get(PieceStore.folder(claim) + name))) ?? null;
    } catch {
      return null;
    }
  }

  async put(claim, name, value) {
    if (!this.database) return;
    try {
      const table = this.table("readwrite");
      table.put(value, PieceStore.folder(claim) + name);
      await committed(table.transaction);
    } catch (error) {
      this.note(error);
    }
  }

  // Deletes what belongs to none of `claims`.
  async prune(claims) {
    if (!this.database) return;
    const kept = claims.map(PieceStore.folder);
    try {
      const table = this.table("readwrite");
      for (const key of await done(table.getAllKeys())) if (!kept.some((folder) => key.startsWith(folder))) table.delete(key);
    } catch (error) {
      this.note(error);
    }
  }
}
