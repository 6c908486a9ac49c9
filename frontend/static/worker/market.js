// The server's HTTP API as the worker sees it. inference/worker/market_client.py is the model.

import { fillFrom } from "./body.js";
import { say, sayCode } from "./texts.js";

const ATTEMPTS = 4;
const FIRST_PAUSE = 0.25;
const RELAYS_MILLISECONDS = 3000;

export const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

// `code`: the server's, or server_unreachable; `status`: 0 when nothing was answered.
export class ServerError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export class Market {
  constructor(token) {
    this.token = token;
  }

  demand(budgetBytes, build, types) {
    const query = new URLSearchParams({ budget_bytes: budgetBytes, types: types.join(",") });
    if (build) query.set("build", build);
    return this.call("GET", `/api/demand?${query}`);
  }

  async claimBest(budgetBytes, build, types) {
    const wish = { best_for_budget_bytes: budgetBytes, types };
    if (build) wish.build = build;
    return (await this.call("POST", "/api/claims", wish, 1)).claims;
  }

  // The very experts [first, last) of a layer, for a device that still has them. Throws ServerError when it may not.
  async claimAgain({ build, layer, first, last }) {
    return (await this.call("POST", "/api/claims", { build, ranges: [{ layer, first, last }] }, 1)).claims;
  }

  release(claimId) {
    return this.call("DELETE", `/api/claims/${claimId}`);
  }

  delivered(claim, sha256) {
    return this.call("POST", `/api/claims/${claim.claim_id}/delivered`, { fence: claim.fence, sha256 });
  }

  heartbeat() {
    return this.call("POST", "/api/heartbeat");
  }

  me() {
    return this.call("GET", "/api/me");
  }

  // WebSocket addresses of the server's relays; asked once, since there are others to try.
  async relays() {
    return (await this.call("GET", "/api/relays", undefined, 1, AbortSignal.timeout(RELAYS_MILLISECONDS))).relays;
  }

  manifest(claim) {
    return this.call("GET", claim.manifest_url);
  }

  // Fills `target` with the bytes of a slice from `start` on. Throws ServerError.
  async range(claim, start, target, signal) {
    const response = await this.request("GET", claim.slice_url, { Range: `bytes=${start}-${start + target.length - 1}` }, undefined, signal);
    if (response.status !== 206) throw await errorFrom(response);
    try {
      await fillFrom(response.body, target);
    } catch {
      throw unreachable(); // cut off, or longer than it was asked for
    }
  }

  async call(method, path, body, attempts = ATTEMPTS, signal = undefined) {
    for (let attempt = 0; ; attempt++) {
      try {
        const response = await this.request(method, path, body ? { "Content-Type": "application/json" } : {}, body, signal);
        if (response.ok) return await response.json();
        throw await errorFrom(response);
      } catch (error) {
        const again = error.status === 0 || error.status === 429 || error.status >= 500;
        if (!again || attempt + 1 >= attempts) throw error;
      }
      await pause(FIRST_PAUSE * 2 ** attempt * (0.5 + Math.random()));
    }
  }

  async request(method, path, headers, body, signal) {
    try {
      return await fetch(path, {
        method, signal, cache: "no-store", credentials: "omit",
        headers: { Authorization: `Bearer ${this.token}`, ...headers },
        body: body && JSON.stringify(body),
      });
    } catch {
      throw unreachable();
    }
  }
}

// A new node: {node_id, token}. invite: the code, where registration is by invite, else "". Throws ServerError.
export async function register(name, kernelClass, budgetBytes, invite) {
  return new Market("none").call("POST", "/api/nodes", { name, kernel_class: kernelClass, budget_bytes: budgetBytes, invite }, 1);
}

const unreachable = () =>
  new ServerError(0, "server_unreachable", say(navigator.onLine === false ? "this device is offline" : "the server cannot be reached"));

async function errorFrom(response) {
  let code = "http_error", message = say("the server answered {status}", { status: response.status });
  try {
    ({ code, message } = (await response.json()).error);
  } catch {
    // A proxy's page, or no body: the status has to do.
  }
  return new ServerError(response.status, code, sayCode(code, message));
}
