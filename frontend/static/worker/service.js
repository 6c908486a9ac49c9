// Requests from the relay: check, compute, answer. inference/worker/serve.py is the model.

import { LEASE_BYTES, PAIR_BYTES, RESULT_DTYPE, TYPE } from "./constants.js";
import { jsonBody, makeFrame } from "./frames.js";
import { BadRequest, UnknownExpert } from "./kernel.js";

const QUEUE_LIMIT = 256;
const RESULT_LIMIT_BYTES = 32 << 20;

class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

const reply = (request, type, fields) =>
  makeFrame(type, { layer: request.layer, session: request.session, request: request.request, stream: request.stream, ...fields });

// Splits the body of a DISPATCH or CHALLENGE: lease, pairs, weights where partial sums are asked for, rows; all views.
// Throws Refused.
export function readDispatch(frame) {
  const { body } = frame;
  if (frame.resultDtype > RESULT_DTYPE.PARTIAL_F16) throw new Refused("bad_body", `result dtype ${frame.resultDtype} is not defined`);
  const pairsEnd = LEASE_BYTES + frame.pairs * PAIR_BYTES;
  const weightsEnd = pairsEnd + (frame.resultDtype === RESULT_DTYPE.F32 ? 0 : 4 * frame.pairs);
  if (!frame.rows || !frame.pairs || body.length <= weightsEnd) throw new Refused("bad_body", "the body is too short for its header");
  const view = new DataView(body.buffer, body.byteOffset, body.byteLength);
  return {
    fence: view.getUint32(0, true),
    claimId: Number(view.getBigUint64(4, true)),
    pairs: body.subarray(LEASE_BYTES, pairsEnd),
    weights: weightsEnd > pairsEnd ? body.subarray(pairsEnd, weightsEnd) : null,
    rows: body.subarray(weightsEnd),
  };
}

export class ExpertService {
  // holdings: Map claim id -> {claim, kernel}; send, consumed: of the link; onAnswer(rows) after each answer.
  constructor(holdings, { send, consumed, onAnswer }) {
    Object.assign(this, { holdings, send, consumed, onAnswer });
    this.queue = [];
    this.computing = null; // the request that is computed now; null also when nobody wants its answer any more
    this.working = false;
    this.answered = this.rows = this.refused = 0;
    this.busySeconds = 0;
    // A message to ourselves lets what arrived meanwhile (CANCEL, PING) come before the next computation.
    this.channel = new MessageChannel();
    this.channel.port1.onmessage = () => this.work();
  }

  receive(frame) {
    if (frame.type === TYPE.CANCEL) {
      const isMeant = (job) => job?.stream === frame.stream && (!frame.request || job.request === frame.request);
      this.queue = this.queue.filter((job) => !isMeant(job));
      if (isMeant(this.computing)) this.computing = null;
      return;
    }
    if (this.queue.length >= QUEUE_LIMIT) {
      this.refuse(frame, new Refused("overloaded", `${this.queue.length} requests are waiting here`));
      return;
    }
    this.queue.push(frame);
    this.next();
  }

  // The connection is gone, and everybody with it who could want an answer.
  abandon() {
    this.queue = [];
    this.computing = null;
  }

  // Share of the time since the last call that went into computing, 0 to 1; for STATUS.
  load() {
    const now = performance.now(), since = now - (this.loadSince ?? now);
    const load = since > 0 ? Math.min(1, (1000 * this.busySeconds) / since) : 0;
    this.loadSince = now;
    this.busySeconds = 0;
    return load;
  }

  next() {
    if (!this.working && this.queue.length) this.channel.port2.postMessage(0);
  }

  async work() {
    if (this.working || !this.queue.length) return;
    this.working = true;
    await this.answer(this.queue.shift());
    this.working = false;
    this.next();
  }

  async answer(frame) {
    const began = performance.now();
    this.computing = frame;
    let body, trouble;
    try {
      body = await this.compute(frame);
    } catch (error) {
      trouble = error;
    }
    this.busySeconds += (performance.now() - began) / 1000;
    const isWanted = this.computing === frame;
    this.computing = null;
    if (trouble && isWanted) return this.refuse(frame, trouble);
    this.consumed(frame);
    if (!isWanted) return undefined;
    this.send(reply(frame, TYPE.RESULT, { rows: frame.rows, pairs: frame.pairs, rowDtype: frame.rowDtype, resultDtype: frame.resultDtype, body }));
    this.answered += 1;
    this.rows += frame.pairs;
    return this.onAnswer(frame.pairs);
  }

  // The body of the RESULT: at once, or as a promise where threads or a graphics card compute. Throws, or rejects with,
  // Refused, BadRequest, UnknownExpert.
  compute(frame) {
    const { fence, claimId, pairs, weights, rows } = readDispatch(frame);
    const holding = this.holdings.get(claimId);
    if (!holding || holding.claim.fence !== fence) throw new Refused("stale_fence", `claim ${claimId} with fence ${fence} is not held here`);
    if (holding.claim.layer !== frame.layer) throw new Refused("unknown_expert", `claim ${claimId} is not about layer ${frame.layer}`);
    if (frame.pairs * holding.kernel.nEmbd * 4 > RESULT_LIMIT_BYTES) throw new Refused("bad_body", `${frame.pairs} pairs at once are too many`);
    const asHalf = frame.resultDtype === RESULT_DTYPE.PARTIAL_F16;
    return holding.kernel.compute(frame.rowDtype, frame.rows, rows, pairs, frame.pairs, weights, asHalf);
  }

  refuse(frame, error) {
    let code = error.code ?? "internal";
    if (error instanceof UnknownExpert) code = "unknown_expert";
    else if (error instanceof BadRequest) code = "bad_body";
    if (code === "internal") console.error("a request could not be computed", error);
    this.refused += 1;
    this.consumed(frame);
    const message = code === "internal" ? "the worker could not compute this request" : error.message;
    this.send(reply(frame, TYPE.ERROR, { body: jsonBody({ code, message: message.slice(0, 512) }) }));
  }
}
