// Parts that several views use.

import { h } from "./dom.js";
import { foreign, number, time } from "./format.js";
import { icon } from "./icons.js";
import { may } from "./live.js";
import { address } from "./router.js";
import { HEALTHS, STATES } from "./words.js";

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
