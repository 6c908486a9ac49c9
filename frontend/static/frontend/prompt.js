// The prompt box: shows the answer as it grows. Without this script the form works too and shows it when it is finished.
//
// The server answers with server-sent events: `data: {"choices": [{"text": ...}]}`, `data: {"error": {"message": ...}}`,
// `data: [DONE]`, and comment lines while nothing comes. Hanging up cancels the generation.
"use strict";

function eventsOf(text) {
  // Whole events of a piece of the stream, and what is left of the last one.
  const parts = text.split("\n\n");
  const rest = parts.pop();
  const events = parts
    .flatMap((part) => part.split("\n"))
    .filter((line) => line.startsWith("data: ") && line !== "data: [DONE]")
    .map((line) => JSON.parse(line.slice("data: ".length)));
  return [events, rest];
}

async function problemOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered ${response.status}.`;
  }
}

document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("prompt-form");
  if (!form || !window.ReadableStream) {
    return;
  }
  const [box, answer, figures, problem, stop] = ["answer-box", "answer", "answer-figures", "problem", "prompt-stop"].map(
    (id) => document.getElementById(id),
  );
  const submit = form.querySelector("button[type=submit]");
  let hangUp = null;

  function show(message) {
    problem.textContent = message;
    problem.hidden = !message;
  }

  function begin(prompt) {
    const given = document.createElement("span");
    given.className = "given";
    given.textContent = prompt;
    answer.replaceChildren(given);
    answer.classList.add("growing");
    figures.textContent = "";
    box.hidden = false;
    submit.disabled = true;
    stop.hidden = false;
    show("");
  }

  function end() {
    hangUp = null;
    answer.classList.remove("growing");
    submit.disabled = false;
    stop.hidden = true;
  }

  async function follow(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const started = performance.now();
    let rest = "";
    let characters = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        return;
      }
      let events;
      [events, rest] = eventsOf(rest + value);
      for (const event of events) {
        if (event.error) {
          throw new Error(event.error.message);
        }
        for (const choice of event.choices) {
          answer.append(choice.text);
          characters += choice.text.length;
        }
      }
      const seconds = (performance.now() - started) / 1000;
      figures.textContent = `${characters} characters in ${seconds.toFixed(1)} s`;
    }
  }

  async function send() {
    const body = new FormData(form);
    begin(body.get("prompt"));
    hangUp = new AbortController();
    try {
      const response = await fetch(form.action, {
        method: "POST",
        headers: { Accept: "text/event-stream" },
        body,
        signal: hangUp.signal,
      });
      if (response.ok) {
        await follow(response);
      } else {
        show(await problemOf(response));
        box.hidden = true;
      }
    } catch (error) {
      if (error.name !== "AbortError") {
        show(error.message || "The connection was lost.");
      }
    } finally {
      end();
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!hangUp) {
      send();
    }
  });
  stop.addEventListener("click", () => hangUp?.abort());
});
