// What an operator can do: steer an upstream, and retry, cancel or remove messages after an exact preview. The gateway carries
// that out in steps, as an operation that goes on when the page is closed.

import { call, serverNow } from "./api.js";
import { failed, openDialog, toast } from "./dialogs.js";
import { h } from "./dom.js";
import { count, exact, foreign, number } from "./format.js";
import { data, refresh, upstreamNamed } from "./live.js";
import { actionButton, button, facts, healthBadge, messageLink, problemBox } from "./parts.js";
import { address } from "./router.js";
import { condition, counted } from "./words.js";

export const VERBS = { retry: ["Retrying", "retried"], cancel: ["Cancelling", "cancelled"], purge: ["Removing", "removed"] };

/** Milliseconds between two looks at an operation in progress. */
const EVERY = 2000;

// Those that were started here.
const followed = [];

/** Shows the progress of an operation until it is finished. */
export function follow(operation) {
  followed.push(operation);
  setTimeout(() => look(operation), 300);
  redraw();
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
    if (!operation.skippedCount && !operation.isGone) {
      followed.splice(followed.indexOf(operation), 1);
      toast(`${finished(operation)}.`, { link: [address(["gateway"]), "Operations"] });
    }
  }
  redraw();
}

export const finished = ({ action, done, matched, stopped }) =>
  `${stopped ? "Stopped: " : ""}${number(done)} of ${count(matched, "message")} ${VERBS[action]?.[1] ?? "done"}`;

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
  h("progress", { max: String(Math.max(1, matched)), value: String(done), "aria-label": `${number(done)} of ${number(matched)}` });

/** Messages that an operation skipped, and why. */
export const skippedList = ({ skipped = [], skippedCount = 0 }) => skippedCount > 0 && h("details", null,
  h("summary", null, `${number(skippedCount)} skipped`),
  h("ul", { class: "sample" }, skipped.map(({ id, detail }) => h("li", null, messageLink(id), " ", foreign(detail)))),
  skippedCount > skipped.length && h("p", { class: "soft" }, `The first ${number(skipped.length)} are listed.`));

export const operationLayer = () => followed.map((operation) => h("div", { class: "toast", key: `operation-${operation.id}` },
  h("div", { class: "grow" },
    h("b", null, operation.finishedAt ? "" : `${VERBS[operation.action]?.[0] ?? operation.action} `,
      operation.isGone ? "The gateway was restarted; what was done until then is done" : operation.finishedAt ? finished(operation) : `${number(operation.done)} of ${number(operation.matched)}`),
    !operation.finishedAt && progress(operation), skippedList(operation)),
  operation.finishedAt
    ? button("Dismiss", () => {
      followed.splice(followed.indexOf(operation), 1);
      redraw();
    }, { kind: "quiet small" })
    : actionButton({ action: "stop", label: "Stop", kind: "small", onclick: () => stop(operation.id) })));

let redraw = () => {};

export function setUpActions(changed) {
  redraw = changed;
}

// Actions that are on their way, by name and what they concern.
const busy = new Set();

export const isBusy = (...names) => busy.has(names.join(" "));

/** Does something once, however often the button is pressed meanwhile. */
export async function once(names, work) {
  const name = names.join(" ");
  if (busy.has(name)) return;
  busy.add(name);
  redraw();
  try {
    await work();
  } finally {
    busy.delete(name);
    redraw();
  }
}

// Steering.

const STEERING = {
  pause: { done: (name) => `${name} is paused. It still accepts messages.`, failed: "Pausing failed" },
  resume: { done: (name) => `${name} is resumed.`, failed: "Resuming failed" },
  flush: { done: (name) => `${name}: everything that waits is tried now.`, failed: "Trying now failed" },
};

export const steer = (name, action) => once([action, name], async () => {
  try {
    await call("POST", `v1/upstreams/${encodeURIComponent(name)}/${action}`, { patience: 15 });
    const upstream = upstreamNamed(name);
    // What is certain is shown at once; the next poll brings the rest.
    if (upstream && action === "pause") Object.assign(upstream, { health: "paused", pausedBy: { key: data.gateway?.key?.name ?? null, at: new Date(serverNow()).toISOString() } });
    toast(STEERING[action].done(name));
  } catch (problem) {
    failed(STEERING[action].failed, problem);
  }
  refresh();
});

/** Pause or Resume, and Try now where it can help. */
export const pauseButton = ({ name, health }) => (health === "disabled" ? null : health === "paused"
  ? actionButton({ action: "resume", label: "Resume", name, iconName: "play", isBusy: isBusy("resume", name), onclick: () => steer(name, "resume") })
  : actionButton({ action: "pause", label: "Pause", name, iconName: "pause", kind: "quiet", isBusy: isBusy("pause", name), onclick: () => steer(name, "pause") }));

export const flushButton = ({ name, health }, kind = "") => health !== "disabled" && health !== "paused"
  && actionButton({ action: "flush", label: "Try now", name, iconName: "right", kind, isBusy: isBusy("flush", name), onclick: () => steer(name, "flush") });

// Actions on messages.

const BULK = {
  retry: {
    verb: "Retry", done: "retried", iconName: "retry", states: ["failed", "dropped"],
    consequence: "Each message is sent again at its former position in its lane, and its attempts count from 0. What was wrong with a payload is still wrong with it.",
  },
  cancel: {
    verb: "Cancel", done: "cancelled", iconName: "cross", states: ["queued"], isFinal: true, dismiss: "Keep them",
    consequence: "Cancelled messages are never sent, and cannot be queued again. Those that are being sent now are skipped.",
  },
  purge: {
    verb: "Remove", done: "purged", iconName: "trash", states: ["failed", "dropped", "cancelled", "expired", "delivered"], isFinal: true,
    dismiss: "Keep them", consequence: "Removed messages are deleted from the store with their payload and cannot be read or retried. The books still count them.",
  },
};

/** Above this, the count has to be typed for what cannot be taken back. */
const TYPED_ABOVE = 100;

/** Filters of a list that requests for many messages understand. */
const FILTERS = ["upstream", "state", "kind", "key", "lane", "createdAfter", "createdBefore", "errorClass", "errorText", "group"];

const FILTER_NAMES = { createdAfter: "Accepted from", createdBefore: "Accepted before", errorClass: "Error class", errorText: "Error text",
  kind: "Kind", key: "Key", lane: "Lane", state: "State" };

/** The actions that messages in a state allow. */
export const actionsFor = (state) => Object.keys(BULK).filter((action) => BULK[action].states.includes(state));

export const bulkLabel = (action) => BULK[action].verb;
export const bulkIcon = (action) => BULK[action].iconName;

/**
 * Opens the preview of an action on messages: on `ids` (each `{id, state}`), or on all that match `filter`. What happens to
 * messages after the preview was made is not part of it.
 */
export function openBulk(action, { ids, filter }) {
  const preview = new Preview(action, ids, filter);
  preview.load();
  openDialog({
    label: `${BULK[action].verb} messages`,
    attributes: () => ({ "data-confirm": action, "data-matched": preview.matched ?? null }),
    render: (close) => preview.render(close),
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
        .map((state) => ({ state, ids: ids.filter((message) => message.state === state).map(({ id }) => id), ...settled }))
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
      redraw();
      await this.#loadSample();
    } catch (problem) {
      this.problem = problem;
    }
    redraw();
  }

  async #loadSample() {
    const [first] = this.#requests;
    if (!first) return;
    if (first.ids) {
      this.sample = await Promise.all(first.ids.slice(0, 3).map((id) => call("GET", `v1/messages/${encodeURIComponent(id)}`)));
    } else {
      const { count: _, settledBefore: __, ...query } = first;
      this.sample = (await call("GET", "v1/messages", { query: { ...query, order: "newest", limit: 3 } })).messages;
    }
  }

  #send({ count: _, ...body }, headers) {
    return call("POST", `v1/messages/${this.action}`, { body, headers, patience: 60 });
  }

  confirm(close) {
    return once(["bulk", this.action], async () => {
      try {
        for (const body of this.#requests) {
          const answer = await this.#send(body, { Prefer: "respond-async" });
          if (answer.operation) follow({ id: answer.operation, action: this.action, upstream: body.upstream, matched: answer.matched, done: 0 });
          else toast(`${count(answer[this.#words.done], "message")} ${this.#words.done === "purged" ? "removed" : this.#words.done}.`);
        }
        close();
      } catch (problem) {
        this.problem = problem;
        redraw();
      }
      refresh();
    });
  }

  render(close) {
    const { verb, consequence, isFinal, iconName, dismiss = "Not now" } = this.#words;
    const isTyping = isFinal && this.matched > TYPED_ABOVE;
    const isReady = this.matched > 0 && (!isTyping || this.typed.replace(/\D/g, "") === String(this.matched));
    return [
      h("h2", { tabindex: "-1", autofocus: true }, this.matched === null ? `${verb}: counting the messages` : `${verb} ${count(this.matched, "message")}?`),
      this.problem && problemBox(this.problem),
      this.matched !== null && this.#facts(),
      this.sample.length > 0 && [h("h3", null, "For example"), h("ul", { class: "sample" },
        this.sample.map((message) => h("li", null, h("code", null, foreign(message.id)), " ", message.lastError ? foreign(message.lastError.detail, 140)
          : foreign(message.key ?? `${message.upstream} ${message.kind}`))))],
      this.matched === 0 && h("p", null, "No message matches any more. Nothing is done."),
      this.matched > 0 && h("p", null, consequence),
      isTyping && h("label", { class: "field" }, h("span", null, `Type ${number(this.matched)} to confirm`),
        h("input", { type: "text", inputmode: "numeric", autocomplete: "off", value: this.typed, oninput: (event) => {
          this.typed = event.target.value;
          redraw();
        } })),
      h("div", { class: "buttons" },
        button(dismiss, close, { "data-action": "dismiss", kind: "quiet" }),
        this.matched > 0 && actionButton({
          action: "confirm", label: `${verb} ${number(this.matched)}`, iconName, kind: isFinal ? "danger" : "primary",
          isBusy: isBusy("bulk", this.action), onclick: () => isReady && this.confirm(close), ...(isReady ? {} : { "aria-disabled": "true" }),
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
        return ["Upstream", [foreign(name), " ", upstream && healthBadge(upstream.health), part !== null && ` ${number(part)}`,
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
