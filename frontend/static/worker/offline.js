// The page that is shown without a network: looks for the server, and goes on where the owner left off.

const EVERY_MILLISECONDS = 10_000;

async function look() {
  try {
    await fetch("/worker", { method: "HEAD", cache: "no-store" });
  } catch {
    return; // still nothing
  }
  location.replace("/worker");
}

document.getElementById("again").addEventListener("click", look);
addEventListener("online", look);
setInterval(look, EVERY_MILLISECONDS);
