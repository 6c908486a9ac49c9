// Buttons that copy a text: shown only where the browser can (a secure address, or this machine). Parts of the page that
// htmx brings later have theirs too.
"use strict";

function offerCopying(root) {
  for (const button of root.querySelectorAll("button[data-copy]")) {
    button.hidden = !navigator.clipboard;
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button[data-copy]");
  if (button) {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    document.getElementById("copied").textContent = button.dataset.copied || "✓";
  }
});
document.addEventListener("DOMContentLoaded", () => offerCopying(document));
document.addEventListener("htmx:afterSettle", (event) => offerCopying(event.target));
