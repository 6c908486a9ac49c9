// What to do about claims: pure decisions. inference/worker/claim_plan.py is the model.

const same = (a, b) => a.claim_id === b.claim_id && a.fence === b.fence && a.build === b.build;

// held, claimed: lists of claims. drop: held but not claimed any more; giveBack: claimed but not usable here; fetch: claimed,
// not held; freeBytes: what remains of the budget after all that.
export function planClaims(held, claimed, budgetBytes) {
  const isHeld = (claim) => held.some((other) => same(claim, other));
  const build = buildOf(held.filter((claim) => claimed.some((other) => same(claim, other))), claimed);
  const usable = [], giveBack = [];
  let used = 0;
  for (const claim of [...claimed].sort((a, b) => isHeld(b) - isHeld(a) || a.claim_id - b.claim_id)) {
    if (claim.build === build && used + claim.size_bytes <= budgetBytes) {
      usable.push(claim);
      used += claim.size_bytes;
    } else giveBack.push(claim);
  }
  return {
    drop: held.filter((claim) => !usable.some((other) => same(claim, other))),
    giveBack,
    fetch: usable.filter((claim) => !isHeld(claim)),
    freeBytes: budgetBytes - used,
  };
}

// Slices of one build only: that of the claims held, else that of most claimed bytes.
function buildOf(stillHeld, claimed) {
  const sizes = new Map();
  for (const claim of stillHeld.length ? stillHeld : claimed) sizes.set(claim.build, (sizes.get(claim.build) ?? 0) + claim.size_bytes);
  return [...sizes].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))[0]?.[0] ?? "";
}
