// The connection to the relay: HELLO, pings, credit in both directions, reconnecting. relay/client.py is the model.

import { CHUNK_BYTES, COUNTED, FLAG_RELAY, HEADER_BYTES, PROTOCOL_VERSION, RETRY_REJECTS, ROLE, TYPE } from "./constants.js";
import { Reassembler, decodeFrames, encodeFrame, jsonBody, makeFrame, readJson, splitFrame } from "./frames.js";
import { say, sayCode } from "./texts.js";

const FIRST_DELAY = 0.25, MAX_DELAY = 30, GOOD_SECONDS = 10, MISSED_PINGS = 4, OPEN_SECONDS = 10;
const MAX_BODY_BYTES = 16 << 20;
const GRANT_MILLISECONDS = 50;

const seconds = () => performance.now() / 1000;
const cost = (frame) => (COUNTED.has(frame.type) && !(frame.flags & FLAG_RELAY) ? HEADER_BYTES + frame.body.length : 0);
const bodyCost = (size) => size + HEADER_BYTES * Math.max(1, Math.ceil(size / CHUNK_BYTES));

// Credit of one backbone (stream): what we may send, what it may send, and answers that wait.
class Peer {
  constructor(welcome) {
    this.remaining = welcome.credit_bytes;
    this.size = welcome.credit_bytes;
    this.target = welcome.credit_limit_bytes;
    this.due = 0;
    this.outbox = [];
  }

  // With the first grant the window opens as far as this worker's memory allows.
  consume(bytes) {
    this.due += bytes + this.target - this.size;
    this.size = this.target;
  }
}

export class RelayLink {
  // addresses: RelayAddresses; findRelays(): what the server says its relays are; hello(): the fields of HELLO;
  // onRequest(frame): DISPATCH, CHALLENGE or CANCEL, whole; onLost(): the session ended; onState(text): for people;
  // onRefused({code, message}): no further attempt is made.
  constructor(addresses, { findRelays, hello, onRequest, onOpen, onLost, onState, onRefused }) {
    Object.assign(this, { addresses, findRelays, hello, onRequest, onOpen, onLost, onState, onRefused });
    this.attempt = 0;
    this.stopped = false;
    this.welcome = null;
    this.dial();
  }

  // --- for the owner --------------------------------------------------------------------------------------------------
  get session() {
    return this.welcome?.session ?? 0;
  }

  // Queues a frame; an answer waits for its stream's credit, and is dropped when its session is gone.
  send(frame) {
    if (!this.welcome) return;
    if (!cost(frame)) return this.write(frame);
    const peer = this.peers.get(frame.stream);
    if (!peer || frame.session !== this.session) return;
    peer.outbox.push(...splitFrame(frame));
    this.flush(peer);
  }

  // The request's bytes are no longer held here: its sender may send as many more.
  consumed(frame) {
    const peer = this.peers?.get(frame.stream);
    if (!peer || frame.session !== this.session) return;
    peer.consume(bodyCost(frame.body.length));
    this.granting ??= setTimeout(() => this.grant(), GRANT_MILLISECONDS);
  }

  stop() {
    if (this.stopped) return;
    this.stopped = true;
    clearTimeout(this.timer);
    this.socket?.close(1000);
    this.ended("stopped");
  }

  // --- one connection -------------------------------------------------------------------------------------------------
  dial() {
    this.socket = new WebSocket(this.addresses.current);
    const socket = this.socket;
    socket.binaryType = "arraybuffer";
    this.started = this.heard = seconds();
    this.live = true;
    socket.onopen = () => this.open();
    socket.onmessage = (event) => socket === this.socket && this.receive(new Uint8Array(event.data));
    socket.onclose = () => socket === this.socket && this.ended(say("the connection to the relay broke"));
    this.watching = setInterval(() => this.watch(), 2000);
  }

  open() {
    const body = jsonBody({ protocol: PROTOCOL_VERSION, ...this.hello() });
    const frame = encodeFrame(makeFrame(TYPE.HELLO, { body }));
    const message = new Uint8Array(1 + frame.length);
    message[0] = ROLE.WORKER;
    message.set(frame, 1);
    this.socket.send(message);
  }

  receive(message) {
    this.heard = seconds();
    try {
      for (const frame of decodeFrames(message)) if (this.live) this.act(frame);
    } catch (error) {
      this.fail(say("the relay sent what this page does not understand: {why}", { why: error.message }));
    }
  }

  act(frame) {
    switch (frame.type) {
      case TYPE.WELCOME:
        this.welcome = readJson(frame);
        this.addresses.answered();
        this.addresses.learn(this.welcome.relays ?? []);
        this.peers = new Map();
        this.reassembler = new Reassembler(MAX_BODY_BYTES);
        return this.onOpen();
      case TYPE.REJECT:
        return this.refused(readJson(frame));
      case TYPE.PING:
        return this.write(makeFrame(TYPE.PONG, { body: frame.body.slice() }));
      case TYPE.PONG:
        return undefined;
      case TYPE.CREDIT:
        return this.credit(frame);
      case TYPE.DRAIN:
        return this.fail(say("the relay is closing"));
      case TYPE.CANCEL:
        if (!frame.request) this.forgetStream(frame.stream);
        return this.onRequest(frame);
      case TYPE.DISPATCH:
      case TYPE.CHALLENGE: {
        if (!this.peers.has(frame.stream)) this.peers.set(frame.stream, new Peer(this.welcome));
        const whole = this.reassembler.add(frame);
        return whole && this.onRequest(whole);
      }
      default:
        throw new Error(`frame type ${frame.type}`);
    }
  }

  credit(frame) {
    const peer = this.peers.get(frame.stream);
    if (!peer || frame.body.length !== 4) return;
    peer.remaining += new DataView(frame.body.buffer, frame.body.byteOffset, 4).getUint32(0, true);
    this.flush(peer);
  }

  flush(peer) {
    while (peer.outbox.length && cost(peer.outbox[0]) <= peer.remaining) {
      const frame = peer.outbox.shift();
      peer.remaining -= cost(frame);
      this.write(frame);
    }
  }

  grant() {
    this.granting = null;
    for (const [stream, peer] of this.peers ?? []) {
      if (!peer.due) continue;
      const body = new Uint8Array(4);
      new DataView(body.buffer).setUint32(0, peer.due, true);
      peer.due = 0;
      this.write(makeFrame(TYPE.CREDIT, { stream, body }));
    }
  }

  forgetStream(stream) {
    this.peers.delete(stream);
    this.reassembler.forgetStream(stream);
  }

  write(frame) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(encodeFrame(frame));
  }

  watch() {
    const limit = MISSED_PINGS * (this.welcome?.ping_seconds ?? OPEN_SECONDS);
    if (this.live && seconds() - this.heard > limit) this.fail(say("the relay is silent"));
  }

  fail(reason) {
    this.socket.close(1000);
    this.ended(reason);
  }

  refused({ code, message }) {
    const why = sayCode(code, message || code);
    if (RETRY_REJECTS.has(code)) return this.fail(why);
    this.stop();
    return this.onRefused({ code, message: why });
  }

  // Once per connection; plans the next attempt.
  ended(reason) {
    if (!this.live) return;
    this.live = false;
    clearInterval(this.watching);
    clearTimeout(this.granting);
    this.granting = null;
    if (this.welcome) this.onLost();
    this.welcome = null;
    this.peers = null;
    if (this.stopped) return;
    this.addresses.failed();
    if (seconds() - this.started >= GOOD_SECONDS) this.attempt = 0;
    const delay = Math.min(MAX_DELAY, FIRST_DELAY * 2 ** this.attempt) * (0.5 + Math.random() / 2);
    this.attempt = Math.min(this.attempt + 1, 16);
    this.onState(say("{reason}; connecting again", { reason }));
    this.timer = setTimeout(() => this.dialAgain(), delay * 1000);
  }

  // The server may have other relays than before; while it does not answer, those that are known have to do.
  async dialAgain() {
    try {
      this.addresses.learn(await this.findRelays());
    } catch {
      // A ServerError: see above.
    }
    if (!this.stopped) this.dial();
  }
}
