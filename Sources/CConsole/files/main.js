// The page: its frame, which view is open, and keys.

import {
  applyTheme, changed, current, data, dateAndClock, drawNow, drawWith, duration, exact, foreign, go, hold, limitedFor, next, number,
  onUnauthorized, settings, start, watch,
} from "./core.js";
import { h, redraw } from "./dom.js";
import { messagesView, messageView } from "./messages.js";
import {
  askForKey, closeDialogs, dialogLayer, empty, failedOf, hasDialog, icon, openFinder, openSettings, openShortcuts, operationLayer, toastLayer,
  verdict, VIEWS,
} from "./parts.js";
import { failuresView, gatewayView, liveView, overview, upstreamView } from "./views.js";

let view;
let openAddress;

function viewFor({ path, query }) {
  const [first, second] = path;
  switch (first) {
    case undefined: return overview();
    case "upstreams": return second ? upstreamView({ name: second }, query) : overview();
    case "messages": return second ? messageView({ id: second }) : messagesView({}, query);
    case "failures": return failuresView({}, query);
    case "live": return liveView(query);
    case "gateway": return gatewayView();
    default: return { name: "overview", title: () => "No such view", tasks: [],
      render: () => [h("h1", null, "No such view"), empty("There is no view at this address. ",
      h("a", { href: "#/" }, "Overview"))] };
  }
}

function open() {
  view?.close?.();
  view = viewFor(current());
  openAddress = location.hash;
  watch(view.tasks);
}

function addressChanged() {
  if (location.hash === openAddress) return;
  const before = view.name;
  closeDialogs();
  open();
  drawNow();
  // A new view begins at its top, and a screen reader reads its heading. A filter of the same view keeps the focus.
  if (before !== view.name) {
    scrollTo(0, 0);
    document.querySelector("main")?.focus({ preventScroll: true });
  }
}

function draw() {
  const state = verdict(data.upstreams, data.gateway, data.isLost);
  document.title = `${view.name === "overview" ? state.text : `${view.title()} · ${state.text}`} · Postern`;
  const viewState = view.state?.();
  redraw(document.body, [
    h("a", { class: "skip", href: "#main", key: "skip", onclick: (event) => {
      event.preventDefault();
      document.querySelector("main").focus();
    } }, "Skip to the content"),
    header(),
    h("div", { class: "banners", key: "banners" }, banners()),
    h("main", { key: "main", id: "main", tabindex: "-1", "data-view": view.name, "data-state": viewState,
      class: data.isLost ? "stale" : null },
      data.needsKey ? h("h1", null, "This gateway requires an API key") : rendered()),
    footer(),
    toastLayer(operationLayer()),
    dialogLayer(),
  ]);
}

/** The view; if it cannot be drawn, the rest of the page still can. */
function rendered() {
  try {
    return view.render();
  } catch (error) {
    console.error(error);
    return [h("h1", null, "This view cannot be drawn"), h("p", { class: "problem" }, foreign(error.message))];
  }
}

function header() {
  const failed = failedOf(data.upstreams ?? []);
  const isOpen = (name) => view.name === name || (view.name === "message"
    && name === "messages") || (view.name === "upstream" && name === "overview");
  return h("header", { key: "header" }, h("div", { class: "header" },
    h("a", { class: "brand", href: "#/" }, icon("logo"), "Postern"),
    h("nav", { class: "main-nav", "aria-label": "Views" }, VIEWS.map(([name, label, target]) =>
      h("a", { href: target, "aria-current": isOpen(name) ? "page" : null }, icon(NAV_ICONS[name]),
        h("span", null, label),
        name === "failures" && failed > 0 && h("span", { class: "pill" }, number(failed),
          h("span", { class: "hidden" }, " failed"))))),
    h("div", { class: "tools" },
      h("button", { type: "button", class: "tool", "aria-pressed": String(data.isHeld), title: "Hold all updates, or go on (.)",
        onclick: () => hold() },
        h("span", { class: `dot tone-${status()[0]}` }), h("span", { class: "tool-label" }, status()[1])),
      tool("search", "Find (/)", openFinder), tool("sun", `Theme: ${settings.theme}`, () => {
        next("theme");
        changed();
      }), tool("gear", "Settings", openSettings),
        h("button", { type: "button", class: "tool wide-only", "aria-label": "Shortcuts", title: "Shortcuts (?)",
        onclick: openShortcuts }, "?"))));
}

const NAV_ICONS = { overview: "logo", messages: "copy", failures: "ban", live: "live", gateway: "gear" };

const tool = (iconName, label, onclick) =>
  h("button", { type: "button", class: "tool", "aria-label": label, title: label, onclick }, icon(iconName));

function status() {
  if (data.isHeld) return ["held", "Held"];
  if (limitedFor() > 0) return ["warning", `Waits ${duration(limitedFor())}`];
  if (data.isLost) return ["bad", "Lost"];
  if (!data.at) return ["plain", "Loading"];
  return ["good", data.interval > 2 ? `Every ${Math.round(data.interval)} s` : "Live"];
}

function banners() {
  const { gateway, isLost, at, isHeld, problem } = data;
  return [
    isLost && banner("lost", "bad", h("b", null, "The gateway has not responded for more than 6 s. "),
      at ? ["These are the figures of ", h("time", { title: exact(at) }, dateAndClock(at)), ". "] : "",
        problem ? [foreign(problem.message), " "] : "", "It is tried again every 2 s."),
    gateway && !gateway.ready && banner("unready", "bad", h("b", null, "The gateway accepts no messages: "),
      gateway.reasons.map((text, index) => [index > 0 && "; ", foreign(text)]),
      `. Callers get ${gateway.reasons.some((text) => /full/i.test(text)) ? "507" : "503"} and have to send their messages again. Deliveries go on as far as they can.`),
    limitedFor() > 0 && banner("limited", "warning",
      `The key is over its limit. Requests go on in ${duration(limitedFor())}.`),
    isHeld && h("p", { class: "banner tone-held", key: "held" }, icon("pause"),
      h("span", null, "Updates are held. These are the figures of ", dateAndClock(at), ". "),
      h("button", { type: "button", class: "button small", onclick: () => hold(false) }, "Go on")),
    gateway?.simulated && h("p", { class: "banner plain", key: "simulated" },
      "Simulated upstreams: nothing leaves this machine"),
  ];
}

const banner = (name, tone, ...text) =>
  h("div", { class: `banner tone-${tone}`, role: "alert", "data-banner": name, key: name }, icon("alert"),
    h("span", null, text));

function footer() {
  return h("footer", { key: "footer", class: "soft small" },
    data.gateway && h("span", null, "Postern ", foreign(data.gateway.version)),
    h("button", { type: "button", class: "link", onclick: () => {
      next("times");
      changed();
    } }, `Times: ${{ relative: "relative", local: "local", utc: "UTC" }[settings.times]}`),
    h("button", { type: "button", class: "link", onclick: openShortcuts }, "Shortcuts"))
}

const TARGETS = { o: "#/", m: "#/messages", f: "#/failures", l: "#/live", g: "#/gateway" };

/** Milliseconds within which the second key of a pair follows. */
const PAIR = 1500;
let prefixAt = 0;

const isTyping = (target) => target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]") !== null;

function keyPressed(event) {
  if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    if (!hasDialog()) openFinder();
    return;
  }
  if (!settings.shortcuts || event.ctrlKey || event.metaKey || event.altKey || hasDialog() || isTyping(event.target)) return;
  const { key } = event;
  if (Date.now() - prefixAt < PAIR) {
    prefixAt = 0;
    if (TARGETS[key]) {
      event.preventDefault();
      go(TARGETS[key]);
    }
    return;
  }
  const actions = {
    g: () => (prefixAt = Date.now()),
    "/": openFinder,
    ".": () => hold(),
    t: () => next("theme"),
    "?": openShortcuts,
    j: () => moveRow(1),
    k: () => moveRow(-1),
    x: () => view.key?.("x", focusedRow()?.dataset.message),
    r: () => view.key?.("r", focusedRow()?.dataset.message),
  };
  if (!actions[key]) return;
  event.preventDefault();
  actions[key]();
  changed();
}

const ROWS = "[data-message], [data-upstream], [data-group]";
const focusedRow = () => document.activeElement?.closest(ROWS);

/** The focus moves to the link of a row, so that Enter opens it. */
function moveRow(step) {
  const rows = [...document.querySelectorAll(`main :is(${ROWS})`)];
  if (!rows.length) return;
  const at = rows.indexOf(focusedRow());
  const row = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step))];
  row.querySelector("a[href]")?.focus();
  row.scrollIntoView({ block: "nearest" });
}

drawWith(draw);
onUnauthorized(askForKey);
applyTheme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
addEventListener("hashchange", addressChanged);
addEventListener("key", open);
addEventListener("keydown", keyPressed);
// What a view keeps for itself is changed by its buttons and fields; the page follows.
for (const type of ["click", "change"]) addEventListener(type, changed);
open();
drawNow();
start();
