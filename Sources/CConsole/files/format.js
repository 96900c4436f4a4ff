// Numbers, sizes, durations, times, and text that came from outside, as people read them.

import { serverNow } from "./api.js";
import { h } from "./dom.js";
import { settings } from "./settings.js";

const integers = new Intl.NumberFormat("en");
const plurals = new Intl.PluralRules("en");

export const number = (value) => (Number.isFinite(value) ? integers.format(value) : "–");

/** A rate: one decimal below 10. */
export const rate = (value) => (value >= 10 || value === 0 ? number(Math.round(value)) : value.toFixed(1));

/** "1 message", "12 messages". */
export function count(value, one, many = `${one}s`) {
  return `${number(value)} ${plurals.select(value) === "one" ? one : many}`;
}

export function size(bytes) {
  if (!Number.isFinite(bytes)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

/** "43 s", "11 min", "1 h 5 min", "3 d". */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  seconds = Math.max(0, seconds);
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) {
    const rest = seconds < 300 ? Math.floor(seconds % 60) : 0;
    return `${Math.floor(seconds / 60)} min${rest ? ` ${rest} s` : ""}`;
  }
  if (seconds < 86_400) {
    const minutes = Math.floor((seconds % 3600) / 60);
    return `${Math.floor(seconds / 3600)} h${minutes ? ` ${minutes} min` : ""}`;
  }
  const hours = Math.floor((seconds % 86_400) / 3600);
  return `${number(Math.floor(seconds / 86_400))} d${hours && seconds < 864_000 ? ` ${hours} h` : ""}`;
}

/** How long a request took: "0.4 ms", "38 ms", "1.2 s". */
export function milliseconds(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  if (value < 10) return `${value === Math.round(value) ? value : value.toFixed(1)} ms`;
  return value < 1000 ? `${Math.round(value)} ms` : value < 60_000 ? `${(value / 1000).toFixed(1)} s` : duration(value / 1000);
}

const clocks = {
  local: new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" }),
  utc: new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZone: "UTC" }),
};
const days = {
  local: new Intl.DateTimeFormat("sv-SE", { year: "numeric", month: "2-digit", day: "2-digit" }),
  utc: new Intl.DateTimeFormat("sv-SE", { year: "numeric", month: "2-digit", day: "2-digit", timeZone: "UTC" }),
};

/** The zone of clock times: UTC if it was chosen, else the browser's. */
export const zone = () => (settings.times === "utc" ? "utc" : "local");

/** "04:13:53" in the chosen zone. */
export const clock = (at) => clocks[zone()].format(at);

/** "2026-11-22 04:13:53" in the chosen zone, with "UTC" if it is that. */
export const dateAndClock = (at) => `${days[zone()].format(at)} ${clock(at)}${zone() === "utc" ? " UTC" : ""}`;

/** The exact time: UTC with milliseconds. */
export const exact = (at) => new Date(at).toISOString().replace("T", " ").replace("Z", " UTC");

/** "11 min ago", "in 43 s". */
export function relative(at) {
  const seconds = (serverNow() - at) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds >= 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
}

/** A time of the API, relative or in the chosen zone; its title is the exact one. */
export function time(text, form = settings.times === "relative" ? relative : dateAndClock) {
  if (!text) return "–";
  const at = Date.parse(text);
  if (Number.isNaN(at)) return foreign(text);
  return h("time", { datetime: text, title: exact(at) }, form(at));
}

/** "11 min": how long ago, in every zone. */
export const age = (text) => time(text, (at) => duration((serverNow() - at) / 1000));

/** "in 43 s", in every zone. */
export const until = (text) => time(text, relative);

// Control characters, and those that change the direction of text or cannot be seen. Line breaks and tabs of a body are
// shown as what they are.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/u;
const HIDDEN_ALL = new RegExp(HIDDEN.source, "gu");

/** `text` with a mark for each character that could not be seen. The character itself stays in the text, where it has no effect. */
export function marked(text) {
  if (!HIDDEN.test(text)) return [text];
  const parts = [];
  let end = 0;
  for (const { 0: character, index } of text.matchAll(HIDDEN_ALL)) {
    const code = `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
    parts.push(text.slice(end, index), h("span", { class: "mark", "data-mark": code }, character));
    end = index + 1;
  }
  return [...parts, text.slice(end)];
}

/** Text that came from outside. Its direction does not reach what surrounds it. */
export const foreign = (text, longest = Infinity) => {
  text = String(text ?? "–");
  return h("bdi", { title: text.length > longest ? text.slice(0, 2000) : null },
    marked(text.length > longest ? `${text.slice(0, longest)}…` : text));
};

const pad = (value) => String(value).padStart(2, "0");

/** What a field of type `datetime-local` shows for a time of the API. */
export function inputValue(text) {
  const at = new Date(text ?? "");
  if (Number.isNaN(at.getTime())) return "";
  if (zone() === "utc") return at.toISOString().slice(0, 19);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}T${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

/** The time of the API for what such a field contains; undefined if it is empty. */
export function parseInput(value) {
  const at = new Date(zone() === "utc" && value ? `${value}Z` : value);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

export const timeInput = (name, text, onchange) =>
  h("input", { type: "datetime-local", step: "1", name, value: inputValue(text), onchange, title: zone() === "utc" ? "UTC" : "Local time" });
