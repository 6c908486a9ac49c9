// Pieces of slices in IndexedDB, which browsers offer at insecure addresses too. What cannot be kept is downloaded again.

const NAME = "expertswarm", PIECES = "pieces";

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

export class PieceStore {
  // `trouble`: why nothing is kept (a private window, a full disk), empty while all is well.
  static async open() {
    const store = new PieceStore();
    store.trouble = "";
    try {
      const opening = indexedDB.open(NAME, 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore(PIECES);
      store.database = await done(opening);
    } catch (error) {
      store.note(error);
    }
    return store;
  }

  note(error) {
    const full = error?.name === "QuotaExceededError";
    this.trouble = full
      ? "this browser gives no more room for storage: after a reload the experts are downloaded again"
      : "this browser keeps nothing (a private window?): after a reload the experts are downloaded again";
  }

  static folder(claim) {
    return `${claim.build}/${claim.layer}/${claim.first}-${claim.last}/`;
  }

  table(mode) {
    return this.database.transaction(PIECES, mode).objectStore(PIECES);
  }

  // A Uint8Array, or null.
  async get(claim, number) {
    if (!this.database) return null;
    try {
      return (await done(this.table("readonly").get(PieceStore.folder(claim) + number))) ?? null;
    } catch {
      return null;
    }
  }

  async put(claim, number, piece) {
    if (!this.database) return;
    try {
      await done(this.table("readwrite").put(piece, PieceStore.folder(claim) + number));
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
