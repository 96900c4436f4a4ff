// The figures that every view shares, and when they are requested: one poll every two seconds, no connection held, nothing
// while the page is hidden.

import { call, limitedFor, hasKey } from "./api.js";

/** What the last polls have shown. Null until it is known. */
export const data = {
  upstreams: null,
  gateway: null,
  /** When the last figures arrived, by this browser's clock. */
  at: 0,
  /** Why the last poll failed. */
  problem: null,
  /** Whether no figures have arrived for too long. */
  isLost: false,
  isHeld: false,
  /** Seconds between two polls. */
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

let redraw = () => {};
let timer;
let isPolling = false;
let isAwake = false;
let failingSince = null;

/** Starts to poll. `changed` draws the page. */
export function start(changed) {
  redraw = changed;
  isAwake = true;
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
  // Counts down, and notices that nothing arrives.
  setInterval(() => {
    if (document.hidden) return;
    data.isLost = failingSince !== null && !data.isHeld && (Date.now() - Math.max(data.at, started)) / 1000 >= LOST_AFTER;
    redraw();
  }, 1000);
  refresh();
}
const started = Date.now();

/** Requests the figures now, for example after an action. */
export function refresh() {
  for (const task of tasks) task.isDue = true;
  if (isAwake && !isPolling) poll();
}

/** Holds all updates, or goes on. */
export function hold(isHeld = !data.isHeld) {
  data.isHeld = isHeld;
  failingSince = null;
  data.isLost = false;
  redraw();
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
  redraw();
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
    data.gateway = await call("GET", "v1/gateway");
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
    // The view shows what could not be read; it is tried again.
  }
  redraw();
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
      if (generation === this.#generation) this.problem = problem;
    }
    redraw();
  }
}

/** Whether the key may do what needs `scope`. Without keys everyone may. */
export function may(scope) {
  const key = data.gateway?.key;
  return !key || key.scopes.includes(scope);
}

export const isSignedIn = () => hasKey();

export const upstreamNamed = (name) => data.upstreams?.find((upstream) => upstream.name === name);

// History: for each upstream and figure the last hour, in steps of ten seconds; what is not known is NaN.

export const SERIES = [
  "accepted", "delivered", "failed", "queued", "oldestSeconds", "requests", "requestsFailed", "requestP50Ms", "requestP99Ms",
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
  for (const [name, figures] of Object.entries(upstreams)) {
    if (!histories.has(name)) histories.set(name, new Map(SERIES.map((series) => [series, new Float32Array(POINTS).fill(NaN)])));
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

/** The same, summed over all upstreams. */
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
