// The worker as a whole: claim, download, serve, give back. One `step` does whatever is due; `run` repeats it.
// inference/worker/lifecycle.py is the model. Knows nothing of the page: `report(state)` is its only way out.

import { planClaims } from "./claim_plan.js";
import { TYPE } from "./constants.js";
import { downloadSlice } from "./download.js";
import { jsonBody, makeFrame } from "./frames.js";
import { KERNEL_CLASS, TYPES } from "./kernel.js";
import { Market, ServerError, pause } from "./market.js";
import { RelayLink } from "./relay_link.js";
import { ExpertService } from "./service.js";

const HEARTBEATS_PER_LEASE = 4;
const PENDING_SECONDS = 3, EARNINGS_SECONDS = 10, MOST_PAUSE_SECONDS = 60;

// "layer 3, experts 8-14"
export const describe = ({ layer, first, last }) =>
  `layer ${layer}, ${last - first === 1 ? `expert ${first}` : `experts ${first}-${last - 1}`}`;

// Few ranges by name, many by number.
function summary(claims) {
  if (claims.length <= 3) return claims.map(describe).join("; ");
  const experts = claims.reduce((sum, claim) => sum + claim.last - claim.first, 0);
  return `${experts} experts of ${new Set(claims.map((claim) => claim.layer)).size} layers`;
}

export class Lifecycle {
  constructor({ token, name, budgetBytes, relayUrl, module, store, sha256, report }) {
    Object.assign(this, { token, name, budgetBytes, relayUrl, module, store, sha256, report });
    this.market = new Market(token);
    this.holdings = new Map();
    this.claims = [];
    this.failures = 0;
    this.link = null;
    this.stopping = new AbortController();
    this.state = { phase: "starting", text: "asking the server for work", rows: 0, receivedBytes: 0, earnings: null, connected: false };
    this.service = new ExpertService(this.holdings, {
      send: (frame) => this.link?.send(frame),
      consumed: (frame) => this.link?.consumed(frame),
      onAnswer: () => this.tell({ rows: this.service.rows }),
    });
  }

  // --- for the owner --------------------------------------------------------------------------------------------------
  async run() {
    while (!this.stopping.signal.aborted) {
      const wait = this.paused ? MOST_PAUSE_SECONDS : await this.round();
      await Promise.race([pause(wait), new Promise((wake) => (this.wake = wake))]);
    }
  }

  setBudget(budgetBytes) {
    this.budgetBytes = budgetBytes;
    this.wake?.();
  }

  // Hang up and rest: nothing is asked of this device until `resume`. The claims last as long as their lease.
  pause(text) {
    this.paused = true;
    this.hangUp();
    this.tell({ phase: "paused", text });
  }

  resume() {
    this.paused = false;
    this.tell({ phase: "starting", text: "going on" });
    this.wake?.();
  }

  // Give everything back.
  async stop() {
    this.stopping.abort();
    this.wake?.();
    this.link?.send(makeFrame(TYPE.DRAIN, {}));
    this.hangUp();
    await this.giveBack();
    this.tell({ phase: "stopped", text: "stopped; everything was given back" });
  }

  async giveBack() {
    this.holdings.clear();
    this.claims = [];
    try {
      for (const claim of (await this.market.heartbeat()).claims) await this.market.release(claim.claim_id);
    } catch {
      // The server is away: the claims end by themselves.
    }
  }

  // --- one round ------------------------------------------------------------------------------------------------------
  async round() {
    try {
      const wait = await this.step();
      this.failures = 0;
      return wait;
    } catch (error) {
      if (this.stopping.signal.aborted || this.paused) return 0;
      if (error.status === 401) return this.end("unknown_token", "the server does not know this device any more");
      if (error instanceof RangeError) {
        await this.giveBack();
        return this.end("no_memory", "this browser has no memory left for so many experts: lend less");
      }
      this.failures += 1;
      const wait = Math.min(MOST_PAUSE_SECONDS, 2 ** this.failures) * (0.5 + Math.random() / 2);
      this.tell({ phase: "waiting", text: `${error.message || error}; trying again in ${Math.ceil(wait)} seconds` });
      return wait;
    }
  }

  async step() {
    const heartbeat = await this.market.heartbeat();
    this.claims = heartbeat.claims;
    this.leaseSeconds = heartbeat.lease_seconds;
    let wait = (heartbeat.lease_seconds / HEARTBEATS_PER_LEASE) * (0.8 + Math.random() / 5);
    const held = [...this.holdings.values()].map((holding) => holding.claim);
    const plan = planClaims(held, this.claims, this.budgetBytes);
    for (const claim of plan.drop) this.holdings.delete(claim.claim_id);
    if (plan.drop.length) this.update();
    for (const claim of plan.giveBack) await this.release(claim);
    let { fetch } = plan;
    if (!fetch.length && plan.freeBytes > 0) ({ fetch, wait } = await this.claimMore(plan.freeBytes, wait));
    await this.store.prune([...this.holdings.values()].map((holding) => holding.claim).concat(fetch));
    for (const claim of fetch) await this.acquire(claim);
    this.update();
    await this.showEarnings();
    return this.claims.some((claim) => claim.state !== "live") ? PENDING_SECONDS : Math.min(wait, EARNINGS_SECONDS);
  }

  async claimMore(freeBytes, wait) {
    const build = this.holdings.values().next().value?.claim.build;
    if (performance.now() < (this.nextDemand ?? 0) && this.holdings.size) return { fetch: [], wait };
    const demand = await this.market.demand(freeBytes, build, TYPES);
    this.nextDemand = performance.now() + demand.poll_seconds * 1000;
    let why = demand.message || "nothing is wanted";
    if (demand.ranges.length) {
      try {
        const fetch = await this.market.claimBest(freeBytes, build, TYPES);
        this.claims = this.claims.concat(fetch);
        return { fetch, wait };
      } catch (error) {
        if (!(error instanceof ServerError) || !error.status || error.status === 401 || error.status >= 500) throw error;
        why = error.message; // somebody was first, or the operator's budget is spent
      }
    }
    if (!this.claims.length) this.tell({ phase: "idle", text: `no work because ${why}` });
    return { fetch: [], wait: Math.min(wait, demand.poll_seconds) };
  }

  async release(claim) {
    await this.market.release(claim.claim_id);
    this.claims = this.claims.filter((other) => other.claim_id !== claim.claim_id);
  }

  async acquire(claim) {
    const alive = setInterval(() => this.market.heartbeat().catch(() => {}), (this.leaseSeconds / HEARTBEATS_PER_LEASE) * 1000);
    try {
      const progress = (done, size) => this.tell({ phase: "downloading", text: `downloading ${describe(claim)}`, download: { label: describe(claim), done, size } });
      const { market, store, module, sha256 } = this;
      const download = await downloadSlice({ market, store, module, sha256, claim, progress, signal: this.stopping.signal });
      this.stopping.signal.throwIfAborted();
      this.holdings.set(claim.claim_id, { claim, sha256: download.sha256, kernel: download.kernel });
      this.tell({ receivedBytes: this.state.receivedBytes + download.receivedBytes, download: null });
      this.update();
      await this.market.delivered(claim, download.sha256);
      this.update(); // a second report: the relay reads the claims again, and now finds the digest there
    } catch (error) {
      this.tell({ download: null });
      if (!(error instanceof ServerError) && !this.stopping.signal.aborted) await this.release(claim);
      throw error;
    } finally {
      clearInterval(alive);
    }
  }

  async showEarnings() {
    const me = await this.market.me();
    const live = new Set(me.claims.filter((claim) => claim.state === "live").map((claim) => claim.claim_id));
    const claims = [...this.holdings.values()].map((holding) => holding.claim);
    this.claims = me.claims;
    this.tell({ earnings: me.balance_microcredits, storage: this.store.trouble });
    if (!claims.length || !this.state.connected) return;
    const held = summary(claims);
    if (!claims.some((claim) => live.has(claim.claim_id))) this.tell({ phase: "checking", text: `${held}: the server checks it` });
    else this.tell({ phase: "serving", text: me.reason ? `holding ${held}, but ${me.message ?? me.reason}` : `serving ${held}` });
  }

  // --- the relay ------------------------------------------------------------------------------------------------------
  // Dial when there is something to serve, tell the relay what is held, or hang up.
  update() {
    if (!this.holdings.size || this.paused || this.stopping.signal.aborted) return this.hangUp();
    if (this.link) return this.status();
    const build = this.holdings.values().next().value.claim.build;
    this.link = new RelayLink(this.relayUrl, {
      hello: () => ({ token: this.token, build, kernel_class: KERNEL_CLASS, name: this.name, capabilities: { types: TYPES, threads: 1, results: ["sums"] }, replicas: this.replicas() }),
      onRequest: (frame) => this.service.receive(frame),
      onOpen: () => {
        this.tell({ connected: true });
        this.status();
      },
      onLost: () => {
        this.service.abandon();
        this.tell({ connected: false });
      },
      onState: (text) => this.tell({ phase: "waiting", text }),
      onRefused: ({ code, message }) => this.end(code, code === "replaced" ? "this device now works in another tab or window" : `the server refused this device: ${message}`),
    });
    return undefined;
  }

  status() {
    this.link.send(makeFrame(TYPE.STATUS, { body: jsonBody({ replicas: this.replicas() }) }));
  }

  replicas() {
    return [...this.holdings.values()].map(({ claim, sha256 }) => ({
      claim_id: claim.claim_id, fence: claim.fence, layer: claim.layer, first: claim.first, last: claim.last, sha256,
    }));
  }

  hangUp() {
    this.service.abandon();
    this.link?.stop();
    this.link = null;
    this.state.connected = false;
  }

  // It cannot go on: the owner has to act.
  end(code, text) {
    this.stopping.abort();
    this.hangUp();
    this.wake?.();
    this.tell({ phase: "refused", code, text });
    return 0;
  }

  tell(change) {
    Object.assign(this.state, change);
    this.report({ ...this.state });
  }
}
