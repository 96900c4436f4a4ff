// The key dialog, the settings, and the list of shortcuts.

import { hasKey, useKey } from "./api.js";
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { foreign, number } from "./format.js";
import { data, forget, refresh } from "./live.js";
import { button, facts, field, select } from "./parts.js";
import { change, settings } from "./settings.js";

let redraw = () => {};
let isAsking = false;

export function setUpAccess(changed) {
  redraw = changed;
}

/** Asks for a key. `wasRejected`: the gateway does not accept the one that was sent. What was read before is not shown. */
export function askForKey(wasRejected) {
  data.needsKey = true;
  forget();
  useKey(null);
  if (isAsking) return redraw();
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
      close();
      redraw.reopen();
      refresh();
    } },
    h("h2", null, "This gateway requires an API key"),
    wasRejected && h("p", { class: "notice tone-bad", role: "alert" }, "The gateway does not accept this key. It may be wrong, or it has expired or was removed."),
    h("p", { class: "soft" }, "The key needs the scope read, and admin for actions. It is kept in the memory of this page and is sent to this gateway only."),
    field("Key", h("input", { type: "password", autocomplete: "off", autofocus: true, spellcheck: "false", required: true, oninput: (event) => (key = event.target.value) })),
    h("label", { class: "check-field" }, h("input", { type: "checkbox", onchange: (event) => (keep = event.target.checked) }), " Keep it until this tab is closed"),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "button primary" }, "Use this key"))),
  });
}

export function forgetKey() {
  askForKey(false);
}

export function openSettings() {
  openDialog({
    label: "Settings",
    render: (close) => [
      h("h2", { tabindex: "-1", autofocus: true }, "Settings"),
      field("Times", select(settings.times, [["relative", "Relative"], ["local", "Local time"], ["utc", "UTC"]], (times) => set({ times }))),
      field("Theme", select(settings.theme, [["system", "As the system"], ["light", "Light"], ["dark", "Dark"]], (theme) => set({ theme }))),
      h("label", { class: "check-field" }, h("input", { type: "checkbox", checked: settings.shortcuts, onchange: (event) => set({ shortcuts: event.target.checked }) }),
        " Single keys are shortcuts"),
      data.gateway && facts([
        ["Key", data.gateway.key ? [foreign(data.gateway.key.name), h("span", { class: "soft" }, ` ${data.gateway.key.scopes.join(", ")}`)] : "none is required"],
        ["Updates", data.interval > 2 ? `every ${number(Math.round(data.interval))} s, because answers are slow` : "every 2 s"],
      ]),
      h("p", { class: "soft small" }, "Kept in this browser. The key is not."),
      h("div", { class: "buttons" },
        hasKey() && button("Forget the key", () => {
          close();
          forgetKey();
        }, { kind: "quiet" }),
        button("Close", close, { "data-action": "dismiss" })),
    ],
  });
}

function set(changes) {
  change(changes);
  redraw();
}

export const SHORTCUTS = [
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
      h("p", { class: "soft small" }, settings.shortcuts ? "Single keys can be switched off in Settings." : "Single keys are switched off in Settings."),
      h("div", { class: "buttons" }, button("Close", close, { "data-action": "dismiss" })),
    ],
  });
}
