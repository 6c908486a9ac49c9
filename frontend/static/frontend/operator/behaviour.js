// Small comforts of the operator's forms; every form works without them.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  for (const form of document.querySelectorAll("form[data-submit-on-change]")) {
    form.addEventListener("change", () => form.requestSubmit());
    for (const button of form.querySelectorAll("button[type=submit]")) {
      button.hidden = true;
    }
  }
});
