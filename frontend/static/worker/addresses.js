// Where to find a relay: the page's own server, and what the server says its relays are. relay/addresses.py is the model.

const MOST_ADDRESSES = 32;
const MOST_LETTERS = 256;
const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

const isLoopback = (url) => LOOPBACK.has(new URL(url).hostname);

function canBeDialled(url) {
  try {
    return typeof url === "string" && url.length <= MOST_LETTERS && /^wss?:\/\//.test(url) && Boolean(new URL(url).hostname);
  } catch {
    return false;
  }
}

const anyOf = (list) => list[Math.floor(Math.random() * list.length)];

export class RelayAddresses {
  constructor(given) {
    this.given = this.current = given;
    this.known = [given];
    this.failures = new Map(); // address -> when it failed, as a count
    this.count = 0;
  }

  // What the server says its relays are now. Ignored: what cannot be dialled; ws:// where wss:// was given, since a token
  // must not travel in the open; and this very machine, unless the page came from there.
  learn(urls) {
    const secure = this.given.startsWith("wss://"), far = !isLoopback(this.given);
    const usable = urls.filter((url) => canBeDialled(url) && (url.startsWith("wss://") || !secure) && !(far && isLoopback(url)));
    this.known = [...new Set([this.given, ...usable])].slice(0, MOST_ADDRESSES);
    for (const url of this.failures.keys()) if (!this.known.includes(url)) this.failures.delete(url);
  }

  // The present one does not answer: one that was not tried yet, at random, else the one that failed longest ago.
  failed() {
    this.failures.set(this.current, ++this.count);
    const untried = this.known.filter((url) => !this.failures.has(url));
    this.current = untried.length ? anyOf(untried) : this.known.reduce((a, b) => (this.failures.get(b) < this.failures.get(a) ? b : a));
  }

  answered() {
    this.failures.delete(this.current);
  }
}
