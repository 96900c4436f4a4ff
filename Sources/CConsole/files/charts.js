// Time series as SVG paths: axes in the chosen zone, a cursor with a read-out, a range to drag, and the same figures as a
// table. A value that is not known is NaN, and leaves a gap.

import { changed, clock, dateAndClock } from "./core.js";
import { h, s } from "./dom.js";

const HEIGHT = 150;
const MARGIN = { top: 8, right: 8, bottom: 22, left: 46 };

/** The most rows of a table of figures; more points are averaged. */
const MOST_ROWS = 60;

// What the user does with a chart. Everything else is in the address.
const widths = new Map();
const opened = new Set();
let cursor = null;
let drag = null;

const observer = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    if (!target.isConnected) observer.unobserve(target);
    else if (contentRect.width && Math.abs((widths.get(target.dataset.chart) ?? 0) - contentRect.width) >= 1) {
      widths.set(target.dataset.chart, contentRect.width);
      changed();
    }
  }
});

/**
 * A chart of `series`, an array of `{label, values, tone, isArea, isDashed}` that all end at `end` and have a value each
 * `step` seconds. `format` writes a value, and `levels` chooses those that are labeled. `onRange` is called with the two times
 * that a drag selected, in milliseconds; `range` is what is selected now.
 */
export function chart({ id, title, series, end, step, format, levels = roundLevels, onRange, range }) {
  const points = series[0].values.length;
  const frame = new Frame(widths.get(id) ?? 520, points, end, step, series, levels);
  const selected = drag?.id === id ? [frame.time(Math.min(drag.from, drag.to)),
    frame.time(Math.max(drag.from, drag.to))] : range;
  const index = cursor?.id === id ? Math.min(cursor.index, points - 1) : null;
  const handlers = end === undefined ? {} : pointerHandlers(id, frame, onRange);
  return h("figure", { class: "chart", "data-chart": id, key: id, ref: (element) => observer.observe(element) },
    h("figcaption", null, h("span", { class: "chart-title" }, title), readout(series, index, frame, format)),
    s("svg", { role: "img", "aria-label": sentence(title, series, format), width: frame.width, height: HEIGHT,
      viewBox: `0 0 ${frame.width} ${HEIGHT}`, ...handlers },
      selected && s("rect", { class: "chart-range", ...frame.band(selected) }),
      frame.levels.map((level) => [
        s("line", { class: "chart-grid", x1: MARGIN.left, x2: frame.right, y1: frame.y(level), y2: frame.y(level) }),
        s("text", { class: "chart-label", x: MARGIN.left - 6, y: frame.y(level) + 4, "text-anchor": "end" },
          format(level)),
      ]),
      timeLabels(frame),
      series.map((one) => [
        one.isArea && s("path", { class: `chart-area tone-${one.tone}`, d: areaPath(one.values, frame) }),
        s("path", { class: `chart-line tone-${one.tone}${one.isDashed ? " dashed" : ""}`,
          d: linePath(one.values, frame) }),
      ]),
      index !== null && s("line", { class: "chart-cursor", x1: frame.x(index), x2: frame.x(index), y1: MARGIN.top,
        y2: frame.bottom }),
      index !== null && series.map((one) => !Number.isNaN(one.values[index])
        && s("circle", { class: `chart-dot tone-${one.tone}`, cx: frame.x(index), cy: frame.y(one.values[index]),
          r: 3 }))),
    figures(id, title, series, frame, format));
}

/** Where values and times are in the picture. */
class Frame {
  constructor(width, points, end, step, series, levels) {
    this.width = Math.max(200, Math.round(width));
    this.right = this.width - MARGIN.right;
    this.bottom = HEIGHT - MARGIN.bottom;
    this.points = points;
    this.end = end;
    this.step = step * 1000;
    const top = Math.max(0, ...series.flatMap(({ values }) => values.filter((value) => !Number.isNaN(value))));
    this.levels = levels(top);
    this.top = this.levels.at(-1);
  }

  x(index) {
    return round(MARGIN.left + ((this.right - MARGIN.left) * index) / Math.max(1, this.points - 1));
  }

  y(value) {
    return round(this.bottom - ((this.bottom - MARGIN.top) * value) / this.top);
  }

  /** The time at which the step of a point ends. */
  time(index) {
    return this.end - (this.points - 1 - index) * this.step;
  }

  /** The point nearest to a place in the picture. */
  index(x) {
    const share = (x - MARGIN.left) / (this.right - MARGIN.left);
    return Math.round(Math.max(0, Math.min(1, share)) * (this.points - 1));
  }

  band([from, to]) {
    const place = (time) => Math.max(0, Math.min(this.points - 1, this.points - 1 - (this.end - time) / this.step));
    const left = this.x(place(from));
    return { x: left, y: MARGIN.top, width: Math.max(1, round(this.x(place(to)) - left)),
      height: this.bottom - MARGIN.top };
  }
}

const round = (value) => Math.round(value * 10) / 10;

/** Values from 0 to at least `top`, at most four, in the first of these steps that is large enough. */
function levelsBy(steps, top) {
  const step = steps.find((candidate) => candidate * 3 >= top) ?? top;
  const all = [0, step];
  while (all.at(-1) < top) all.push(all.at(-1) + step);
  return all;
}

/** Round values: 0, 50, 100. */
function roundLevels(top) {
  const magnitude = 10 ** Math.floor(Math.log10(top / 2 || 1));
  return levelsBy([1, 2, 2.5, 5, 10].map((factor) => factor * magnitude), top);
}

export const wholeLevels = (top) => (top <= 3 ? levelsBy([1], top) : roundLevels(top).map(Math.ceil));

/** For seconds: 0, 5 min, 10 min. */
export const durationLevels = (top) =>
  (top < 1 ? roundLevels(top) : levelsBy([1, 2, 5, 10, 20, 60, 120, 300, 600, 1200, 3600, 7200, 21_600, 43_200, 86_400],
    top));

function linePath(values, frame) {
  let path = "";
  let isDrawing = false;
  values.forEach((value, index) => {
    if (Number.isNaN(value)) {
      isDrawing = false;
      return;
    }
    path += `${isDrawing ? "L" : "M"}${frame.x(index)} ${frame.y(value)}`;
    // A value between two gaps is a dot.
    if (!isDrawing && Number.isNaN(values[index + 1] ?? NaN)) path += "h.1";
    isDrawing = true;
  });
  return path;
}

function areaPath(values, frame) {
  let path = "";
  let first = null;
  for (let index = 0; index <= values.length; index += 1) {
    const isKnown = index < values.length && !Number.isNaN(values[index]);
    if (isKnown) {
      path += `${first === null ? `M${frame.x(index)} ${frame.bottom}L` : "L"}${frame.x(index)} ${frame.y(values[index])}`;
      first ??= index;
    } else if (first !== null) {
      path += `L${frame.x(index - 1)} ${frame.bottom}Z`;
      first = null;
    }
  }
  return path;
}

/** Steps between two labels of the time axis, in seconds. */
const TICKS = [60, 120, 300, 600, 900, 1800, 3600];

function timeLabels(frame) {
  if (frame.end === undefined) return null;
  const span = (frame.points - 1) * frame.step;
  const room = Math.max(2, Math.floor(frame.width / 90));
  const step = 1000 * (TICKS.find((seconds) => span / (1000 * seconds) <= room) ?? 3600);
  const labels = [];
  for (let at = Math.ceil((frame.end - span) / step) * step; at <= frame.end; at += step) {
    const x = frame.x(frame.points - 1 - (frame.end - at) / frame.step);
    if (x < MARGIN.left + 16 || x > frame.right - 14) continue;
    labels.push(
      s("line", { class: "chart-grid", x1: x, x2: x, y1: frame.bottom, y2: frame.bottom + 4 }),
      s("text", { class: "chart-label", x, y: HEIGHT - 6, "text-anchor": "middle" }, clock(at).slice(0, 5)));
  }
  return labels;
}

const written = (value, format) => (Number.isNaN(value) ? "not known" : format(value));

function readout(series, index, frame, format) {
  return h("span", { class: "chart-readout" },
    index !== null && h("span", { class: "soft" }, clock(frame.time(index))),
    series.map((one) => {
      const value = index === null ? one.values.findLast((candidate) => !Number.isNaN(candidate)) ?? NaN : one.values[index];
      return h("span", null,
        s("svg", { class: "chart-key", viewBox: "0 0 16 8", "aria-hidden": "true" },
          s("path", { class: `chart-line tone-${one.tone}${one.isDashed ? " dashed" : ""}`, d: "M0 4H16" })),
        one.label, " ", h("b", null, Number.isNaN(value) ? "–" : format(value)));
    }));
}

function sentence(title, series, format) {
  const parts = series.map(({ label, values }) => {
    const known = values.filter((value) => !Number.isNaN(value));
    if (!known.length) return `${label}: nothing is known`;
    return `${label}: now ${format(known.at(-1))}, between ${format(Math.min(...known))} and ${format(Math.max(...known))}`;
  });
  return `${title}. ${parts.join("; ")}.`;
}

function figures(id, title, series, frame, format) {
  const toggled = (event) => {
    if (event.target.open === opened.has(id)) return;
    if (event.target.open) opened.add(id);
    else opened.delete(id);
    changed();
  };
  return h("details", { class: "figures", ontoggle: toggled },
    h("summary", null, "Figures", h("span", { class: "hidden" }, `: ${title}`)),
    opened.has(id) && frame.end !== undefined && h("div", { class: "scroll", tabindex: "0", role: "region",
      "aria-label": `${title}: figures` },
      h("table", { class: "plain" },
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "Until"),
          series.map(({ label }) => h("th", { scope: "col", class: "right" }, label)))),
        h("tbody", null, rows(series, frame, format)))));
}

function rows(series, frame, format) {
  const group = Math.ceil(frame.points / MOST_ROWS);
  const all = [];
  for (let end = frame.points; end > 0; end -= group) {
    all.push(h("tr", null,
      h("th", { scope: "row" }, dateAndClock(frame.time(end - 1))),
      series.map(({ values }) => h("td", { class: "right" }, written(mean(values.slice(Math.max(0, end - group), end)),
        format)))));
  }
  return all;
}

function mean(values) {
  const known = values.filter((value) => !Number.isNaN(value));
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}

function pointerHandlers(id, frame, onRange) {
  const place = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    return frame.index(((event.clientX - box.left) / box.width) * frame.width);
  };
  const leave = () => {
    if (drag) return;
    cursor = null;
    changed();
  };
  return {
    onpointermove(event) {
      cursor = { id, index: place(event) };
      if (drag?.id === id) drag.to = cursor.index;
      changed();
    },
    onpointerleave: leave,
    onpointerdown: onRange && ((event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      event.currentTarget.setPointerCapture(event.pointerId);
      drag = { id, from: place(event), to: place(event) };
      event.preventDefault();
    }),
    onpointerup: onRange && (() => {
      const { from, to } = drag ?? {};
      drag = null;
      if (from !== undefined && from !== to) onRange(frame.time(Math.min(from, to)), frame.time(Math.max(from, to)));
      changed();
    }),
    onpointercancel() {
      drag = null;
      changed();
    },
  };
}

/** A small chart without axes. Its figures are written next to it. */
export function spark(series, { width = 120, height = 26 } = {}) {
  const top = Math.max(1e-9, ...series.flatMap(({ values }) => values.filter((value) => !Number.isNaN(value))));
  const points = Math.max(2, series[0].values.length);
  const frame = {
    bottom: height - 1,
    x: (index) => round((width * index) / (points - 1)),
    y: (value) => round(height - 1 - ((height - 3) * value) / top),
  };
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none",
    "aria-hidden": "true" },
    series.map((one) => [
      one.isArea && s("path", { class: `chart-area tone-${one.tone}`, d: areaPath(one.values, frame) }),
      s("path", { class: `chart-line tone-${one.tone}`, d: linePath(one.values, frame) }),
    ]));
}

export function bars(values, label, { width = 140, height = 26 } = {}) {
  const top = Math.max(1, ...values);
  const step = width / values.length;
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
    "aria-label": label },
    s("path", { class: "chart-grid", d: `M0 ${height - 0.5}H${width}` }),
    s("path", { class: "chart-bars tone-bad", d: values.map((value, index) => {
      const tall = value ? Math.max(2, (value / top) * (height - 2)) : 0;
      return tall ? `M${round(index * step)} ${height}v${-round(tall)}h${round(Math.max(1, step - 1))}v${round(tall)}Z` : "";
    }).join("") }));
}
