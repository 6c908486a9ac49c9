// The service worker of /worker: keeps the few files of a page that says "no network", and nothing else. Whatever the
// server answers, prices, money and experts above all, comes from the server or not at all.

const CACHE = "expertswarm-shell-2";
const OFFLINE = "/worker/offline";
const SHELL = [OFFLINE, "/static/worker/offline.js", "/static/worker/worker.css", "/static/frontend/style.css", "/static/frontend/icon.svg"];

addEventListener("install", (event) => {
  event.waitUntil(fill().then(() => self.skipWaiting()));
});

async function fill() {
  const cache = await caches.open(CACHE);
  await cache.addAll(SHELL.map(fresh));
}

// With cookies: one of them says which language the owner reads.
const fresh = (path) => new Request(path, { cache: "reload" });

// Whoever chose another language since sees the page without a network in that one, too.
async function refill(response) {
  if (response.ok) await (await caches.open(CACHE)).add(fresh(OFFLINE));
}

addEventListener("activate", (event) => {
  event.waitUntil(forgetOthers());
});

async function forgetOthers() {
  for (const name of await caches.keys()) if (name.startsWith("expertswarm-shell-") && name !== CACHE) await caches.delete(name);
}

// The network comes first in any case: a page of yesterday must not meet a server of today.
addEventListener("fetch", (event) => {
  const { pathname, origin } = new URL(event.request.url);
  if (event.request.method !== "GET" || origin !== self.location.origin) return;
  const kept = event.request.mode === "navigate" ? OFFLINE : pathname;
  if (event.request.mode !== "navigate" && !SHELL.includes(pathname)) return;
  const answer = fetch(event.request);
  event.respondWith(answer.catch(async () => (await caches.match(kept)) ?? Response.error()));
  if (event.request.mode === "navigate") event.waitUntil(answer.then(refill).catch(() => {}));
});
