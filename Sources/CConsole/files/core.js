// What every view needs: requests to the gateway, the figures that are shared, settings, addresses, and how values are written.

import { h } from "./dom.js";
import { toast } from "./parts.js";

// Drawing: at most once a frame, however many things have changed.

let draw = () => {};
let isScheduled = false;

export function drawWith(draws) {
  draw = draws;
}

export function changed() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => isScheduled && drawNow());
}

export function drawNow() {
  isScheduled = false;
  draw();
}

// Requests to the gateway. The key is sent as `Authorization` and by no other way: no cookie, no address.

const KEPT = "postern.key";

// The directory above this one, also behind a proxy that adds a prefix.
const ROOT = new URL("../", import.meta.url);

/** Seconds after which a request is given up. */
const PATIENCE = 4;

/** What a request failed with: a problem of the API (RFC 9457), or no response at all (`status` 0). */
class Problem extends Error {
  constructor(status, members = {}) {
    super(members.detail ?? `The gateway answered with HTTP status ${status}.`);
    this.status = status;
    this.requestId = members.requestId;
    this.errors = members.errors ?? [];
    this.members = members;
  }
}

let key = readKept();
let limitedUntil = 0;
const listeners = { unauthorized: () => {} };

/** Calls `listener` when the gateway requires a key or rejects this one. */
export function onUnauthorized(listener) {
  listeners.unauthorized = listener;
}

export const hasKey = () => key !== null;

/** Uses another key, or none. `keep`: until this tab is closed. */
export function useKey(newKey, keep = false) {
  key = newKey;
  try {
    if (key && keep) sessionStorage.setItem(KEPT, key);
    else sessionStorage.removeItem(KEPT);
  } catch {
  }
}

function readKept() {
  try {
    return sessionStorage.getItem(KEPT);
  } catch {
    return null;
  }
}

/** Seconds until the key is no longer over its limit. */
export const limitedFor = () => Math.max(0, (limitedUntil - Date.now()) / 1000);

/** Sends a request. Returns its JSON, or with `raw` the response itself. Throws a `Problem`. */
export async function call(method, path, options = {}) {
  const { query, body, headers = {}, patience = PATIENCE, raw = false, signal } = options;
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of [value].flat()) if (one !== undefined && one !== null && one !== "") url.searchParams.append(name,
      one);
  }
  const sent = { Accept: "application/json", ...headers };
  const sentKey = key;
  if (sentKey) sent.Authorization = `Bearer ${sentKey}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  const limit = AbortSignal.timeout(patience * 1000);
  const startedAt = Date.now();
  try {
    const response = await fetch(url, {
      method, headers: sent, credentials: "omit", cache: "no-store", redirect: "error", referrerPolicy: "no-referrer",
      body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    learnClock(response.headers.get("Date"), startedAt);
    if (!response.ok) throw await problem(response, sentKey);
    if (raw) return response;
    const text = await response.text();
    return text === "" ? null : JSON.parse(text);
  } catch (error) {
    if (error instanceof Problem) throw error;
    if (signal?.aborted) throw new Problem(0, { detail: "The request was given up." });
    throw new Problem(0, { detail: error.name === "TimeoutError"
      ? `The gateway has not answered within ${patience} s.` : "The gateway cannot be reached." });
  }
}

async function problem(response, sentKey) {
  let members = {};
  try {
    members = await response.json();
  } catch {
  }
  const found = new Problem(response.status, members ?? {});
  found.requestId ??= response.headers.get("X-Request-Id");
  // Another key may have been entered meanwhile.
  if (response.status === 401 && sentKey === key) listeners.unauthorized(hasKey());
  if (response.status === 429) limitedUntil = Date.now() + 1000 * (Number(response.headers.get("Retry-After")) || 1);
  return found;
}

// The gateway's clock less this one's lies between these. Each `Date` header, which has whole seconds, narrows it.
let earliest = -Infinity;
let latest = Infinity;

function learnClock(header, startedAt) {
  const date = Date.parse(header ?? "");
  if (Number.isNaN(date)) return;
  earliest = Math.max(earliest, date - Date.now());
  latest = Math.min(latest, date + 1000 - startedAt);
  // One of the clocks was set.
  if (earliest > latest) [earliest, latest] = [date - Date.now(), date + 1000 - startedAt];
}

/** The time by the gateway's clock, as far as it is known: this browser's, unless that cannot be right. */
export function serverNow() {
  const offset = Math.min(Math.max(0, earliest), latest);
  return Date.now() + (Number.isFinite(offset) ? offset : 0);
}

// Shared figures: one poll every two seconds, no connection held, nothing while the page is hidden.

/** What the last polls have shown. Null until it is known. */
export const data = {
  upstreams: null,
  gateway: null,
  /** When the last figures arrived, by this browser's clock. */
  at: 0,
  problem: null,
  /** Whether no figures have arrived for too long. */
  isLost: false,
  isHeld: false,
  interval: 2,
  /** Whether the gateway requires a key and there is none that it accepts. */
  needsKey: false,
};

const FASTEST = 2;
const SLOWEST = 60;
/** Seconds of an answer after which the gateway is asked less often. */
const SLOW_ANSWER = 0.3;
/** Seconds without figures after which the page says so. */
const LOST_AFTER = 6;

let timer;
let isPolling = false;
let isAwake = false;
let failingSince = null;

export function start() {
  isAwake = true;
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
  setInterval(() => {
    if (document.hidden) return;
    data.isLost = failingSince !== null && !data.isHeld && (Date.now() - Math.max(data.at,
      started)) / 1000 >= LOST_AFTER;
    changed();
  }, 1000);
  refresh();
}
const started = Date.now();

export function refresh() {
  for (const task of tasks) task.isDue = true;
  if (isAwake && !isPolling) poll();
}

export function hold(isHeld = !data.isHeld) {
  data.isHeld = isHeld;
  failingSince = null;
  data.isLost = false;
  changed();
  if (!isHeld) refresh();
}

/** Forgets everything that was read with another key. */
export function forget() {
  Object.assign(data, { upstreams: null, gateway: null, at: 0, problem: null, isLost: false });
  histories.clear();
  historyTo = undefined;
}

async function poll() {
  clearTimeout(timer);
  if (document.hidden || data.isHeld || data.needsKey) return;
  isPolling = true;
  const startedAt = performance.now();
  await Promise.all([limitedFor() > 0 ? null : loadUpstreams(), runTask()]);
  const took = (performance.now() - startedAt) / 1000;
  data.interval = took > SLOW_ANSWER && failingSince === null ? Math.min(SLOWEST, 7 * took) : FASTEST;
  isPolling = false;
  clearTimeout(timer);
  timer = setTimeout(poll, 1000 * Math.max(data.interval, limitedFor()));
  changed();
}

async function loadUpstreams() {
  try {
    const answer = await call("GET", "v1/upstreams", { query: { include: "history", since: historyTo } });
    if (data.needsKey) return;
    data.upstreams = answer.upstreams;
    if (answer.history) learn(answer.history);
    data.at = Date.now();
    data.problem = null;
    data.isLost = false;
    failingSince = null;
  } catch (problem) {
    data.problem = problem;
    if (problem.status !== 401 && problem.status !== 403 && problem.status !== 429) failingSince ??= Date.now();
  }
}

// Requests that are rarer than the poll. At most one of them accompanies a poll, so that an open page asks little.

const gatewayTask = {
  every: 10,
  at: 0,
  async load() {
    if (!limitedFor()) data.gateway = await call("GET", "v1/gateway");
  },
};
let tasks = [gatewayTask];

/** Replaces what a view reads regularly: `[{every, load}]`, in seconds. Each `load` runs at once, or if `isFresh` after its period. */
export function watch(viewTasks, isFresh = false) {
  tasks = [gatewayTask, ...viewTasks];
  for (const task of viewTasks) {
    task.at = Date.now();
    if (!isFresh) run(task);
  }
}

async function runTask() {
  const now = Date.now();
  const waited = (task) => (now - task.at) / 1000 - task.every;
  const due = tasks.filter((task) => task.isDue || waited(task) >= 0);
  // After an action everything is read again at once.
  const chosen = due.some((task) => task.isDue) ? due : due.sort((a, b) => waited(b) - waited(a)).slice(0, 1);
  await Promise.all(chosen.map(run));
}

async function run(task) {
  task.at = Date.now();
  task.isDue = false;
  try {
    await task.load();
  } catch {
  }
  changed();
}

/** What one request of a view has brought, or why it has not. An answer that was overtaken by a later one is dropped. */
export class Resource {
  value = null;
  problem = null;
  #fetch;
  #generation = 0;

  constructor(fetch) {
    this.#fetch = fetch;
  }

  async load() {
    if (data.needsKey || limitedFor() > 0) return;
    const generation = ++this.#generation;
    try {
      const value = await this.#fetch();
      if (generation !== this.#generation) return;
      this.value = value;
      this.problem = null;
    } catch (problem) {
      if (generation !== this.#generation) return;
      this.problem = problem;
      if (problem.status === 404) this.value = null;
    }
    changed();
  }
}

/** Whether the key may do what needs `scope`. Without keys everyone may. */
export function may(scope) {
  const key = data.gateway?.key;
  return !key || key.scopes.includes(scope);
}

export const upstreamNamed = (name) => data.upstreams?.find((upstream) => upstream.name === name);

// History: for each upstream and figure the last hour, in steps of ten seconds; what is not known is NaN.

const SERIES = [
  "accepted", "delivered", "failed", "queued", "oldestSeconds", "requests", "requestsFailed", "requestP50Ms",
    "requestP99Ms",
  "waitP99Ms",
];
export const STEP = 10;
const POINTS = 360;
const histories = new Map();
let historyTo;

/** When the newest point ends, in milliseconds since 1970; undefined before the first answer. */
export const historyEnd = () => (historyTo === undefined ? undefined : Date.parse(historyTo));

function learn({ to, upstreams }) {
  const steps = historyTo === undefined ? POINTS : Math.round((Date.parse(to) - Date.parse(historyTo)) / 1000 / STEP);
  // The gateway was restarted, or its clock was set.
  if (steps < 0) histories.clear();
  for (const name of histories.keys()) if (!upstreams[name]) histories.delete(name);
  for (const [name, figures] of Object.entries(upstreams)) {
    if (!histories.has(name)) histories.set(name,
      new Map(SERIES.map((series) => [series, new Float32Array(POINTS).fill(NaN)])));
    for (const [series, points] of histories.get(name)) {
      const moved = Math.min(POINTS, Math.abs(steps));
      points.copyWithin(0, moved);
      points.fill(NaN, POINTS - moved);
      const arrived = (figures[series] ?? []).slice(-POINTS);
      arrived.forEach((value, index) => (points[POINTS - arrived.length + index] = value ?? NaN));
    }
  }
  historyTo = to;
}

/** The last `points` values of a figure of one upstream. */
export const series = (name, figure, points) =>
  [...(histories.get(name)?.get(figure) ?? new Float32Array(POINTS).fill(NaN))].slice(-points);

export function total(figure, points) {
  const sum = new Array(points).fill(NaN);
  for (const name of histories.keys()) {
    series(name, figure, points).forEach((value, index) => {
      if (!Number.isNaN(value)) sum[index] = (Number.isNaN(sum[index]) ? 0 : sum[index]) + value;
    });
  }
  return sum;
}

export const average = (values) => {
  const known = values.filter((value) => !Number.isNaN(value));
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
};

// What this browser remembers: the form of times, the theme, whether single keys are shortcuts, and saved views. Never a key.

const STORED = "postern.console";

const defaults = { times: "relative", theme: "system", shortcuts: true, views: [] };

const choices = { times: ["relative", "local", "utc"], theme: ["system", "light", "dark"], shortcuts: [true, false] };

export const MOST_VIEWS = 20;

function load() {
  const loaded = structuredClone(defaults);
  try {
    const stored = JSON.parse(localStorage.getItem(STORED)) ?? {};
    for (const name in choices) if (choices[name].includes(stored[name])) loaded[name] = stored[name];
    if (Array.isArray(stored.views)) {
      loaded.views = stored.views
        .filter((view) => typeof view?.name === "string" && typeof view?.address === "string"
          && view.address.startsWith("#/"))
        .map(({ name, address }) => ({ name: name.slice(0, 80), address }))
        .slice(0, MOST_VIEWS);
    }
  } catch {
    // Storage is switched off, or was written by something else.
  }
  return loaded;
}

export const settings = load();

export function change(changes) {
  Object.assign(settings, changes);
  try {
    localStorage.setItem(STORED, JSON.stringify(settings));
  } catch {
  }
  applyTheme();
}

export function applyTheme() {
  if (settings.theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = settings.theme;
}

export function next(name) {
  const all = choices[name];
  change({ [name]: all[(all.indexOf(settings[name]) + 1) % all.length] });
}

// Addresses of views: fragments, so that keys and filters reach no server log. Everything that a view shows is in them.

/** "#/messages?state=failed". Empty parameters are left out. */
export function address(path, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null
    && value !== "") search.append(name, value);
  const text = search.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function current() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { path: path.split("/").filter(Boolean).map(decode), query: Object.fromEntries(new URLSearchParams(query)) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function go(target) {
  location.hash = target;
}

export function replace(target) {
  history.replaceState(null, "", target);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

// How values are written.

const integers = new Intl.NumberFormat("en");
const plurals = new Intl.PluralRules("en");

export const number = (value) => (Number.isFinite(value) ? integers.format(value) : "–");

export const rate = (value) => (value >= 10 || value === 0 ? number(Math.round(value)) : value.toFixed(1));

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
  return value < 1000 ? `${Math.round(value)} ms` : value < 60_000
    ? `${(value / 1000).toFixed(1)} s` : duration(value / 1000);
}

const clocks = {
  local: new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" }),
  utc: new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZone: "UTC" }),
};
const days = {
  local: new Intl.DateTimeFormat("sv-SE", { year: "numeric", month: "2-digit", day: "2-digit" }),
  utc: new Intl.DateTimeFormat("sv-SE", { year: "numeric", month: "2-digit", day: "2-digit", timeZone: "UTC" }),
};

const zone = () => (settings.times === "utc" ? "utc" : "local");

export const clock = (at) => clocks[zone()].format(at);

/** "2026-11-22 04:13:53" in the chosen zone, with "UTC" if it is that. */
export const dateAndClock = (at) => `${days[zone()].format(at)} ${clock(at)}${zone() === "utc" ? " UTC" : ""}`;

export const exact = (at) => new Date(at).toISOString().replace("T", " ").replace("Z", " UTC");

/** "11 min ago", "in 43 s". */
function relative(at) {
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

export const age = (text) => time(text, (at) => duration((serverNow() - at) / 1000));

export const until = (text) => time(text, relative);

// Control characters, and those that change the direction of text or cannot be seen.
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
function inputValue(text) {
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
  h("input", { type: "datetime-local", step: "1", name, value: inputValue(text), onchange,
    title: zone() === "utc" ? "UTC" : "Local time" });

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Copies text. A page from plain HTTP on a name has no clipboard; a selection can be copied there, too. */
export async function copy(text, what) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copySelection(text);
    toast(`${what} copied.`);
  } catch {
    toast(`${what} could not be copied: the browser does not permit it.`, { isFailure: true });
  }
}

function copySelection(text) {
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.className = "hidden";
  area.value = text;
  // A modal dialog makes everything outside of it inert.
  (document.querySelector("dialog[open]:last-of-type") ?? document.body).append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  focused?.focus({ preventScroll: true });
  if (!isCopied) throw new Error("not copied");
}
