// Charts of the series page, drawn by uPlot from the page's own address. New samples move the lines, nothing else.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const POLL_MILLISECONDS = 5000;
  const HEIGHT = 200;
  // Okabe and Ito's colours, told apart with any kind of colour vision; dashes say the same.
  const COLOURS = { light: ["#0072b2", "#b34700", "#00724f", "#8f4a73"], dark: ["#56b4e9", "#e69f00", "#2fc79b", "#e08fc0"] };
  const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
  const box = document.getElementById("charts");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const charts = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const figure = (value) =>
    value === null || value === undefined
      ? "–"
      : value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
  // 24 hours in every language; a day's chart says the day where it changes.
  const clock = (at) => {
    const time = new Date(at * 1000);
    const pad = (number) => String(number).padStart(2, "0");
    return `${pad(time.getHours())}:${pad(time.getMinutes())}`;
  };

  function make(element) {
    const colours = COLOURS[dark.matches ? "dark" : "light"];
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const lines = element.dataset.labels.split("|").map((label, i) => ({
      label,
      stroke: colours[i % colours.length],
      dash: DASHES[i % DASHES.length],
      width: 2,
      spanGaps: true,
      points: { show: false },
      value: (_, value) => figure(value),
    }));
    const options = {
      width: element.clientWidth,
      height: HEIGHT,
      axes: [{ ...axis, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 60, values: (_, ticks) => ticks.map(figure) }],
      scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.05 : 1] } },
      series: [{ value: (_, at) => (at === null ? "–" : clock(at)) }, ...lines],
    };
    return new uPlot(options, [[], ...lines.map(() => [])], element);
  }

  function build() {
    for (const element of box.querySelectorAll(".plot")) {
      charts.get(element.dataset.key)?.destroy();
      charts.set(element.dataset.key, make(element));
    }
  }

  async function load() {
    try {
      const response = await fetch(box.dataset.source, { cache: "no-store" });
      if (!response.ok) {
        return;
      }
      const found = await response.json();
      for (const chart of found.charts) {
        charts.get(chart.key)?.setData([found.at, ...chart.lines]);
      }
    } catch {
      // The server does not answer: the lines stay where they are, the next round asks again.
      return;
    }
  }

  if (!box.hidden) {
    build();
    load();
    setInterval(() => document.hidden || load(), POLL_MILLISECONDS);
    dark.addEventListener("change", () => (build(), load()));
    new ResizeObserver(() => {
      for (const element of box.querySelectorAll(".plot")) {
        charts.get(element.dataset.key)?.setSize({ width: element.clientWidth, height: HEIGHT });
      }
    }).observe(box);
  }
});
