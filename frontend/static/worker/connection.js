// When to be connected to the relay, and what to tell it: dials when something is held, hangs up when nothing is.

import { TYPE } from "./constants.js";
import { RelayAddresses } from "./addresses.js";
import { jsonBody, makeFrame } from "./frames.js";
import { RelayLink } from "./relay_link.js";
import { ExpertService } from "./service.js";

export class Connection {
  // holdings: Map claim id -> {claim, sha256, kernel}; identity: {token, name}; kernels: kernelClass, types, threads;
  // findRelays(): of the server; tell(change): of the state shown; onRefused({code, message}): it is over;
  // battery(): level 0..1, or null.
  constructor(holdings, { identity, relayUrl, kernels, findRelays, tell, onRefused, battery }) {
    Object.assign(this, { holdings, identity, kernels, findRelays, tell, onRefused, battery });
    this.addresses = new RelayAddresses(relayUrl);
    this.link = null;
    this.service = new ExpertService(holdings, {
      send: (frame) => this.link?.send(frame),
      consumed: (frame) => this.link?.consumed(frame),
      onAnswer: () => tell({ rows: this.service.rows }),
    });
  }

  // Dial, or tell the relay what is held now, or hang up.
  update(mayServe) {
    if (!this.holdings.size || !mayServe) return this.hangUp();
    const { kernelClass } = this.kernels;
    if (this.link && this.told === kernelClass) return this.status();
    if (this.link) this.hangUp(); // trust is counted by kernel: another one gets a session of its own
    this.told = kernelClass;
    this.link = new RelayLink(this.addresses, {
      findRelays: this.findRelays,
      hello: () => this.hello(),
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
      onRefused: this.onRefused,
    });
    return undefined;
  }

  hello() {
    const { types, threads } = this.kernels;
    this.told = this.kernels.kernelClass;
    return {
      ...this.identity, build: this.holdings.values().next().value.claim.build, kernel_class: this.told,
      capabilities: { types, threads, results: ["sums"] }, replicas: this.replicas(),
    };
  }

  status() {
    const status = { replicas: this.replicas(), load: this.service.load() };
    const battery = this.battery();
    if (battery !== null) status.battery = battery;
    this.link.send(makeFrame(TYPE.STATUS, { body: jsonBody(status) }));
  }

  replicas() {
    return [...this.holdings.values()].map(({ claim, sha256 }) => ({
      claim_id: claim.claim_id, fence: claim.fence, layer: claim.layer, first: claim.first, last: claim.last, sha256,
    }));
  }

  // No new work, please: backbones ask others from now on.
  drain() {
    this.link?.send(makeFrame(TYPE.DRAIN, {}));
  }

  hangUp() {
    this.service.abandon();
    this.link?.stop();
    this.link = null;
    this.tell({ connected: false });
  }
}
