// Operations on many messages that the gateway carries out in steps. They go on when the page is closed; Stop ends them.

import { call } from "./api.js";
import { failed, toast } from "./dialogs.js";
import { h } from "./dom.js";
import { count, foreign, number } from "./format.js";
import { data, refresh } from "./live.js";
import { actionButton, button, messageLink } from "./parts.js";
import { address } from "./router.js";

export const VERBS = { retry: ["Retrying", "retried"], cancel: ["Cancelling", "cancelled"], purge: ["Removing", "removed"] };

/** Milliseconds between two looks at an operation in progress. */
const EVERY = 2000;

let redraw = () => {};
// Those that were started here.
const followed = [];

export function setUpOperations(changed) {
  redraw = changed;
}

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
