// The overview: is all well, and if not, what is wrong, why, and what can be done.

import { flushButton, pauseButton } from "./actions.js";
import { call } from "./api.js";
import { spark } from "./charts.js";
import { h } from "./dom.js";
import { count, duration, milliseconds, number, rate } from "./format.js";
import { eventRow, NOTABLE } from "./events.js";
import { icon } from "./icons.js";
import { average, data, refresh, Resource, series, STEP, total } from "./live.js";
import { cell, countLink, empty, healthBadge, problemBox, section, skeleton, upstreamLink } from "./parts.js";
import { address } from "./router.js";
import {
  backlog, bySeverity, canTry, condition, counted, HEALTHS, isBehind, reason, STATES, verdict, waiting,
} from "./words.js";

/** Ten minutes. */
const POINTS = 60;

/** Points over which a rate is averaged. */
const RECENT = 3;

const EVENTS_SHOWN = 6;

export function overview() {
  let last;
  const events = new Resource(async () => {
    const answer = await call("GET", "v1/stream", { query: { after: last, limit: 100, type: NOTABLE } });
    const arrived = answer.events.toReversed();
    if (last !== undefined) for (const event of arrived) event.seenAt = Date.now();
    const known = last === undefined ? [] : events.value ?? [];
    last = answer.last ?? last;
    return [...arrived, ...known].slice(0, EVENTS_SHOWN);
  });
  return {
    name: "overview",
    title: () => verdict(data.upstreams, data.gateway, data.isLost).text,
    tasks: [{ every: 10, load: () => events.load() }],
    render() {
      const { upstreams, gateway, problem } = data;
      const { tone, text } = verdict(upstreams, gateway, data.isLost);
      const heading = h("h1", { class: "verdict" }, h("span", { class: `square tone-${tone}` }), text);
      if (!upstreams) return [heading, problem && problem.status !== 401 ? problemBox(problem, refresh) : skeleton()];
      const sorted = [...upstreams].sort(bySeverity);
      return [
        heading, troubles(sorted), figures(upstreams, gateway), books(upstreams),
        section("Upstreams", sorted.length ? table(sorted) : empty("No upstream is configured, so nothing can be accepted. Add one below ", h("code", null, "upstreams"), " in the configuration and reload.")),
        h("section", null,
          h("div", { class: "row" }, h("h2", null, "What happened"), h("a", { class: "more", href: address(["live"]) }, "Everything", icon("chevron"))),
          events.value?.length ? h("ol", { class: "events panel" }, events.value.map(eventRow))
            : events.problem ? problemBox(events.problem, () => events.load()) : empty("Nothing but deliveries has happened since the gateway started to remember.")),
      ];
    },
  };
}

/** One sentence for each trouble: who, what, how many wait, since when. */
function troubles(upstreams) {
  const lines = upstreams
    .filter((upstream) => upstream.health !== "up" || isBehind(upstream))
    .map((upstream) => h("li", { class: `tone-${HEALTHS[upstream.health]?.tone ?? "plain"}`, key: upstream.name },
      icon(HEALTHS[upstream.health]?.icon ?? "alert"),
      h("span", null, upstreamLink(upstream.name), " ", condition(upstream), backlog(upstream), ".")));
  const failing = upstreams.filter((upstream) => counted(upstream, "failed") > 0);
  const failed = failing.reduce((sum, upstream) => sum + counted(upstream, "failed"), 0);
  if (failed) {
    lines.push(h("li", { class: "tone-bad", key: "failed" }, icon("ban"),
      h("span", null, h("b", null, count(failed, "message")), " rejected by ",
        failing.slice(0, 4).map(({ name }, index) => [index > 0 && ", ", upstreamLink(name)]),
        failing.length > 4 && ` and ${failing.length - 4} more`, ". ", h("a", { href: address(["failures"]) }, "See why and retry"))));
  }
  return lines.length > 0 && h("ul", { class: "troubles" }, lines);
}

function figures(upstreams, gateway) {
  const accepted = total("accepted", POINTS);
  const delivered = total("delivered", POINTS);
  const queued = upstreams.reduce((sum, upstream) => sum + upstream.queued, 0);
  const failed = upstreams.reduce((sum, upstream) => sum + counted(upstream, "failed"), 0);
  const oldest = upstreams.reduce((worst, upstream) => (upstream.oldestQueuedSeconds > (worst?.oldestQueuedSeconds ?? 0) ? upstream : worst), null);
  const perSecond = (values) => average(values.slice(-RECENT)) / STEP;
  const rateOf = (values) => (Number.isNaN(perSecond(values)) ? "–" : [rate(perSecond(values)), h("small", null, "/s")]);
  const figure = (title, value, below, props = {}) =>
    h("div", { class: "figure", ...props }, h("dt", null, title), h("dd", null, h("span", { class: "value" }, value), below));
  return h("dl", { class: "figures-row panel" },
    figure("Accepted", rateOf(accepted), spark([{ values: accepted, tone: "waiting", isArea: true }])),
    figure("Delivered", rateOf(delivered), spark([{ values: delivered, tone: "good", isArea: true }])),
    figure("Waiting", h("a", { href: address(["messages"], { state: "queued" }) }, number(queued)),
      spark([{ values: total("queued", POINTS), tone: "warning", isArea: true }])),
    figure("Oldest due", oldest && oldest.oldestQueuedSeconds >= 1 ? duration(oldest.oldestQueuedSeconds) : "none",
      h("span", { class: "below" }, oldest && oldest.oldestQueuedSeconds >= 1 ? upstreamLink(oldest.name) : "nothing is late")),
    figure("Failed", h("a", { href: address(["failures"]) }, number(failed)),
      h("span", { class: failed ? "below tone-bad" : "below" }, failed ? "to look at" : "nothing to look at")),
    figure("Commit p99", milliseconds(gateway?.commit?.p99Ms ?? null), h("span", { class: "below" }, "on disk before 202")));
}

const PARTS = ["delivered", "queued", "failed", "cancelled", "dropped", "expired"];

/** The books: accepted = the sum of the states, always. */
export function books(upstreams, upstreamName) {
  if (!upstreams.every((upstream) => upstream.counts)) return null;
  const sum = (state) => upstreams.reduce((all, upstream) => all + upstream.counts[state], 0);
  const accepted = sum("accepted");
  const parts = PARTS.map((state) => ({ state, value: sum(state) }));
  const isBalanced = parts.reduce((all, { value }) => all + value, 0) === accepted;
  return h("section", { class: "books", "aria-label": "The books" },
    h("p", null,
      h("span", { class: "part", "data-count": "accepted", "data-value": accepted },
        h("a", { href: address(["messages"], { upstream: upstreamName }) }, h("b", null, number(accepted)), " accepted")),
      parts.map(({ state, value }, index) => [
        h("span", { class: "operator" }, index === 0 ? "=" : "+"),
        h("span", { class: value ? "part" : "part soft", "data-count": state, "data-value": value },
          h("span", { class: `square tone-${STATES[state].tone}` }),
          h("a", { href: address(["messages"], { state, upstream: upstreamName }) }, h("b", null, number(value)), ` ${state}`)),
      ]),
      h("span", { class: `balance tone-${isBalanced ? "good" : "bad"}` }, icon(isBalanced ? "check" : "alert"),
        isBalanced ? "balances" : "does not balance: run postern outbox audit")),
    h("div", { class: "bar", "aria-hidden": "true" }, parts.filter(({ value }) => value > 0).map(({ state, value }) =>
      h("span", { class: `tone-${STATES[state].tone}`, key: state, style: { "flex-grow": String(value) } }))));
}

function table(upstreams) {
  return h("table", { class: "cards panel" },
    h("thead", null, h("tr", null,
      ["Upstream", "State", "Waiting", "Oldest", "Failed", "In and out, 10 min", "Actions"].map((title, index) =>
        h("th", { scope: "col", class: index >= 2 && index <= 4 ? "right" : null }, index === 6 ? h("span", { class: "hidden" }, title) : title)))),
    h("tbody", null, upstreams.map(row)));
}

function row(upstream) {
  const { name, type, health, queued, oldestQueuedSeconds } = upstream;
  const accepted = series(name, "accepted", POINTS);
  const delivered = series(name, "delivered", POINTS);
  const recent = (values) => {
    const value = average(values.slice(-RECENT)) / STEP;
    return Number.isNaN(value) ? "–" : rate(value);
  };
  return h("tr", { key: name, "data-upstream": name, "data-health": health },
    h("th", { scope: "row" }, upstreamLink(name), type !== name && h("span", { class: "soft small block" }, type)),
    cell("State", { class: "wide" }, healthBadge(health), h("span", { class: "reason soft small" }, reason(upstream))),
    cell("Waiting", { class: "right" }, countLink(queued, { state: "queued", upstream: name }), h("span", { class: "soft small block" }, waiting(upstream))),
    cell("Oldest", { class: "right" }, oldestQueuedSeconds >= 1 ? duration(oldestQueuedSeconds) : h("span", { class: "soft" }, "–")),
    cell("Failed", { class: "right" }, counted(upstream, "failed")
      ? h("a", { class: "tone-bad strong", href: address(["failures"], { upstream: name }) }, number(counted(upstream, "failed")))
      : h("span", { class: "soft" }, "0")),
    cell("In and out, 10 min", { class: "sparks" },
      spark([{ values: accepted, tone: "waiting", isArea: true }, { values: delivered, tone: "good" }]),
      h("span", { class: "soft small block" }, `${recent(accepted)} in · ${recent(delivered)} out /s`)),
    cell("", { class: "actions" }, canTry(upstream) && flushButton(upstream), pauseButton(upstream)));
}

