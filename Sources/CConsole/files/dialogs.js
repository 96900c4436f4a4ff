// Dialogs and notices above the page. A dialog is a view that gets the focus, keeps it, and gives it back.

import { h } from "./dom.js";
import { button, icon } from "./parts.js";

let redraw = () => {};

export function setUpDialogs(changed) {
  redraw = changed;
}

// The last one is on top.
const dialogs = [];
let lastNumber = 0;

/**
 * Opens a modal dialog. `render` describes its content; `attributes` may be a function. One that the user may not dismiss has
 * `mayClose` false. Returns a function that closes it.
 */
export function openDialog({ label, render, attributes = {}, mayClose = true, kind = "" }) {
  const dialog = { key: `dialog-${++lastNumber}`, label, render, attributes, mayClose, kind, opener: document.activeElement };
  dialog.close = () => {
    const index = dialogs.indexOf(dialog);
    if (index < 0) return;
    dialogs.splice(index, 1);
    redraw.now();
    const opener = dialog.opener?.isConnected && dialog.opener !== document.body ? dialog.opener : document.querySelector("main");
    opener?.focus({ preventScroll: true });
  };
  dialogs.push(dialog);
  redraw.now();
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
    key, class: kind, "aria-label": label, oncancel: dismiss, onclose: (event) => (mayClose ? close() : event.currentTarget.isConnected && event.currentTarget.showModal()),
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
  redraw();
}

/** Shows why an action failed. */
export const failed = (what, problem) =>
  toast([what, ": ", problem.message, problem.requestId ? ` Request ${problem.requestId}.` : ""].join(""), { isFailure: true });

function dismissToast(entry) {
  const index = toasts.indexOf(entry);
  if (index >= 0) toasts.splice(index, 1);
  redraw();
}

export const toastLayer = (more) =>
  h("div", { class: "toasts", key: "toasts", role: "status", "aria-live": "polite" }, more,
    toasts.map((entry) => h("div", { class: `toast${entry.isFailure ? " tone-bad" : ""}`, key: entry.key },
      icon(entry.isFailure ? "alert" : "check"), h("span", null, h("bdi", null, entry.text), entry.link && [" ", h("a", { href: entry.link[0] }, entry.link[1])]),
      button("Dismiss", () => dismissToast(entry), { kind: "quiet small" }))));
