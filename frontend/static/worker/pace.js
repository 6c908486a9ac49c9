// Notices that this device became slow (heat, a saving mode, other work) and says how long it should rest.
// Measured is always the same piece of work, so neither the size of requests nor their number matters.

const SLOW_FACTOR = 3;
const SLOW_CHECKS = 2; // one slow measurement may be chance
const FIRST_REST_SECONDS = 30, MOST_REST_SECONDS = 480, GOOD_SECONDS = 600;

export class Pace {
  // measure(): seconds that the piece of work takes now.
  constructor(measure) {
    this.measure = measure;
    this.best = measure();
    this.slowChecks = 0;
    this.restSeconds = FIRST_REST_SECONDS;
    this.lastRest = -Infinity;
  }

  // Seconds to rest, 0 while all is well. `now` in seconds. Rests double while the device stays slow.
  check(now) {
    const taken = this.measure();
    this.best = Math.min(this.best, taken);
    this.factor = taken / this.best;
    this.slowChecks = this.factor > SLOW_FACTOR ? this.slowChecks + 1 : 0;
    if (this.slowChecks < SLOW_CHECKS) return 0;
    this.slowChecks = 0;
    if (now - this.lastRest > GOOD_SECONDS) this.restSeconds = FIRST_REST_SECONDS;
    const rest = this.restSeconds;
    this.restSeconds = Math.min(MOST_REST_SECONDS, 2 * rest);
    this.lastRest = now + rest;
    return rest;
  }
}

// Seconds of the quickest of three digests of 256 KiB: about a millisecond each.
export function digestSeconds(sha256) {
  const bytes = new Uint8Array(1 << 18);
  let best = Infinity;
  for (let round = 0; round < 3; round++) {
    const began = performance.now();
    sha256.of(bytes);
    best = Math.min(best, performance.now() - began);
  }
  return Math.max(best, 0.1) / 1000; // some clocks tick in tenths of a millisecond
}
