// The tokens of one answer: as text, as a strip that shows where each was computed, and one of them in detail.
//
// Pointer: hover a token. Keyboard: the answer and the strip take the focus, arrow keys walk, Home and End jump,
// Escape closes the details.

const SVG = "http://www.w3.org/2000/svg";
const BAR = 7;
const HEIGHT = 36;
const PLACES = ["remote", "hot", "local"];

function make(name, attributes = {}, text = "") {
  const element = document.createElement(name);
  Object.assign(element, attributes);
  element.textContent = text;
  return element;
}

function drawn(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    element.setAttribute(key, value);
  }
  return element;
}

export class TokenView {
  constructor({ answer, hint, strip, stripBox, panel, words }) {
    Object.assign(this, { answer, hint, strip, stripBox, panel, words });
    this.clear();
    for (const area of [answer, strip]) {
      area.addEventListener("pointerover", (event) => this.point(event.target));
      area.addEventListener("click", (event) => this.point(event.target));
      area.addEventListener("keydown", (event) => this.walk(event));
    }
  }

  clear(given = "") {
    this.tokens = [];
    this.cursor = -1;
    this.answer.replaceChildren();
    if (given) {
      this.answer.append(make("span", { className: "given" }, given));
    }
    this.svg = drawn("svg", { height: HEIGHT, width: 0, role: "img", "aria-label": this.words.strip });
    this.strip.replaceChildren(this.svg);
    this.stripBox.hidden = true;
    this.panel.hidden = true;
    this.hint.hidden = true;
    this.answer.removeAttribute("tabindex");
  }

  get text() {
    return this.tokens.map((token) => token.text).join("");
  }

  add(token) {
    const index = this.tokens.push(token) - 1;
    const span = make("span", { className: "token" }, token.text);
    span.dataset.index = index;
    if (token.probability !== null) {
      span.classList.add(token.probability < 0.2 ? "rare" : token.probability < 0.6 ? "open" : "sure");
      this.answer.tabIndex = 0;
      this.hint.hidden = false;
    }
    this.answer.append(span);
    if (token.places) {
      this.drawBar(index, token.places);
    }
  }

  drawBar(index, places) {
    const total = places.reduce((sum, rows) => sum + rows, 0) || 1;
    const group = drawn("g", { "data-index": index });
    let y = 0;
    places.forEach((rows, place) => {
      const height = (HEIGHT * rows) / total;
      group.append(drawn("rect", { x: index * BAR, y, width: BAR - 1, height, class: PLACES[place] }));
      y += height;
    });
    this.svg.append(group);
    this.svg.setAttribute("width", (index + 1) * BAR);
    this.stripBox.hidden = false;
  }

  point(target) {
    const element = target.closest("[data-index]");
    if (element) {
      this.select(Number(element.dataset.index));
    }
  }

  walk(event) {
    const last = this.tokens.length - 1;
    const goal = {
      ArrowRight: Math.min(last, this.cursor + 1),
      ArrowLeft: Math.max(0, this.cursor - 1),
      Home: 0,
      End: last,
    }[event.key];
    if (event.key === "Escape") {
      this.select(-1);
    } else if (goal !== undefined && last >= 0) {
      event.preventDefault();
      this.select(goal);
    }
  }

  select(index) {
    for (const element of document.querySelectorAll("[data-index].current")) {
      element.classList.remove("current");
    }
    this.cursor = index;
    this.panel.hidden = index < 0;
    if (index < 0) {
      return;
    }
    for (const element of document.querySelectorAll(`[data-index="${index}"]`)) {
      element.classList.add("current");
    }
    this.panel.replaceChildren(...this.details(this.tokens[index], index));
  }

  details(token, index) {
    const shown = [make("p", { className: "token-name" }, `${index + 1}: “${token.text}”`)];
    if (token.probability !== null) {
      const rows = token.alternatives.map(([text, probability]) => this.alternative(text, probability));
      if (!token.alternatives.some(([text]) => text === token.text)) {
        rows.unshift(this.alternative(token.text, token.probability));
      }
      const list = make("ul", { className: "alternatives" });
      list.append(...rows);
      shown.push(list);
    }
    if (token.places) {
      const [remote, hot, local] = token.places;
      const words = this.words.places.replace("{remote}", remote).replace("{hot}", hot).replace("{local}", local);
      shown.push(make("p", { className: "muted" }, words));
    }
    return shown;
  }

  alternative(text, probability) {
    const row = make("li");
    const meter = make("meter", { min: 0, max: 1, value: probability });
    meter.setAttribute("aria-hidden", "true");
    row.append(make("code", {}, text), meter, ` ${(100 * probability).toFixed(1)}%`);
    return row;
  }
}
