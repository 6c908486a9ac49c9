// Numbers and claims as people read them.

export const bytes = (count) => (count >= 1e9 ? `${(count / 1e9).toFixed(1)} GB` : `${(count / 1e6).toFixed(1)} MB`);
export const credits = (microcredits) => String(Number((microcredits / 1e6).toPrecision(4)));
export const experts = (count) => `${count} expert${count === 1 ? "" : "s"}`;

// "layer 3, experts 8-14"
export const describe = ({ layer, first, last }) =>
  `layer ${layer}, ${last - first === 1 ? `expert ${first}` : `experts ${first}-${last - 1}`}`;

// Few ranges by name, many by number.
export function summary(claims) {
  if (claims.length <= 3) return claims.map(describe).join("; ");
  const count = claims.reduce((sum, claim) => sum + claim.last - claim.first, 0);
  return `${experts(count)} of ${new Set(claims.map((claim) => claim.layer)).size} layers`;
}
