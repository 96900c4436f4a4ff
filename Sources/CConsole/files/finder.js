// One field that finds everything: an id, a key, an upstream, a view, a saved view, an action.

import { steer } from "./actions.js";
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { foreign } from "./format.js";
import { icon } from "./parts.js";
import { data, hold, may } from "./live.js";
import { MESSAGE_ID } from "./messages.js";
import { address, go } from "./router.js";
import { next, settings } from "./settings.js";

const MOST_FOUND = 12;

export const VIEWS = [
  ["overview", "Overview", "#/"],
  ["messages", "Messages", "#/messages"],
  ["failures", "Failures", "#/failures"],
  ["live", "Live", "#/live"],
  ["gateway", "Gateway", "#/gateway"],
];

let redraw = () => {};

export function setUpFinder(changed) {
  redraw = changed;
}

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
    redraw();
  };
  close = openDialog({
    label: "Find",
    kind: "finder",
    render: () => {
      const found = find(text);
      return [
        h("div", { class: "finder-field" }, icon("search"), h("input", {
          type: "text", role: "combobox", "aria-label": "Find an id, a key, an upstream, a view, or an action", "aria-expanded": "true", "aria-controls": "found",
          "aria-autocomplete": "list", "aria-activedescendant": found.length ? `found-${selected}` : null, autofocus: true, autocomplete: "off", spellcheck: "false",
          placeholder: "An id, a key, an upstream, “pause …”", onkeydown: keydown,
          oninput: (event) => {
            text = event.target.value;
            selected = 0;
            redraw();
          },
        })),
        h("ul", { id: "found", role: "listbox", "aria-label": "What was found", class: "found" }, found.map((entry, index) => h("li", {
          id: `found-${index}`, role: "option", "aria-selected": String(index === selected), onclick: () => choose(entry),
        }, icon(entry.iconName), h("span", { class: "grow" }, foreign(entry.label, 100)), h("span", { class: "soft small" }, entry.what)))),
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
  const matches = entries().filter(({ label, what }) => words.every((word) => `${label} ${what}`.toLowerCase().includes(word)))
    .sort((a, b) => begins(a) - begins(b));
  const open = (target) => () => go(target);
  if (MESSAGE_ID.test(wanted)) matches.unshift({ label: wanted, what: "message", iconName: "right", run: open(address(["messages", wanted])) });
  if (wanted) matches.push({ label: wanted, what: "messages with this key", iconName: "search", run: open(address(["messages"], { key: wanted })) });
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
    ...upstreams.map(({ name }) => ({ label: name, what: "upstream", iconName: "right", run: open(address(["upstreams", name])) })),
    ...settings.views.map((view) => ({ label: view.name, what: "saved view", iconName: "save", run: open(view.address) })),
    ...steering,
    { label: data.isHeld ? "go on with updates" : "hold all updates", what: "action", iconName: data.isHeld ? "play" : "pause", run: () => hold() },
    { label: `theme: ${settings.theme}`, what: "change", iconName: "sun", run: () => next("theme") },
    { label: `times: ${settings.times}`, what: "change", iconName: "clock", run: () => next("times") },
  ];
}
