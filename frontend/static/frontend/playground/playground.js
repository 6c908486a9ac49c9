// The playground's form: sends it, shows the answer as it grows, keeps the conversation. Without this script the form
// works too and shows the answer when it is finished.

import { follow } from "./stream.js";
import { TokenView } from "./tokens.js";

const byId = (id) => document.getElementById(id);
const form = byId("prompt-form");
const words = JSON.parse(byId("words").textContent);

if (form) {
  const [box, answer, figures, problem, stop, clear, prompt, conversation] = [
    "answer-box", "answer", "answer-figures", "problem", "prompt-stop", "prompt-clear", "prompt", "conversation",
  ].map(byId);
  const submit = form.querySelector("button[type=submit]");
  const view = new TokenView({
    answer, hint: byId("underlined"), strip: byId("strip"), stripBox: byId("strip-box"), panel: byId("token-panel"), words,
  });
  let hangUp = null;
  let history = JSON.parse(form.elements.history.value || "[]");
  const isChat = () => form.elements.mode.value === "chat";

  function showMode() {
    byId("prompt-label-chat").hidden = !isChat();
    byId("prompt-label-completion").hidden = isChat();
    conversation.hidden = !isChat();
    clear.hidden = !isChat() || history.length === 0;
  }

  function say(role, content) {
    const line = document.createElement("p");
    line.className = `said ${role}`;
    const who = document.createElement("span");
    who.className = "who";
    who.textContent = words[role];
    line.append(who, content.trim());
    conversation.append(line);
  }

  function drawConversation(messages) {
    conversation.replaceChildren();
    messages.forEach(({ role, content }) => say(role, content));
  }

  function show(message) {
    problem.textContent = message;
    problem.hidden = !message;
  }

  function begin(text) {
    if (isChat()) {
      drawConversation([...history, { role: "user", content: text }]);
    }
    view.clear(isChat() ? "" : text);
    answer.classList.add("growing");
    box.querySelector("details")?.remove();
    figures.textContent = words.writing;
    box.hidden = false;
    submit.disabled = true;
    stop.hidden = false;
    show("");
  }

  function end(text, started) {
    hangUp = null;
    answer.classList.remove("growing");
    submit.disabled = false;
    stop.hidden = true;
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    figures.textContent = words.figures.replace("{tokens}", view.tokens.length).replace("{seconds}", seconds);
    if (isChat() && view.tokens.length) {
      history = [...history, { role: "user", content: text }, { role: "assistant", content: view.text }];
      form.elements.history.value = JSON.stringify(history);
      prompt.value = "";
    }
    showMode();
  }

  async function send() {
    const body = new FormData(form);
    const text = body.get("prompt");
    const started = performance.now();
    hangUp = new AbortController();
    begin(text);
    try {
      await follow(form.action, body, hangUp.signal, (tokens) => tokens.forEach((token) => view.add(token)));
    } catch (error) {
      if (error.name !== "AbortError") {
        show(error.message || words.lost);
        box.hidden = view.tokens.length === 0;
      }
    } finally {
      end(text, started);
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!hangUp) {
      send();
    }
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      form.requestSubmit();
    }
  });
  stop.addEventListener("click", () => hangUp?.abort());
  clear.addEventListener("click", () => {
    history = [];
    form.elements.history.value = "[]";
    drawConversation([]);
    box.hidden = true;
    showMode();
    prompt.focus();
  });
  form.addEventListener("change", showMode);
  showMode();
}
