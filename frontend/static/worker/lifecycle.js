// The worker as a whole: claim, download, serve, rest, give back. One `step` does whatever is due; `run` repeats it.
// inference/worker/lifecycle.py is the model. Knows nothing of the page: `report(state)` is its only way out.

import { planClaims } from "./claim_plan.js";
import { Connection } from "./connection.js";
import { downloadSlice } from "./download.js";
import { Market, ServerError, pause } from "./market.js";
import { say, sayCode } from "./texts.js";
import { bytes, describe, summary } from "./words.js";

const HEARTBEATS_PER_LEASE = 4;
const FIRST_PENDING_SECONDS = 0.5, PENDING_SECONDS = 3, EARNINGS_SECONDS = 10, MOST_PAUSE_SECONDS = 60, PACE_SECONDS = 15;
const RECLAIMED_AT_ONCE = 32;

export class Lifecycle {
  // kernels: {open(bytes), kernelClass, types, threads}; pace: pace.js; battery: level 0..1 or null; restText: "" or why
  // it starts with a rest; report(state): state as documented in worker.js.
  constructor({ token, name, budgetBytes, relayUrl, kernels, store, sha256, pace, battery, restText, report }) {
    Object.assign(this, { budgetBytes, kernels, store, sha256, pace, battery, report });
    this.market = new Market(token);
    this.holdings = new Map();
    this.claims = [];
    this.slices = new Map(); // claim id -> {label, done, size, here}
    this.rests = new Map(restText ? [["page", restText]] : []); // who wants a rest -> why, in words
    this.failures = 0;
    this.pendingRounds = 0; // one after the other, in which a claim was not live yet
    this.stopping = new AbortController();
    this.state = { phase: "starting", text: say("asking the server for work"), rows: 0, receivedBytes: 0, earnings: null, connected: false, slices: [] };
    this.connection = new Connection(this.holdings, {
      identity: { token, name }, relayUrl, kernels,
      findRelays: () => this.market.relays(),
      tell: (change) => this.tell(change),
      onRefused: ({ code, message }) => this.end(code, code === "replaced" ? say("this device now works in another tab or window") : say("the server refused this device: {why}", { why: message })),
      battery: () => this.battery,
    });
  }

  get stopped() {
    return this.stopping.signal.aborted;
  }

  get resting() {
    return this.rests.size > 0;
  }

  // --- for the owner --------------------------------------------------------------------------------------------------
  async run() {
    if (this.resting) this.showRest();
    this.checkPace();
    while (!this.stopped) {
      const wait = this.resting ? MOST_PAUSE_SECONDS : await this.round();
      await Promise.race([pause(wait), new Promise((wake) => (this.wake = wake))]);
    }
  }

  setBudget(budgetBytes) {
    this.budgetBytes = budgetBytes;
    this.nextDemand = 0;
    this.wake?.();
  }

  setBattery(level) {
    this.battery = level;
  }

  // Hang up: nothing is asked of this device until nobody wants a rest. `text` says why; "": `who` wants none any more.
  // The claims last as long as their lease; the slices stay.
  rest(who, text) {
    const rested = this.resting;
    if (text) this.rests.set(who, text);
    else this.rests.delete(who);
    if (this.resting) {
      this.fetching?.abort();
      this.connection.drain();
      this.connection.hangUp();
      this.showRest();
    } else if (rested) {
      this.tell({ phase: "starting", text: say("going on") });
      this.wake?.();
    }
  }

  showRest() {
    this.tell({ phase: "paused", text: this.rests.values().next().value });
  }

  // The page goes away. The claims stay for the rest of their lease: a reload finds its experts again.
  leave() {
    this.stopping.abort();
    this.fetching?.abort();
    this.connection.drain();
    this.connection.hangUp();
  }

  // Give everything back.
  async stop() {
    this.leave();
    this.wake?.();
    await this.giveBack();
    await this.store.prune([]);
    this.tell({ phase: "stopped", text: say("stopped; everything was given back") });
  }

  async giveBack() {
    for (const claim of this.claims) this.drop(claim);
    this.claims = [];
    try {
      for (const claim of (await this.market.heartbeat()).claims) await this.market.release(claim.claim_id);
    } catch {
      // The server is away: the claims end by themselves.
    }
  }

  // A device that got slow (heat, other work) would be late for every answer: it rests for a while, longer each time.
  checkPace() {
    if (this.stopped) return;
    setTimeout(() => this.checkPace(), PACE_SECONDS * 1000);
    if (this.resting || !this.state.connected) return;
    const rest = this.pace.check(performance.now() / 1000);
    if (!rest) return;
    const factor = this.pace.factor.toFixed(0);
    this.rest("pace", say("paused: this device is {factor} times slower than it was (heat, or other work); on again in {seconds} seconds", { factor, seconds: rest }));
    setTimeout(() => this.rest("pace", ""), rest * 1000);
  }

  // --- one round ------------------------------------------------------------------------------------------------------
  async round() {
    try {
      const wait = await this.step();
      this.failures = 0;
      return wait;
    } catch (error) {
      if (this.stopped || this.resting) return 0;
      if (error.status === 401) return this.end("unknown_token", say("the server does not know this device any more"));
      if (error instanceof RangeError) {
        await this.giveBack();
        return this.end("no_memory", say("this browser has no memory left for so many experts: lend less"));
      }
      this.failures += 1;
      const wait = Math.min(MOST_PAUSE_SECONDS, 2 ** this.failures) * (0.5 + Math.random() / 2);
      this.tell({ phase: "waiting", text: say("{why}; trying again in {seconds} seconds", { why: error.message || error, seconds: Math.ceil(wait) }) });
      return wait;
    }
  }

  async step() {
    // A link made of a stage's token: what it holds is no work for a tab.
    this.role ??= (await this.market.me()).role;
    if (this.role !== "worker") return this.end("wrong_kind", sayCode("wrong_kind", "this device holds a stage"));
    const heartbeat = await this.market.heartbeat();
    this.claims = heartbeat.claims;
    this.leaseSeconds = heartbeat.lease_seconds;
    let wait = (heartbeat.lease_seconds / HEARTBEATS_PER_LEASE) * (0.8 + Math.random() / 5);
    const plan = planClaims(this.held(), this.claims, this.budgetBytes);
    for (const claim of plan.drop) this.drop(claim);
    if (plan.drop.length) this.connect();
    for (const claim of plan.giveBack) await this.release(claim);
    let { fetch } = plan;
    if (!fetch.length && plan.freeBytes > 0) ({ fetch, wait } = await this.claimMore(plan.freeBytes, wait));
    const wanted = this.held().concat(fetch);
    if (wanted.length) await this.store.prune(wanted);
    for (const claim of fetch) this.note(claim, { done: 0, size: claim.size_bytes });
    for (const claim of fetch) await this.acquire(claim);
    this.connect();
    await this.showEarnings();
    const isPending = this.claims.some((claim) => claim.state !== "live");
    this.pendingRounds = isPending ? this.pendingRounds + 1 : 0;
    return isPending ? Math.min(PENDING_SECONDS, FIRST_PENDING_SECONDS * 2 ** (this.pendingRounds - 1)) : Math.min(wait, EARNINGS_SECONDS);
  }

  async claimMore(freeBytes, wait) {
    const build = this.holdings.values().next().value?.claim.build;
    if (performance.now() < (this.nextDemand ?? 0) && this.holdings.size) return { fetch: [], wait };
    const again = await this.reclaim(freeBytes, build);
    if (again.length) return { fetch: again, wait };
    const demand = await this.market.demand(freeBytes, build, this.kernels.types);
    this.nextDemand = performance.now() + demand.poll_seconds * 1000;
    let why = demand.reason ? sayCode(demand.reason, demand.message) : say("nothing is wanted");
    if (demand.ranges.length) {
      try {
        const fetch = await this.market.claimBest(freeBytes, build, this.kernels.types);
        this.claims = this.claims.concat(fetch);
        return { fetch, wait };
      } catch (error) {
        if (!isRefusal(error)) throw error;
        why = error.message; // somebody was first, or the operator's budget is spent
      }
    }
    if (!this.claims.length) this.tell({ phase: "idle", text: say("no work because {why}", { why }) });
    return { fetch: [], wait: Math.min(wait, demand.poll_seconds) };
  }

  // What this browser still has from before, where the server wants it: nothing is downloaded for it.
  async reclaim(freeBytes, build) {
    const claimed = [];
    const isOurs = (range) => this.claims.some((claim) => describe(claim) === describe(range) && claim.build === range.build);
    for (const range of (await this.store.ranges()).slice(0, RECLAIMED_AT_ONCE)) {
      if ((build && range.build !== build) || range.size_bytes > freeBytes || isOurs(range)) continue;
      try {
        for (const claim of await this.market.claimAgain(range)) {
          claimed.push(claim);
          this.claims = this.claims.concat(claim);
          freeBytes -= claim.size_bytes;
          build = claim.build;
        }
      } catch (error) {
        if (!isRefusal(error)) throw error;
      }
    }
    return claimed;
  }

  async release(claim) {
    this.drop(claim);
    await this.market.release(claim.claim_id);
    this.claims = this.claims.filter((other) => other.claim_id !== claim.claim_id);
  }

  async acquire(claim) {
    const alive = setInterval(() => this.market.heartbeat().catch(() => {}), (this.leaseSeconds / HEARTBEATS_PER_LEASE) * 1000);
    this.fetching = new AbortController();
    try {
      const progress = (done, size) => {
        this.note(claim, { done, size });
        this.tell({ phase: "downloading", text: say("downloading {what}: {done} of {size}", { what: describe(claim), done: bytes(done), size: bytes(size) }) });
      };
      const { market, store, kernels, sha256 } = this;
      const download = await downloadSlice({ market, store, kernels, sha256, claim, progress, signal: this.fetching.signal });
      this.fetching.signal.throwIfAborted();
      this.holdings.set(claim.claim_id, { claim, sha256: download.sha256, kernel: download.kernel });
      this.note(claim, { here: true });
      this.tell({ receivedBytes: this.state.receivedBytes + download.receivedBytes });
      this.connect();
      await this.market.delivered(claim, download.sha256);
      this.connect(); // a second report: the relay reads the claims again, and now finds the digest there
    } catch (error) {
      if (!(error instanceof ServerError) && !this.fetching.signal.aborted) await this.release(claim);
      throw error;
    } finally {
      clearInterval(alive);
    }
  }

  async showEarnings() {
    const me = await this.market.me();
    const live = new Set(me.claims.filter((claim) => claim.state === "live").map((claim) => claim.claim_id));
    this.claims = me.claims;
    this.tell({ earnings: me.balance_microcredits, storage: this.store.trouble });
    const claims = this.held();
    if (!claims.length || !this.state.connected) return;
    const held = summary(claims);
    if (!claims.some((claim) => live.has(claim.claim_id))) this.tell({ phase: "checking", text: say("{held}: the server checks it", { held }) });
    else if (me.reason) this.tell({ phase: "serving", text: say("holding {held}, but {why}", { held, why: sayCode(me.reason, me.message ?? me.reason) }) });
    else this.tell({ phase: "serving", text: say("serving {held}", { held }) });
  }

  // --- parts ----------------------------------------------------------------------------------------------------------
  held() {
    return [...this.holdings.values()].map((holding) => holding.claim);
  }

  drop(claim) {
    this.holdings.get(claim.claim_id)?.kernel.close?.(); // threads' or a graphics card's memory, where there is any
    this.holdings.delete(claim.claim_id);
    this.slices.delete(claim.claim_id);
  }

  connect() {
    this.connection.update(!this.resting && !this.stopped);
  }

  // What the page shows of one slice.
  note(claim, change) {
    this.slices.set(claim.claim_id, { label: describe(claim), here: false, ...this.slices.get(claim.claim_id), ...change });
  }

  // It cannot go on: the owner has to act.
  end(code, text) {
    this.leave();
    this.wake?.();
    this.tell({ phase: "refused", code, text });
    return 0;
  }

  tell(change) {
    const { phase } = change;
    // While it rests, news of what still ends (a download, a connection) must not hide why.
    if (this.resting && !this.stopped && phase && phase !== "paused") return;
    Object.assign(this.state, change, { slices: [...this.slices.values()] });
    this.report({ ...this.state });
  }
}

const isRefusal = (error) => error instanceof ServerError && error.status && error.status !== 401 && error.status < 500;
