// Buttons that copy a text: shown only where the browser can (a secure address, or this machine).
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      document.getElementById("copied").textContent = "copied";
    });
  }
});
