// Parts that several views use, and their icons.

import { h, s } from "./dom.js";
import { foreign, number, time } from "./format.js";
import { may } from "./live.js";
import { address } from "./router.js";
import { HEALTHS, STATES } from "./words.js";

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
  link: "M7 9.5 9.5 7M6 7.5 4.2 9.3a2 2 0 0 0 2.8 2.8L8.8 10.3M10 8.5l1.8-1.8A2 2 0 0 0 9 3.9L7.2 5.7",
  save: "M3.5 2.5h9v11L8 10.3l-4.5 3.2Z",
  live: "M8 6.2a1.8 1.8 0 1 0 .01 0M4.2 4.2a5.4 5.4 0 0 0 0 7.6M11.8 4.2a5.4 5.4 0 0 1 0 7.6",
};

export const icon = (name) =>
  s("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" }, s("path", { d: PATHS[name] }));

export const badge = (tone, iconName, text) => h("span", { class: `badge tone-${tone}` }, icon(iconName), text);

export const healthBadge = (health) => badge(HEALTHS[health]?.tone ?? "plain", HEALTHS[health]?.icon ?? "alert", foreign(health));

export const stateBadge = (state) => badge(STATES[state]?.tone ?? "plain", STATES[state]?.icon ?? "alert", foreign(state));

export const upstreamLink = (name) => h("a", { class: "name", href: address(["upstreams", name]) }, foreign(name));

export const messageLink = (id) => h("a", { class: "id", href: address(["messages", id]) }, foreign(id));

/** A figure that leads to the list that it counts. */
export const countLink = (value, query, props = {}) =>
  (value ? h("a", { href: address(["messages"], query), ...props }, number(value)) : h("span", { class: "soft", ...props }, number(value)));

/**
 * A button for something that the gateway does. If the key lacks `scope`, it stays visible and says why it does nothing.
 * `isBusy`: the request has left and was not answered yet.
 */
export function actionButton({ action, label, iconName, scope = "admin", isBusy = false, name, kind = "", onclick, ...rest }) {
  const isAllowed = may(scope);
  const missing = `This key lacks the scope ${scope}.`;
  return h("button", {
    type: "button", class: `button ${kind}`, "data-action": action, "aria-disabled": isAllowed && !isBusy ? null : "true",
    title: isAllowed ? null : missing, onclick: isAllowed && !isBusy ? onclick : (event) => event.preventDefault(), ...rest,
  }, iconName && icon(iconName), isBusy ? h("span", { class: "busy" }, label) : label, name && h("span", { class: "hidden" }, " ", name),
  !isAllowed && h("span", { class: "hidden" }, ` (${missing})`));
}

export const button = (label, onclick, { iconName, kind = "", ...rest } = {}) =>
  h("button", { type: "button", class: `button ${kind}`, onclick, ...rest }, iconName && icon(iconName), label);

/** The error of a request, where its data would be. */
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

/** Says what would be here, and the next step. */
export const empty = (...text) => h("p", { class: "empty" }, text);

/** What a resource brought, its error, or the shape of what is to come. */
export function loaded(resource, show, rows) {
  if (resource.value !== null) return show(resource.value);
  return resource.problem ? problemBox(resource.problem, () => resource.load()) : skeleton(rows);
}

/** Terms and what they are: `[["Key", "order-17"]]`. Rows without a value are left out. */
export const facts = (rows) =>
  h("dl", { class: "facts" }, rows.filter(([, value]) => value !== null && value !== undefined && value !== false)
    .map(([term, value]) => h("div", null, h("dt", null, term), h("dd", null, value))));

export const field = (label, control, props = {}) => h("label", { class: "field", ...props }, h("span", null, label), control);

export const select = (value, options, onchange, props = {}) =>
  h("select", { value, onchange: (event) => onchange(event.target.value), ...props },
    options.map(([name, text]) => h("option", { value: name }, text)));

export const section = (title, ...children) => h("section", null, h("h2", null, title), children);

/** A column's cell that also says what it is where the table is shown as cards. */
export const cell = (label, props, ...children) => h("td", { "data-label": label, ...props }, children);

export const lastError = (error) =>
  (error ? [foreign(error.class), error.status ? ` ${error.status}` : "", ": ", foreign(error.detail, 500), " ", h("span", { class: "soft" }, time(error.at))] : "none");
