// Cells of one build by one measure at a time, from the server. See payload in measures.py.

export class Cells {
  constructor(address, build, measure) {
    Object.assign(this, { address, build, measure, etag: "" });
  }

  choose(measure) {
    Object.assign(this, { measure, etag: "" });
  }

  // What the server says; null: as before, or another measure was chosen meanwhile. Throws when it does not answer.
  async next() {
    const wanted = this.measure;
    const address = `${this.address}?build=${this.build}&measure=${wanted}`;
    const headers = this.etag ? { "If-None-Match": this.etag } : {};
    const response = await fetch(address, { headers, cache: "no-store" });
    if (!response.ok && response.status !== 304) {
      throw new Error(`the server answered ${response.status}`);
    }
    if (response.status !== 200 || wanted !== this.measure) {
      return null;
    }
    this.etag = response.headers.get("ETag") || "";
    return response.json();
  }
}

// One byte for each cell, layer by layer.
export function codesOf(map) {
  return Uint8Array.from(atob(map.cells), (letter) => letter.charCodeAt(0));
}

// What is behind a cell, below the map; `address` is also a page of its own.
export function showCell(address) {
  if (!window.htmx) {
    window.location.assign(address);
    return;
  }
  const panel = document.getElementById("cell");
  panel.hidden = false;
  window.htmx
    .ajax("GET", address, { target: "#cell", swap: "innerHTML" })
    .then(() => panel.querySelector("dl")?.scrollIntoView({ block: "nearest" }));
}
