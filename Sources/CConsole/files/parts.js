// What views are made of: words for states and reasons, parts, dialogs, the actions of an operator, and the one field that finds
// everything.

import {
  address, call, change, changed, count, data, drawNow, duration, exact, foreign, forget, go, hasKey, hold, may, next, number, refresh,
  serverNow, settings, size, time, until, upstreamNamed, useKey,
} from "./core.js";
import { h, s } from "./dom.js";
import { MESSAGE_ID } from "./messages.js";

// What states, reasons and outcomes are called, with their color and icon. The color is never the only sign.

export const HEALTHS = {
  up: { tone: "good", icon: "check" },
  degraded: { tone: "warning", icon: "alert" },
  down: { tone: "bad", icon: "cross" },
  unauthorized: { tone: "bad", icon: "lock" },
  misconfigured: { tone: "bad", icon: "wrench" },
  paused: { tone: "held", icon: "pause" },
  disabled: { tone: "held", icon: "off" },
};

export const STATES = {
  delivered: { tone: "good", icon: "check" },
  queued: { tone: "waiting", icon: "clock" },
  failed: { tone: "bad", icon: "ban" },
  cancelled: { tone: "plain", icon: "cross" },
  dropped: { tone: "held", icon: "down" },
  expired: { tone: "warning", icon: "clock" },
};

const SEVERITY = ["unauthorized", "misconfigured", "down", "degraded", "paused", "disabled", "up"];

/** Seconds that the oldest due message of an upstream may wait before the page calls it behind. */
const BEHIND = 30;

export const isBehind = (upstream) => upstream.health === "up" && upstream.oldestQueuedSeconds > BEHIND;

const needsAction = ({ health }) => health === "unauthorized" || health === "misconfigured" || health === "down";

export const canTry = (upstream) => needsAction(upstream) || upstream.health === "degraded" || isBehind(upstream);

export function bySeverity(a, b) {
  const rank = (upstream) => (isBehind(upstream)
    ? SEVERITY.indexOf("degraded") + 0.5 : SEVERITY.indexOf(upstream.health));
  return rank(a) - rank(b) || (a.name < b.name ? -1 : 1);
}

/** Failed messages that are still stored: the books also count those that were removed. */
export const failedOf = (upstreams) => upstreams.reduce((sum, { kept }) => sum + kept.failed, 0);

export const counted = (upstream, state) => upstream.counts?.[state] ?? (state === "queued" ? upstream.queued : 0);

/** "2 upstreams need you": the first line, and the title of the page. */
export function verdict(upstreams, gateway, isLost) {
  if (isLost) return { tone: "bad", text: "The gateway does not respond" };
  if (gateway && !gateway.ready) return { tone: "bad", text: "The gateway accepts no messages" };
  if (!upstreams) return { tone: "plain", text: "Loading" };
  if (!upstreams.length) return { tone: "plain", text: "No upstream is configured" };
  const acting = upstreams.filter(needsAction).length;
  if (acting) return { tone: "bad",
    text: acting === 1 ? "1 upstream needs you" : `${number(acting)} upstreams need you` };
  const late = upstreams.filter((upstream) => upstream.health === "degraded" || isBehind(upstream)).length;
  if (late) return { tone: "warning", text: `${count(late, "upstream")} ${late === 1 ? "has" : "have"} trouble` };
  const failed = failedOf(upstreams);
  if (failed) return { tone: "bad", text: `${count(failed, "message")} failed` };
  const paused = upstreams.filter(({ health }) => health === "paused").length;
  if (paused) return { tone: "held", text: `${count(paused, "upstream")} ${paused === 1 ? "is" : "are"} paused` };
  return { tone: "good", text: "All is well" };
}

const pausedBy = ({ pausedBy: by }) => (by ? [" by ", h("b", null, foreign(by.key ?? "a caller without a key")), " ",
  time(by.at)] : []);

const detailOf = ({ lastError }) => (lastError ? [": ", foreign(lastError.detail, 300)] : []);

/** What one upstream does: "is not responding", for a sentence that begins with its name. */
export function condition(upstream) {
  switch (upstream.health) {
    case "unauthorized": return ["rejected our credentials"];
    case "misconfigured": return ["rejects our requests, or lacks settings"];
    case "down": return ["is not responding"];
    case "degraded": return upstream.endpoints.length
      ? [`holds ${count(upstream.endpoints.length, "endpoint")} while it takes the rest`] : ["fails some requests"];
    case "paused": return ["is paused", pausedBy(upstream)];
    case "disabled": return ["is disabled, or no longer configured"];
    default: return isBehind(upstream) ? ["takes messages more slowly than they arrive"] : ["is up"];
  }
}

export function backlog(upstream) {
  if (!upstream.queued) return ["; no message waits"];
  const oldest = upstream.oldestQueuedSeconds >= 1 ? `, the oldest for ${duration(upstream.oldestQueuedSeconds)}` : "";
  return ["; ", h("b", null, count(upstream.queued, "message")), upstream.queued === 1 ? " waits" : " wait", oldest];
}

/** Why an upstream is as it is, until when, and what to do: one or two sentences. */
export function reason(upstream) {
  const { circuit, token, lastSuccessAt, name } = upstream;
  const nextTry = circuit.reopensAt ? [" It is tried again ", until(circuit.reopensAt), "."] : [];
  const correct = ` Correct upstreams.${name} in the configuration and reload.`;
  switch (upstream.health) {
    case "unauthorized": return ["It rejected our credentials", detailOf(upstream), ".", correct, nextTry];
    case "misconfigured": return ["It rejects the URL, or settings are missing", detailOf(upstream), ".", correct,
      nextTry];
    case "down": return ["It is not responding", detailOf(upstream), ".", nextTry];
    case "degraded": return upstream.endpoints.length
      ? [count(upstream.endpoints.length, "endpoint"), upstream.endpoints.length === 1 ? " waits" : " wait", " alone: ",
        foreign(upstream.endpoints.slice(0, 3).map((endpoint) => endpoint.name).join(", "), 120),
          ". The rest is delivered."]
      : ["Some requests fail", detailOf(upstream), ".", nextTry];
    case "paused": return ["Paused", pausedBy(upstream), ". It still accepts messages."];
    case "disabled": return ["Its messages wait until it is enabled again."];
    default: {
      const parts = lastSuccessAt ? ["Last delivery ", time(lastSuccessAt)] : ["Nothing was delivered since the start"];
      if (isBehind(upstream)) parts.push(". More arrives than it takes, or one lane waits");
      if (token) parts.push(token.valid ? " · token valid" : " · no valid token",
        token.valid && token.expiresAt ? [" until ", until(token.expiresAt)] : "");
      return [parts, "."];
    }
  }
}

export const waiting = (upstream) => (upstream.queued ? size(upstream.queuedBytes) : "");

export const WAITS = {
  retry: "waits to be sent again",
  order: "waits for an earlier message of its lane",
  circuit: "waits because the upstream is not responding",
  token: "waits for an access token",
  credentials: "waits until credentials are corrected",
  pause: "waits because the upstream is paused",
  schedule: "is scheduled",
  guard: "waits because most are rejected",
  rate: "waits for its turn",
};

/** Why a message is in its state, in one sentence. */
export function why(message) {
  const { state, waitingFor, nextAttemptAt, lastError, settledAt } = message;
  const error = lastError ? [foreign(lastError.detail, 160)] : [];
  switch (state) {
    case "queued": {
      const next = nextAttemptAt ? [", next try ", until(nextAttemptAt)] : [];
      if (!waitingFor) return ["is about to be sent, or is being sent"];
      return [WAITS[waitingFor] ?? foreign(waitingFor), next, lastError && waitingFor !== "schedule"
        ? [": ", error] : ""];
    }
    case "failed": return lastError ? error : ["was rejected"];
    case "delivered": return ["delivered ", time(settledAt)];
    case "cancelled": return ["cancelled ", time(settledAt)];
    case "dropped": return ["evicted from a full queue ", time(settledAt)];
    case "expired": return ["expired ", time(settledAt), lastError ? [": ", error] : ""];
    default: return [foreign(state)];
  }
}

const OUTCOMES = {
  delivered: ["Delivered", "good"],
  proceed: ["Step done", "good"],
  sorted: ["Answered for each message", "plain"],
  retry: ["No success, sent again", "waiting"],
  "backed-off": ["Lane backs off, sent again", "waiting"],
  suspect: ["Doubtful, sent again alone", "warning"],
  unauthorized: ["Token rejected, sent again with a new one", "waiting"],
  held: ["Upstream held", "warning"],
  parked: ["Waits for a credential", "warning"],
  split: ["Batch rejected, so halved", "plain"],
  rejected: ["Rejected", "bad"],
  cancelled: ["Cut short by a stop", "plain"],
  unsent: ["Settled without a request", "plain"],
  expired: ["Expired", "warning"],
  unknown: ["Outcome unknown", "warning"],
};

export const outcome = (name) => OUTCOMES[name] ?? [name === null ? "Is being sent" : name,
  name === null ? "waiting" : "plain"];

export const PROBES = {
  ok: ["good", "accepts the credentials"],
  unauthorized: ["bad", "rejects the credentials"],
  misconfigured: ["bad", "a setting is missing, or the URL is wrong"],
  failed: ["warning", "responded with another error"],
  unreachable: ["bad", "cannot be reached"],
};

export const LANES = {
  ready: "waits for the upstream",
  "backing-off": "is sent again",
  scheduled: "is scheduled",
  held: "is held",
  parked: "waits for a credential from a caller",
};

export const EVENTS = {
  "message.queued": ["accepted", "waiting", "plus"],
  "batch.sent": ["sent", "plain", "right"],
  "message.retrying": ["retrying", "waiting", "retry"],
  "message.delivered": ["delivered", "good", "check"],
  "message.failed": ["failed", "bad", "ban"],
  "message.dropped": ["dropped", "held", "down"],
  "message.expired": ["expired", "warning", "clock"],
  "message.cancelled": ["cancelled", "plain", "cross"],
  "token.refreshed": ["token refreshed", "good", "lock"],
  "token.failed": ["no token", "bad", "lock"],
  "upstream.down": ["upstream is down", "bad", "cross"],
  "upstream.up": ["upstream is up", "good", "check"],
  "upstream.paused": ["paused", "held", "pause"],
  "upstream.resumed": ["resumed", "good", "play"],
  "flush.finished": ["flush finished", "plain", "right"],
  "configuration.reloaded": ["configuration reloaded", "plain", "retry"],
  "operation.finished": ["operation finished", "plain", "check"],
  gap: ["events are missing", "warning", "alert"],
};

const PATHS = {
  logo: "M3 14V7a5 5 0 0 1 10 0v7M6.5 14V8a1.5 1.5 0 0 1 3 0v6M2 14h4.5M9.5 14H14",
  check: "M3 8.5 6.5 12 13 4.5",
  cross: "M4 4l8 8M12 4l-8 8",
  alert: "M8 2 14.5 13.5h-13ZM8 6.5v3M8 11.6v.1",
  lock: "M4 7.5h8V13H4ZM5.5 7.5V5.5a2.5 2.5 0 0 1 5 0v2",
  wrench: "M9.5 6.5 4 12a1.2 1.2 0 0 0 1.7 1.7L11 8.3a3 3 0 0 0 3-4.3l-2 2-1.7-1.7 2-2a3 3 0 0 0-2.8 4.2Z",
  pause: "M5.5 4v8M10.5 4v8",
  play: "M5 3.5 12 8l-7 4.5Z",
  off: "M8 2.5v5M4.8 4.5a5 5 0 1 0 6.4 0",
  clock: "M8 2.5a5.5 5.5 0 1 0 .01 0M8 5v3.2l2.2 1.3",
  ban: "M8 2.5a5.5 5.5 0 1 0 .01 0M6 6l4 4M10 6l-4 4",
  down: "M8 3v9M4 8.5 8 12.5l4-4",
  right: "M3 8h9M8.5 4.5 12 8l-3.5 3.5",
  chevron: "M6 3.5 10.5 8 6 12.5",
  retry: "M13 8a5 5 0 1 1-1.5-3.6M13 2.5v2.5h-2.5",
  plus: "M8 3v10M3 8h10",
  sun: "M8 5.2a2.8 2.8 0 1 0 .01 0M8 1.5v1.2M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9",
  gear: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11M5 3v3M10.5 6.5v3M7 10v3",
  search: "M7 2.5a4.5 4.5 0 1 0 .01 0M10.3 10.3l3.2 3.2",
  copy: "M5.5 5.5h7.5V13H5.5ZM3 10.5V3h7.5",
  trash: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5 5 13.5h6l.5-9",
  edit: "M3 13l.7-3L10.5 3.2l2.3 2.3L6 12.3Z",
  save: "M3.5 2.5h9v11L8 10.3l-4.5 3.2Z",
  live: "M8 6.2a1.8 1.8 0 1 0 .01 0M4.2 4.2a5.4 5.4 0 0 0 0 7.6M11.8 4.2a5.4 5.4 0 0 1 0 7.6",
};

export const icon = (name) =>
  s("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" },
    s("path", { d: PATHS[name] }));

export const badge = (tone, iconName, text) => h("span", { class: `badge tone-${tone}` }, icon(iconName), text);

export const healthBadge = (health) => badge(HEALTHS[health]?.tone ?? "plain", HEALTHS[health]?.icon ?? "alert",
  foreign(health));

export const stateBadge = (state) => badge(STATES[state]?.tone ?? "plain", STATES[state]?.icon ?? "alert",
  foreign(state));

export const upstreamLink = (name) => h("a", { class: "name", href: address(["upstreams", name]) }, foreign(name));

export const messageLink = (id) => h("a", { class: "id", href: address(["messages", id]) }, foreign(id));

export const countLink = (value, query, props = {}) =>
  (value ? h("a", { href: address(["messages"], query), ...props }, number(value)) : h("span",
    { class: "soft", ...props }, number(value)));

/**
 * A button for something that the gateway does. If the key lacks `scope`, it stays visible and says why it does nothing.
 * `isBusy`: the request has left and was not answered yet.
 */
export function actionButton({ action, label, iconName, scope = "admin", isBusy = false, name, kind = "", onclick,
  ...rest }) {
  const isAllowed = may(scope);
  const missing = `This key lacks the scope ${scope}.`;
  return h("button", {
    type: "button", class: `button ${kind}`, "data-action": action,
      "aria-disabled": isAllowed && !isBusy ? null : "true",
    title: isAllowed ? null : missing, onclick: isAllowed && !isBusy ? onclick : (event) => event.preventDefault(),
      ...rest,
  }, iconName && icon(iconName), isBusy ? h("span", { class: "busy" }, label) : label,
    name && h("span", { class: "hidden" }, " ", name),
  !isAllowed && h("span", { class: "hidden" }, ` (${missing})`));
}

export const button = (label, onclick, { iconName, kind = "", ...rest } = {}) =>
  h("button", { type: "button", class: `button ${kind}`, onclick, ...rest }, iconName && icon(iconName), label);

export const problemBox = (problem, again) =>
  h("div", { class: "problem", role: "alert" },
    h("p", null, icon("alert"), " ", problem.status === 403 ? missingScope(problem) : foreign(problem.message)),
    problem.errors.length > 0 && h("ul", null, problem.errors.slice(0, 10).map(fault)),
    problem.requestId && h("p", { class: "soft small" }, "Request ", h("code", null, foreign(problem.requestId))),
    again && button("Try again", again, { iconName: "retry" }));

const missingScope = (problem) => ["This key may not read this. ", foreign(problem.message)];

export const fault = ({ pointer, parameter, detail }) =>
  h("li", null, (pointer || parameter) && h("code", null, foreign(pointer || parameter)), " ", foreign(detail));

/** The shape of a page that is not there yet. It appears after a moment, so a fast answer never shows it. */
export const skeleton = (rows = 6) =>
  h("div", { class: "skeleton" }, h("p", { class: "hidden" }, "Loading"), Array.from({ length: rows }, () => h("div")));

export const empty = (...text) => h("p", { class: "empty" }, text);

export function loaded(resource, show, rows) {
  if (resource.value !== null) return show(resource.value);
  return resource.problem ? problemBox(resource.problem, () => resource.load()) : skeleton(rows);
}

/** Terms and what they are: `[["Key", "order-17"]]`. Rows without a value are left out. */
export const facts = (rows) =>
  h("dl", { class: "facts" }, rows.filter(([, value]) => value !== null && value !== undefined && value !== false)
    .map(([term, value]) => h("div", null, h("dt", null, term), h("dd", null, value))));

export const field = (label, control, props = {}) => h("label", { class: "field", ...props }, h("span", null, label),
  control);

export const select = (value, options, onchange, props = {}) =>
  h("select", { value, onchange: (event) => onchange(event.target.value), ...props },
    options.map(([name, text]) => h("option", { value: name }, text)));

export const section = (title, ...children) => h("section", null, h("h2", null, title), children);

export const cell = (label, props, ...children) => h("td", { "data-label": label, ...props }, children);

/** A table. A column is `[title, class]`, a row `[props, ...cells]`, whose first cell is its header. */
export const table = (columns, rows) => h("table", { class: "cards panel" },
  h("thead", null, h("tr", null, columns.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
  h("tbody", null, rows.map(([props, head, ...cells]) => h("tr", props, h("th", { scope: "row" }, head),
    cells.map((content, index) => cell(columns[index + 1][0], { class: columns[index + 1][1] }, content))))));

export const notYet = (title) => [h("h1", null, title), data.problem ? problemBox(data.problem, refresh) : skeleton()];

export const upstreamField = (value, onchange) =>
  field("Upstream", select(value ?? "", [["", "All"], ...(data.upstreams ?? []).map(({ name }) => [name, name])],
    onchange));

export const lastError = (error) =>
  (error ? [foreign(error.class), error.status ? ` ${error.status}` : "", ": ", foreign(error.detail, 500), " ",
    h("span", { class: "soft" }, time(error.at))] : "none");

// Dialogs and notices above the page. A dialog is a view that gets the focus, keeps it, and gives it back.

const dialogs = [];
let lastNumber = 0;

/**
 * Opens a modal dialog. `render` describes its content; `attributes` may be a function. One that the user may not dismiss has
 * `mayClose` false. Returns a function that closes it.
 */
export function openDialog({ label, render, attributes = {}, mayClose = true, kind = "" }) {
  const dialog = { key: `dialog-${++lastNumber}`, label, render, attributes, mayClose, kind,
    opener: document.activeElement };
  dialog.close = () => {
    const index = dialogs.indexOf(dialog);
    if (index < 0) return;
    dialogs.splice(index, 1);
    drawNow();
    const opener = dialog.opener?.isConnected && dialog.opener !== document.body
      ? dialog.opener : document.querySelector("main");
    opener?.focus({ preventScroll: true });
  };
  dialogs.push(dialog);
  drawNow();
  return dialog.close;
}

export const hasDialog = () => dialogs.length > 0;

export function closeDialogs() {
  for (const dialog of [...dialogs]) if (dialog.mayClose) dialog.close();
}

export const dialogLayer = () => dialogs.map(({ key, label, render, attributes, mayClose, kind, close }) => {
  const dismiss = (event) => {
    event.preventDefault();
    if (mayClose) close();
  };
  return h("dialog", {
    key, class: kind, "aria-label": label, oncancel: dismiss,
      onclose: (event) => (mayClose ? close() : event.currentTarget.isConnected && event.currentTarget.showModal()),
    onclick: (event) => kind === "finder" && event.target === event.currentTarget && close(),
    ref: (element) => queueMicrotask(() => element.isConnected && element.showModal()),
    ...(typeof attributes === "function" ? attributes() : attributes),
  }, h("div", { class: "dialog-body" }, render(close)));
});

// Notices: what an action did, and what it could not do.

const toasts = [];

/** Shows a notice. A failure stays until it is dismissed. `link` is an address with its text. */
export function toast(text, { isFailure = false, link } = {}) {
  const entry = { key: `toast-${++lastNumber}`, text, isFailure, link };
  toasts.push(entry);
  if (toasts.length > 4) toasts.shift();
  if (!isFailure) setTimeout(() => dismissToast(entry), 8000);
  changed();
}

export const failed = (what, problem) =>
  toast([what, ": ", problem.message, problem.requestId ? ` Request ${problem.requestId}.` : ""].join(""),
    { isFailure: true });

function dismissToast(entry) {
  const index = toasts.indexOf(entry);
  if (index >= 0) toasts.splice(index, 1);
  changed();
}

export const toastLayer = (more) =>
  h("div", { class: "toasts", key: "toasts", role: "status", "aria-live": "polite" }, more,
    toasts.map((entry) => h("div", { class: `toast${entry.isFailure ? " tone-bad" : ""}`, key: entry.key },
      icon(entry.isFailure ? "alert" : "check"), h("span", null, h("bdi", null, entry.text),
        entry.link && [" ", h("a", { href: entry.link[0] }, entry.link[1])]),
      button("Dismiss", () => dismissToast(entry), { kind: "quiet small" }))));

// Operations: the gateway carries out actions on many messages in steps, which go on when the page is closed.

export const VERBS = { retry: ["Retrying", "retried"], cancel: ["Cancelling", "cancelled"],
  purge: ["Removing", "removed"] };

const EVERY = 2000;

const followed = [];

function follow(operation) {
  followed.push(operation);
  setTimeout(() => look(operation), 300);
  changed();
}

async function look(operation) {
  if (!followed.includes(operation)) return;
  if (!document.hidden && !data.needsKey) {
    try {
      Object.assign(operation, await call("GET", `v1/operations/${encodeURIComponent(operation.id)}`));
    } catch (problem) {
      // Operations are kept in memory: after a restart this one has done what it has done.
      if (problem.status === 404) Object.assign(operation, { finishedAt: new Date().toISOString(), isGone: true });
    }
  }
  if (!operation.finishedAt) {
    setTimeout(() => look(operation), EVERY);
  } else {
    refresh();
    operation.after?.();
    if (!operation.skippedCount && !operation.isGone && !operation.error) {
      followed.splice(followed.indexOf(operation), 1);
      toast(`${finished(operation)}.`, { link: [address(["gateway"]), "Operations"] });
    }
  }
  changed();
}

export const finished = ({ action, done, matched, stopped, error }) =>
  `${error ? `Failed, ${error}: ` : stopped ? "Stopped: " : ""}${number(done)} of ${count(matched, "message")} ${VERBS[action]?.[1] ?? "done"}`;

export async function stop(id) {
  try {
    await call("DELETE", `v1/operations/${encodeURIComponent(id)}`);
    toast("The operation stops after its current step.");
  } catch (problem) {
    failed("Stopping failed", problem);
  }
  refresh();
}

export const progress = ({ done, matched }) =>
  h("progress", { max: String(Math.max(1, matched)), value: String(done),
    "aria-label": `${number(done)} of ${number(matched)}` });

export const skippedList = ({ skipped = [], skippedCount = 0 }) => skippedCount > 0 && h("details", null,
  h("summary", null, `${number(skippedCount)} skipped`),
  h("ul", { class: "sample" }, skipped.map(({ id, detail }) => h("li", null, messageLink(id), " ", foreign(detail)))),
  skippedCount > skipped.length && h("p", { class: "soft" }, `The first ${number(skipped.length)} are listed.`));

export const operationLayer = () => followed.map((operation) => h("div",
  { class: "toast", key: `operation-${operation.id}` },
  h("div", { class: "grow" },
    h("b", null, operation.finishedAt ? "" : `${VERBS[operation.action]?.[0] ?? operation.action} `,
      operation.isGone ? "The gateway was restarted; what was done until then is done" : operation.finishedAt
        ? finished(operation) : `${number(operation.done)} of ${number(operation.matched)}`),
    !operation.finishedAt && progress(operation), skippedList(operation)),
  operation.finishedAt
    ? button("Dismiss", () => {
      followed.splice(followed.indexOf(operation), 1);
      changed();
    }, { kind: "quiet small" })
    : actionButton({ action: "stop", label: "Stop", kind: "small", onclick: () => stop(operation.id) })));

// Actions that are on their way, by name and what they concern.
const busy = new Set();

export const isBusy = (...names) => busy.has(names.join(" "));

/** Does something once, however often the button is pressed meanwhile. */
export async function once(names, work) {
  const name = names.join(" ");
  if (busy.has(name)) return;
  busy.add(name);
  changed();
  try {
    await work();
  } finally {
    busy.delete(name);
    changed();
  }
}

const STEERING = {
  pause: { done: (name) => `${name} is paused. It still accepts messages.`, failed: "Pausing failed" },
  resume: { done: (name) => `${name} is resumed.`, failed: "Resuming failed" },
  flush: { done: (name) => `${name}: everything that waits is tried now.`, failed: "Trying now failed" },
};

const steer = (name, action) => once([action, name], async () => {
  try {
    await call("POST", `v1/upstreams/${encodeURIComponent(name)}/${action}`, { patience: 15 });
    const upstream = upstreamNamed(name);
    // What is certain is shown at once; the next poll brings the rest.
    if (upstream && action === "pause") Object.assign(upstream, { health: "paused",
      pausedBy: { key: data.gateway?.key?.name ?? null, at: new Date(serverNow()).toISOString() } });
    toast(STEERING[action].done(name));
  } catch (problem) {
    failed(STEERING[action].failed, problem);
  }
  refresh();
});

export const pauseButton = ({ name, health, endpoints }) => (health === "disabled" ? null
  : health === "paused" || endpoints.some(({ waitingFor }) => waitingFor === "guard")
  ? actionButton({ action: "resume", label: "Resume", name, iconName: "play", isBusy: isBusy("resume", name),
    onclick: () => steer(name, "resume") })
  : actionButton({ action: "pause", label: "Pause", name, iconName: "pause", kind: "quiet",
    isBusy: isBusy("pause", name), onclick: () => steer(name, "pause") }));

export const flushButton = ({ name, health }, kind = "") => health !== "disabled" && health !== "paused"
  && actionButton({ action: "flush", label: "Try now", name, iconName: "right", kind, isBusy: isBusy("flush", name),
    onclick: () => steer(name, "flush") });

const BULK = {
  retry: {
    verb: "Retry", done: "retried", iconName: "retry", states: ["failed", "dropped"],
    consequence: "Each is sent again at its former position in its lane, and its attempts count from 0. What was wrong with a payload is still wrong.",
  },
  cancel: {
    verb: "Cancel", done: "cancelled", iconName: "cross", states: ["queued"], isFinal: true, dismiss: "Keep them",
    consequence: "Cancelled messages are never sent. Those that are being sent now are skipped.",
  },
  purge: {
    verb: "Remove", done: "purged", iconName: "trash", states: ["failed", "dropped", "cancelled", "expired",
      "delivered"], isFinal: true,
    dismiss: "Keep them", consequence: "Removed messages are deleted from the store with their payload. The books still count them.",
  },
};

const TYPED_ABOVE = 100;

/** Filters of a list that requests for many messages understand. */
const FILTERS = ["upstream", "state", "kind", "key", "lane", "createdAfter", "createdBefore", "errorClass", "errorText",
  "group"];

const FILTER_NAMES = { createdAfter: "Accepted from", createdBefore: "Accepted before", errorClass: "Error class",
  errorText: "Error text",
  kind: "Kind", key: "Key", lane: "Lane", state: "State" };

export const actionsFor = (state) => Object.keys(BULK).filter((action) => BULK[action].states.includes(state));

export const bulkLabel = (action) => BULK[action].verb;
export const bulkIcon = (action) => BULK[action].iconName;

/**
 * Opens the preview of an action on messages: on `ids` (each `{id, state}`), or on all that match `filter`. What happens to
 * messages after the preview was made is not part of it. `after` is called when it has begun, and when it has ended.
 */
export function openBulk(action, { ids, filter }, after) {
  const preview = new Preview(action, ids, filter);
  preview.load();
  openDialog({
    label: `${BULK[action].verb} messages`,
    attributes: () => ({ "data-confirm": action, "data-matched": preview.matched ?? null }),
    render: (close) => preview.render(close, after),
  });
}

class Preview {
  matched = null;
  problem = null;
  sample = [];
  typed = "";
  #requests;
  #words;

  constructor(action, ids, filter) {
    this.action = action;
    this.filter = filter;
    this.#words = BULK[action];
    this.settledBefore = new Date(serverNow()).toISOString();
    this.#requests = this.#bodies(ids, filter);
  }

  /** The bodies of the requests: one for each state of chosen messages, or for each upstream. */
  #bodies(ids, filter) {
    const settled = this.action === "cancel" ? {} : { settledBefore: this.settledBefore };
    if (ids) {
      return this.#words.states
        .map((state) => ({ state, ids: ids.filter((message) => message.state === state).map(({ id }) => id),
          ...settled }))
        .filter((body) => body.ids.length);
    }
    const matching = Object.fromEntries(FILTERS.filter((name) => filter[name]).map((name) => [name, filter[name]]));
    const names = matching.upstream ? [matching.upstream]
      : (data.upstreams ?? []).filter((upstream) => counted(upstream, matching.state)).map(({ name }) => name);
    return names.map((upstream) => ({ ...matching, upstream, ...settled }));
  }

  async load() {
    try {
      const counts = await Promise.all(this.#requests.map((body) => this.#send({ ...body, dryRun: true }, {})));
      this.#requests = this.#requests.filter((body, index) => {
        body.count = counts[index][this.#words.done];
        return body.count > 0;
      });
      this.matched = this.#requests.reduce((sum, body) => sum + body.count, 0);
      changed();
      await this.#loadSample();
    } catch (problem) {
      this.problem = problem;
    }
    changed();
  }

  async #loadSample() {
    const [first] = this.#requests;
    if (!first) return;
    if (first.ids) {
      this.sample = await Promise.all(first.ids.slice(0, 3).map((id) => call("GET",
        `v1/messages/${encodeURIComponent(id)}`)));
    } else {
      const { count: _, settledBefore: __, ...query } = first;
      this.sample = (await call("GET", "v1/messages", { query: { ...query, order: "newest", limit: 3 } })).messages;
    }
  }

  #send({ count: _, ...body }, headers) {
    return call("POST", `v1/messages/${this.action}`, { body, headers, patience: 60 });
  }

  confirm(close, after) {
    return once(["bulk", this.action], async () => {
      try {
        // Another try is about the rest.
        while (this.#requests.length) {
          const [body] = this.#requests;
          const answer = await this.#send(body, { Prefer: "respond-async" });
          if (answer.operation) follow({ id: answer.operation, action: this.action, upstream: body.upstream,
            matched: answer.matched, done: 0, after });
          else toast(`${count(answer[this.#words.done], "message")} ${this.#words.done === "purged" ? "removed" : this.#words.done}.`);
          this.#requests.shift();
          this.matched -= body.count;
        }
        after?.();
        close();
      } catch (problem) {
        this.problem = problem;
        changed();
      }
      refresh();
    });
  }

  render(close, after) {
    const { verb, consequence, isFinal, iconName, dismiss = "Not now" } = this.#words;
    const isTyping = isFinal && this.matched > TYPED_ABOVE;
    const isReady = this.matched > 0 && (!isTyping || this.typed.replace(/\D/g, "") === String(this.matched));
    return [
      h("h2", { tabindex: "-1", autofocus: true }, this.matched === null
        ? `${verb}: counting the messages` : `${verb} ${count(this.matched, "message")}?`),
      this.problem && problemBox(this.problem),
      this.matched !== null && this.#facts(),
      this.sample.length > 0 && [h("h3", null, "For example"), h("ul", { class: "sample" },
        this.sample.map((message) => h("li", null, h("code", null, foreign(message.id)), " ",
          message.lastError ? foreign(message.lastError.detail, 140)
          : foreign(message.key ?? `${message.upstream} ${message.kind}`))))],
      this.matched === 0 && h("p", null, "No message matches any more. Nothing is done."),
      this.matched > 0 && h("p", null, consequence),
      isTyping && h("label", { class: "field" }, h("span", null, `Type ${number(this.matched)} to confirm`),
        h("input", { type: "text", inputmode: "numeric", autocomplete: "off", value: this.typed, oninput: (event) => {
          this.typed = event.target.value;
          changed();
        } })),
      h("div", { class: "buttons" },
        button(dismiss, close, { "data-action": "dismiss", kind: "quiet" }),
        this.matched > 0 && actionButton({
          action: "confirm", label: `${verb} ${number(this.matched)}`, iconName, kind: isFinal ? "danger" : "primary",
          isBusy: isBusy("bulk", this.action), onclick: () => isReady && this.confirm(close, after),
            ...(isReady ? {} : { "aria-disabled": "true" }),
        })),
    ];
  }

  #facts() {
    const shown = Object.entries(this.filter ?? {}).filter(([name, value]) => FILTER_NAMES[name] && value)
      .map(([name, value]) => [FILTER_NAMES[name], foreign(value)]);
    const upstreams = [...new Set(this.#requests.map(({ upstream }) => upstream).filter(Boolean))];
    return facts([
      ...upstreams.slice(0, 8).map((name) => {
        const upstream = upstreamNamed(name);
        const part = this.#requests.length > 1 ? this.#requests.find((body) => body.upstream === name).count : null;
        return ["Upstream", [foreign(name), " ", upstream && healthBadge(upstream.health),
          part !== null && ` ${number(part)}`,
          upstream && upstream.health !== "up" && h("span", { class: "soft" }, " It ", condition(upstream), ".")]];
      }),
      upstreams.length > 8 && ["And", `${upstreams.length - 8} more upstreams`],
      ...shown,
      this.action !== "cancel" && ["As of", h("time", null, exact(Date.parse(this.settledBefore)))],
    ].filter(Boolean));
  }
}

/** Queues one message again, without a dialog: that can be taken back by cancelling it. */
export const retryOne = (id) => once(["retry", id], async () => {
  try {
    await call("POST", `v1/messages/${encodeURIComponent(id)}/retry`, { patience: 15 });
    toast(`${id} is queued again.`);
  } catch (problem) {
    failed("The retry failed", problem);
  }
  refresh();
});

// The key dialog, the settings, and the list of shortcuts.

let isAsking = false;

/** Asks for a key. `wasRejected`: the gateway does not accept the one that was sent. What was read before is not shown. */
export function askForKey(wasRejected) {
  data.needsKey = true;
  forget();
  followed.length = toasts.length = 0;
  useKey(null);
  if (isAsking) return changed();
  closeDialogs();
  isAsking = true;
  let key = "";
  let keep = false;
  const close = openDialog({
    label: "API key",
    mayClose: false,
    attributes: { "data-view": "key" },
    render: () => h("form", { onsubmit: (event) => {
      event.preventDefault();
      if (!key.trim()) return;
      isAsking = false;
      useKey(key.trim(), keep);
      key = "";
      data.needsKey = false;
      dispatchEvent(new Event("key"));
      close();
      refresh();
    } },
    h("h2", null, "This gateway requires an API key"),
    wasRejected && h("p", { class: "notice tone-bad", role: "alert" },
      "The gateway does not accept this key. It may be wrong or expired."),
    h("p", { class: "soft" }, "It needs the scope read, and admin for actions. It stays in the memory of this page."),
    field("Key", h("input", { type: "password", autocomplete: "off", autofocus: true, spellcheck: "false",
      required: true, oninput: (event) => (key = event.target.value) })),
    h("label", { class: "check-field" },
      h("input", { type: "checkbox", onchange: (event) => (keep = event.target.checked) }),
      " Keep it until this tab is closed"),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "button primary" }, "Use this key"))),
  });
}

export function openSettings() {
  openDialog({
    label: "Settings",
    render: (close) => [
      h("h2", { tabindex: "-1", autofocus: true }, "Settings"),
      field("Times", select(settings.times, [["relative", "Relative"], ["local", "Local time"], ["utc", "UTC"]],
        (times) => set({ times }))),
      field("Theme", select(settings.theme, [["system", "As the system"], ["light", "Light"], ["dark", "Dark"]],
        (theme) => set({ theme }))),
      h("label", { class: "check-field" },
        h("input", { type: "checkbox", checked: settings.shortcuts,
        onchange: (event) => set({ shortcuts: event.target.checked }) }),
        " Single keys are shortcuts"),
      data.gateway && facts([
        ["Key", data.gateway.key ? [foreign(data.gateway.key.name),
          h("span", { class: "soft" }, ` ${data.gateway.key.scopes.join(", ")}`)] : "none is required"],
      ]),
      h("div", { class: "buttons" },
        hasKey() && button("Forget the key", () => {
          close();
          askForKey(false);
        }, { kind: "quiet" }),
        button("Close", close, { "data-action": "dismiss" })),
    ],
  });
}

function set(changes) {
  change(changes);
  changed();
}

const SHORTCUTS = [
  ["/ or Ctrl K", "find an id, a key, an upstream, a view, an action"],
  ["g o, g m, g f, g l, g g", "overview, messages, failures, live, gateway"],
  ["j, k", "the next and the previous row"],
  ["Enter", "open the row"],
  ["x", "choose the row"],
  ["r", "retry what is chosen, or the row"],
  [".", "hold all updates, or go on"],
  ["t", "the next theme"],
  ["?", "this list"],
];

export function openShortcuts() {
  openDialog({
    label: "Shortcuts",
    render: (close) => [
      h("h2", { tabindex: "-1", autofocus: true }, "Shortcuts"),
      facts(SHORTCUTS.map(([keys, what]) => [h("kbd", null, keys), what])),
      h("p", { class: "soft small" },
        "Single keys can be switched off in Settings."),
      h("div", { class: "buttons" }, button("Close", close, { "data-action": "dismiss" })),
    ],
  });
}

// One field that finds everything: an id, a key, an upstream, a view, a saved view, an action.

const MOST_FOUND = 12;

export const VIEWS = [
  ["overview", "Overview", "#/"],
  ["messages", "Messages", "#/messages"],
  ["failures", "Failures", "#/failures"],
  ["live", "Live", "#/live"],
  ["gateway", "Gateway", "#/gateway"],
];

export function openFinder() {
  let text = "";
  let selected = 0;
  let close = () => {};
  const choose = (entry) => {
    close();
    entry.run();
  };
  const keydown = (event) => {
    const found = find(text);
    if (event.key === "ArrowDown") selected = Math.min(found.length - 1, selected + 1);
    else if (event.key === "ArrowUp") selected = Math.max(0, selected - 1);
    else if (event.key === "Enter" && found[selected]) choose(found[selected]);
    else return;
    event.preventDefault();
    changed();
  };
  close = openDialog({
    label: "Find",
    kind: "finder",
    render: () => {
      const found = find(text);
      return [
        h("div", { class: "finder-field" }, icon("search"), h("input", {
          type: "text", role: "combobox", "aria-label": "Find an id, a key, an upstream, a view, or an action",
            "aria-expanded": "true", "aria-controls": "found",
          "aria-autocomplete": "list", "aria-activedescendant": found.length ? `found-${selected}` : null,
            autofocus: true, autocomplete: "off", spellcheck: "false",
          placeholder: "An id, a key, an upstream, “pause …”", onkeydown: keydown,
          oninput: (event) => {
            text = event.target.value;
            selected = 0;
            changed();
          },
        })),
        h("ul", { id: "found", role: "listbox", "aria-label": "What was found", class: "found" },
          found.map((entry, index) => h("li", {
          id: `found-${index}`, role: "option", "aria-selected": String(index === selected),
            onclick: () => choose(entry),
        }, icon(entry.iconName), h("span", { class: "grow" }, foreign(entry.label, 100)),
          h("span", { class: "soft small" }, entry.what)))),
        !found.length && h("p", { class: "empty" }, "Nothing is called that."),
      ];
    },
  });
}

function find(text) {
  const wanted = text.trim();
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  // What begins with a word that was typed comes first.
  const begins = ({ label }) => words.filter((word) => !` ${label}`.toLowerCase().includes(` ${word}`)).length;
  const matches = entries().filter(({ label,
    what }) => words.every((word) => `${label} ${what}`.toLowerCase().includes(word)))
    .sort((a, b) => begins(a) - begins(b));
  const open = (target) => () => go(target);
  if (MESSAGE_ID.test(wanted)) matches.unshift({ label: wanted, what: "message", iconName: "right",
    run: open(address(["messages", wanted])) });
  if (wanted) matches.push({ label: wanted, what: "messages with this key", iconName: "search",
    run: open(address(["messages"], { key: wanted })) });
  return matches.slice(0, MOST_FOUND);
}

function entries() {
  const open = (target) => () => go(target);
  const upstreams = data.upstreams ?? [];
  const steering = may("admin") ? upstreams.flatMap(({ name, health }) => (health === "disabled" ? [] : [
    health === "paused"
      ? { label: `resume ${name}`, what: "action", iconName: "play", run: () => steer(name, "resume") }
      : { label: `pause ${name}`, what: "action", iconName: "pause", run: () => steer(name, "pause") },
    { label: `try ${name} now`, what: "action", iconName: "right", run: () => steer(name, "flush") },
  ])) : [];
  return [
    ...VIEWS.map(([, label, target]) => ({ label, what: "view", iconName: "right", run: open(target) })),
    ...upstreams.map(({ name }) => ({ label: name, what: "upstream", iconName: "right",
      run: open(address(["upstreams", name])) })),
    ...settings.views.map((view) => ({ label: view.name, what: "saved view", iconName: "save",
      run: open(view.address) })),
    ...steering,
    { label: data.isHeld ? "go on with updates" : "hold all updates", what: "action",
      iconName: data.isHeld ? "play" : "pause", run: () => hold() },
    { label: `theme: ${settings.theme}`, what: "change", iconName: "sun", run: () => next("theme") },
    { label: `times: ${settings.times}`, what: "change", iconName: "clock", run: () => next("times") },
  ];
}
