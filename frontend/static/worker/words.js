// Numbers and claims as people read them.

import { say } from "./texts.js";

export const bytes = (count) => (count >= 1e9 ? `${(count / 1e9).toFixed(1)} GB` : `${(count / 1e6).toFixed(1)} MB`);
export const credits = (microcredits) => String(Number((microcredits / 1e6).toPrecision(4)));
export const experts = (count) => (count === 1 ? say("1 expert") : say("{count} experts", { count }));

// "layer 3, experts 8-14"
export const describe = ({ layer, first, last }) =>
  last - first === 1
    ? say("layer {layer}, expert {first}", { layer, first })
    : say("layer {layer}, experts {first}-{last}", { layer, first, last: last - 1 });

// Few ranges by name, many by number.
export function summary(claims) {
  if (claims.length <= 3) return claims.map(describe).join("; ");
  const count = claims.reduce((sum, claim) => sum + claim.last - claim.first, 0);
  return say("{count} experts of {layers} layers", { count, layers: new Set(claims.map((claim) => claim.layer)).size });
}
