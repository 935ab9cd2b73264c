"use strict";

// Tables: a click on a heading sorts by value, another one reverses; empty cells stay last.

function sortBy(header) {
  const table = header.closest("table");
  const body = table.tBodies[0];
  const direction = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const column = header.cellIndex;
  const keyed = [...body.rows].map((row) => {
    const cell = row.cells[column];
    const value = column === 0 ? cell.textContent : cell.dataset.value;
    return { row, value: column === 0 || value === undefined ? value : Number(value) };
  });
  keyed.sort((one, other) => {
    if (one.value === undefined || other.value === undefined) {
      return (one.value === undefined) - (other.value === undefined);
    }
    return direction * (one.value < other.value ? -1 : Number(one.value > other.value));
  });
  body.append(...keyed.map((entry) => entry.row));
  for (const cell of header.parentNode.cells) cell.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
}

for (const button of document.querySelectorAll("th > button")) {
  button.addEventListener("click", () => sortBy(button.parentNode));
}

// Curves: drawn from the embedded data, for the axis and the methods chosen.

const DATA = JSON.parse(document.getElementById("data").textContent);
const COLORS = 8; // of the style sheet; further methods repeat them dashed
const SPACE = { left: 40, right: 12, top: 26, bottom: 40 };
const hidden = new Set();
let axis = document.querySelector(".switch [aria-pressed=true]")?.dataset.axis;

const parsed = document.createElement("template");
parsed.innerHTML = "<svg></svg>";
const NAMESPACE = parsed.content.firstChild.namespaceURI;

function make(name, attributes, ...children) {
  const node = document.createElementNS(NAMESPACE, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  node.append(...children);
  return node;
}

const look = (series) =>
  `c${series % COLORS} dash${Math.floor(series / COLORS) % 3}` +
  (series < DATA.references ? " reference" : "");

function staircase(xs, ys) {
  // A line of one point would not be seen.
  if (xs.length === 1) return `M${(xs[0] - 4).toFixed(1)} ${ys[0].toFixed(1)}h8`;
  let path = `M${xs[0].toFixed(1)} ${ys[0].toFixed(1)}`;
  for (let i = 1; i < xs.length; i++) path += `H${xs[i].toFixed(1)}V${ys[i].toFixed(1)}`;
  return path;
}

function frame(width, spec) {
  const height = Math.round(Math.min(300, Math.max(210, width * 0.66)));
  const right = width - SPACE.right;
  const bottom = height - SPACE.bottom;
  const span = spec.x[axis];
  const base = Math.log(span.low);
  const perX = (right - SPACE.left) / (Math.log(span.high) - base);
  const perY = (bottom - SPACE.top) / (spec.y.high - spec.y.low);
  return {
    height,
    right,
    bottom,
    toX: (value) => SPACE.left + perX * (Math.log(Math.max(value, span.low)) - base),
    toY: (value) => bottom - perY * (value - spec.y.low),
  };
}

function* axes(spec, { height, right, bottom, toX, toY }) {
  for (const [value, text] of spec.y.ticks) {
    const y = toY(value);
    yield make("line", { x1: SPACE.left, x2: right, y1: y, y2: y, class: "grid" });
    yield make("text", { x: SPACE.left - 6, y: y + 4, "text-anchor": "end" }, text);
  }
  for (const [value, text] of spec.x[axis].ticks) {
    const x = toX(value);
    yield make("line", { x1: x, x2: x, y1: bottom, y2: bottom + 4, class: "tick" });
    yield make("text", { x, y: bottom + 17, "text-anchor": "middle" }, text);
  }
  if (spec.matched === axis) {
    const x = toX(spec.amount);
    yield make("line", { x1: x, x2: x, y1: SPACE.top, y2: bottom, class: "budget" });
  }
  yield make("line", { x1: SPACE.left, x2: right, y1: bottom, y2: bottom, class: "tick" });
  yield make("text", { x: right, y: height - 6, "text-anchor": "end" }, DATA.titles[axis]);
}

function draw(chart, width) {
  const { spec } = chart;
  const place = frame(width, spec);
  const label = `Best validation ${spec.metric} so far against ${DATA.titles[axis]}`;
  const viewBox = `0 0 ${width} ${place.height}`;
  const svg = make("svg", { viewBox, role: "img", "aria-label": label }, ...axes(spec, place));
  svg.dataset.axis = axis;
  // Backwards, so that the reference is drawn over the others.
  chart.lines = [...spec.runs].filter((run) => run[axis].length).sort((one, other) => other.series - one.series).map((run) => {
    const xs = run[axis].map(place.toX);
    const ys = run.value.map(place.toY);
    const path = make("path", { d: staircase(xs, ys), class: `curve ${look(run.series)}` });
    path.classList.toggle("hidden", hidden.has(run.series));
    return { run, xs, ys, path };
  });
  chart.heading = make("text", { x: 0, y: 12 });
  svg.append(...chart.lines.map((line) => line.path), chart.heading);
  chart.width = width;
  unpoint(chart);
  svg.addEventListener("pointermove", (event) => point(chart, svg, event));
  svg.addEventListener("pointerdown", (event) => point(chart, svg, event));
  svg.addEventListener("pointerleave", () => unpoint(chart));
  chart.plot.replaceChildren(svg);
}

function point(chart, svg, event) {
  const box = svg.getBoundingClientRect();
  const scale = chart.width / box.width;
  const x = (event.clientX - box.left) * scale;
  const y = (event.clientY - box.top) * scale;
  let nearest = null;
  for (const line of chart.lines) {
    if (hidden.has(line.run.series)) continue;
    const after = line.xs.findIndex((place) => place > x);
    const index = after < 0 ? line.xs.length - 1 : Math.max(0, after - 1);
    const past = Math.max(0, x - line.xs.at(-1), line.xs[0] - x);
    const distance = Math.abs(line.ys[index] - y) + past;
    if (!nearest || distance < nearest.distance) nearest = { line, index, distance };
  }
  unpoint(chart);
  if (!nearest) return;
  const { line, index } = nearest;
  line.path.classList.add("near");
  chart.heading.textContent = tell(chart.spec, line.run, index);
  chart.heading.classList.add("telling");
}

function unpoint(chart) {
  for (const { path } of chart.lines) path.classList.remove("near");
  chart.heading.textContent = `validation ${chart.spec.metric}`;
  chart.heading.classList.remove("telling");
}

function tell(spec, run, index) {
  const value = spec.unit ? run.value[index].toFixed(2) : run.value[index].toPrecision(4);
  const at = run[axis][index].toLocaleString("en", { maximumSignificantDigits: 6 });
  const unit = axis === "seconds" ? "s" : axis;
  return `${DATA.series[run.series]}, seed ${run.seed}: ${value}${spec.unit} at ${at} ${unit}`;
}

const charts = DATA.charts.map((spec) => {
  const plot = document.querySelector(`#figure-${spec.number} .plot`);
  return { spec, plot, lines: [], heading: null, width: 0 };
});

function drawAll() {
  if (!charts.length) return;
  const width = Math.max(200, charts[0].plot.clientWidth); // all are of one width
  for (const chart of charts) draw(chart, width);
}

for (const button of document.querySelectorAll(".switch button")) {
  button.addEventListener("click", () => {
    axis = button.dataset.axis;
    for (const other of button.parentNode.querySelectorAll("button")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    drawAll();
  });
}

function toggle(series, button) {
  if (!hidden.delete(series)) hidden.add(series);
  button.setAttribute("aria-pressed", String(!hidden.has(series)));
  for (const { lines } of charts) {
    for (const { run, path } of lines) {
      if (run.series === series) path.classList.toggle("hidden", hidden.has(series));
    }
  }
}

const legend = document.querySelector(".legend");
DATA.series.forEach((name, series) => {
  const sample = make("svg", { viewBox: "0 0 22 8", class: "sample", "aria-hidden": "true" });
  sample.append(make("path", { d: "M1 4H21", class: `curve ${look(series)}` }));
  const button = document.createElement("button");
  button.type = "button";
  button.setAttribute("aria-pressed", "true");
  button.append(sample, name);
  button.addEventListener("click", () => toggle(series, button));
  legend.append(button);
});

drawAll();
if (charts.length) {
  new ResizeObserver(() => {
    if (Math.max(200, charts[0].plot.clientWidth) !== charts[0].width) drawAll();
  }).observe(charts[0].plot);
}

// Paper cannot unfold anything.

let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const details of folded) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of folded) details.open = false;
});

document.documentElement.dataset.renderMs =
  document.body.offsetHeight && performance.now().toFixed(1); // the height asks for a layout
