// When this device should rest because of its battery. Firefox, Safari and insecure addresses do not tell: there it lends.

import { say } from "./texts.js";

const LOW = 0.2, ENOUGH = 0.25; // it goes on above ENOUGH, so that it does not flicker at LOW

const percent = (level) => Math.round(100 * level);

// Why it rests, in words; "" when it may lend. battery: {charging, level 0..1} or null; alsoOnBattery: the owner's wish.
export function batteryReason(battery, alsoOnBattery, wasLow) {
  if (!battery) return "";
  if (isLow(battery, wasLow)) return say("paused: the battery is at {level}%; it goes on at {enough}%", { level: percent(battery.level), enough: percent(ENOUGH) });
  if (!battery.charging && !alsoOnBattery) return say("paused: this device is not charging; plug it in, or allow lending on battery below");
  return "";
}

export const isLow = (battery, wasLow) => Boolean(battery) && battery.level < (wasLow ? ENOUGH : LOW);

// The browser's battery, or null; `changed()` is called when it changes.
export async function watchBattery(changed) {
  let battery = null;
  try {
    battery = (await navigator.getBattery?.()) ?? null;
  } catch {
    return null; // forbidden here
  }
  for (const kind of ["chargingchange", "levelchange"]) battery?.addEventListener(kind, changed);
  return battery;
}
