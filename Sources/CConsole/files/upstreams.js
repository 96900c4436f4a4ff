// The overview: is all well, and if not, what is wrong, why, and what can be done. And one upstream: health and why, charts,
// books, what waits, what failed, its last requests.

import { flushButton, isBusy, once, pauseButton } from "./actions.js";
import { call } from "./api.js";
import { chart, durationLevels, spark, wholeLevels } from "./charts.js";
import { failed } from "./dialogs.js";
import { h } from "./dom.js";
import { eventRow, NOTABLE } from "./events.js";
import { groupCard, loadGroups } from "./failures.js";
import { count, duration, foreign, milliseconds, number, parseInput, rate, size, time, timeInput, until } from "./format.js";
import { average, data, historyEnd, refresh, Resource, series, STEP, total, upstreamNamed } from "./live.js";
import {
  actionButton, badge, button, cell, countLink, empty, facts, field, healthBadge, icon, lastError, loaded, problemBox, section,
  select, skeleton, upstreamLink,
} from "./parts.js";
import { address, go, replace } from "./router.js";
import {
  backlog, bySeverity, canTry, condition, counted, HEALTHS, isBehind, LANES, outcome, PROBES, reason, STATES, verdict, waiting,
  WAITS,
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

const RANGES = { 60: "10 min", 360: "1 h" };

export function upstreamView({ name }, { createdAfter, createdBefore }) {
  const path = `v1/upstreams/${encodeURIComponent(name)}`;
  const failures = new Resource(() => loadGroups(name));
  const lanes = new Resource(() => call("GET", `${path}/lanes`, { query: { limit: 50 } }));
  const requests = new Resource(() => call("GET", `${path}/batches`, { query: { limit: 20 } }));
  let points = 60;
  let probe = null;

  const test = () => once(["probe", name], async () => {
    try {
      probe = await call("POST", `${path}/probe`, { patience: 15 });
    } catch (problem) {
      failed("The test failed", problem);
    }
  });

  return {
    name: "upstream",
    title: () => name,
    tasks: [failures, lanes, requests].map((resource) => ({ every: 30, load: () => resource.load() })),
    render() {
      const upstream = upstreamNamed(name);
      const heading = h("h1", null, foreign(name));
      if (!upstream) {
        return [heading, data.problem && !data.upstreams ? problemBox(data.problem, refresh) : !data.upstreams ? skeleton()
          : empty("There is no upstream of this name, or this key may not see it. ", h("a", { href: "#/" }, "All upstreams"))];
      }
      const shown = { points, onPoints: (value) => (points = value) };
      return [
        h("nav", { class: "trail", "aria-label": "Breadcrumb" }, h("a", { href: "#/" }, "Overview"), icon("chevron"), foreign(name)),
        h("div", { class: "row" },
          h("div", { class: "row" }, heading, healthBadge(upstream.health), upstream.type !== name && h("span", { class: "soft" }, upstream.type)),
          h("div", { class: "buttons" },
            actionButton({ action: "probe", label: "Test credentials", name, iconName: "lock", kind: "quiet", isBusy: isBusy("probe", name), onclick: test }),
            (canTry(upstream) || upstream.queued > 0) && flushButton(upstream), pauseButton(upstream))),
        stateSentence(upstream),
        probe && probeResult(probe, () => (probe = null)),
        upstream.endpoints.length > 0 && endpoints(upstream),
        charts(upstream, shown, createdAfter, createdBefore),
        books([upstream], name),
        h("div", { class: "columns" },
          section("Details", facts([
            ["Type", upstream.type],
            ["Kinds", upstream.kinds.map((kind, index) => [index > 0 && ", ", h("a", { href: address(["messages"], { upstream: name, kind }) }, foreign(kind))])],
            ["Waiting", `${count(upstream.queued, "message")}, ${size(upstream.queuedBytes)}`],
            ["Kept", upstream.kept !== undefined && keptText(upstream.kept)],
            ["In flight", count(upstream.inFlight, "request")],
            ["Circuit", [upstream.circuit.state, upstream.circuit.reopensAt && [", next probe ", until(upstream.circuit.reopensAt)]]],
            ["Token", upstream.token ? [upstream.token.valid ? "valid" : "not valid", upstream.token.expiresAt && [", expires ", until(upstream.token.expiresAt)]] : "not required"],
            ["Last delivery", time(upstream.lastSuccessAt)],
            ["Last error", lastError(upstream.lastError)],
          ])),
          section("Lanes that wait", loaded(lanes, (value) => laneTable(value, name), 3))),
        section("Why messages failed", loaded(failures, (groups) => (groups.length
          ? h("div", { class: "groups" }, groups.slice(0, 10).map(groupCard))
          : empty("This upstream has not rejected a message that is still kept.")), 2)),
        section("Last requests", loaded(requests, (value) => (value.batches?.length ? requestTable(value.batches)
          : empty("No request was sent to this upstream that is still on record.")), 4)),
      ];
    },
  };
}

const keptText = (kept) => (typeof kept === "number" ? `${count(kept, "settled message")}`
  : Object.entries(kept).filter(([, value]) => value > 0).map(([state, value]) => `${number(value)} ${state}`).join(", ") || "no settled message");

function stateSentence(upstream) {
  const { health } = upstream;
  if (health === "up" && !isBehind(upstream)) return h("p", { class: "soft" }, reason(upstream));
  const isBlameless = health !== "degraded" && health !== "up" && upstream.queued > 0;
  return h("p", { class: `notice tone-${HEALTHS[health]?.tone === "good" ? "warning" : HEALTHS[health]?.tone ?? "plain"}` },
    icon(HEALTHS[health]?.icon ?? "alert"),
    h("span", null, reason(upstream),
      isBlameless && " None of the messages that wait is blamed: they keep their attempts."));
}

function probeResult({ outcome: found, status, durationMs, detail }, dismiss) {
  const [tone, words] = PROBES[found] ?? ["plain", found];
  return h("p", { class: `notice tone-${tone}`, role: "status" }, icon(tone === "good" ? "check" : "alert"),
    h("span", null, h("b", null, "Test: the upstream ", words, ". "), foreign(detail, 500), " ",
      h("span", { class: "soft" }, status ? `HTTP ${status}, ` : "", milliseconds(durationMs)), " ", button("Dismiss", dismiss, { kind: "quiet small" })));
}

const endpoints = ({ endpoints: waiting }) => section("Endpoints that wait alone",
  h("table", { class: "cards panel" },
    h("thead", null, h("tr", null, ["Endpoint", "Waits for", "Next try", "Last error"].map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", null, waiting.map((endpoint) => h("tr", { key: endpoint.name },
      h("th", { scope: "row" }, foreign(endpoint.name)),
      cell("Waits for", {}, badge("warning", endpoint.waitingFor === "credentials" ? "lock" : "clock", endpoint.waitingFor)),
      cell("Next try", {}, endpoint.reopensAt ? until(endpoint.reopensAt) : "now"),
      cell("Last error", {}, lastError(endpoint.lastError)))))));

function charts(upstream, { points, onPoints }, createdAfter, createdBefore) {
  const { name } = upstream;
  const end = historyEnd();
  const figure = (series_, divisor = 1) => series(name, series_, points).map((value) => value / divisor);
  const range = createdAfter && createdBefore ? [Date.parse(createdAfter), Date.parse(createdBefore)] : null;
  const onRange = (from, to) =>
    replace(address(["upstreams", name], { createdAfter: new Date(from).toISOString(), createdBefore: new Date(to).toISOString() }));
  const common = { end, step: STEP, range, onRange };
  return h("section", null,
    h("div", { class: "row" }, h("h2", null, "History"),
      h("div", { class: "buttons" }, rangeForm(name, createdAfter, createdBefore),
        field("Range", select(String(points), Object.entries(RANGES), (value) => {
          onPoints(Number(value));
          refresh();
        }), { class: "field inline" }))),
    end === undefined && h("p", { class: "soft" }, "History begins when the gateway starts; nothing is known yet."),
    range && h("p", { class: "notice tone-waiting" }, icon("clock"), h("span", null, "From ", time(createdAfter), " to ", time(createdBefore), ": ",
      h("a", { href: address(["messages"], { upstream: name, createdAfter, createdBefore }) }, "messages accepted then"), " · ",
      h("a", { href: address(["failures"], { upstream: name, createdAfter, createdBefore }) }, "failures among them"), " · ",
      h("a", { href: address(["upstreams", name]) }, "clear the range"))),
    h("div", { class: "charts" },
      chart({ id: "accepted", title: "Accepted and delivered", format: (value) => `${rate(value)}/s`, ...common, series: [
        { label: "accepted", tone: "waiting", isArea: true, values: figure("accepted", STEP) },
        { label: "delivered", tone: "good", values: figure("delivered", STEP), isDashed: true }] }),
      chart({ id: "queued", title: "Waiting", format: (value) => number(Math.round(value)), levels: wholeLevels, ...common, series: [
        { label: "messages", tone: "warning", isArea: true, values: figure("queued") }] }),
      chart({ id: "oldestSeconds", title: "How long messages wait", format: shortDuration, levels: durationLevels, ...common, series: [
        { label: "oldest due", tone: "warning", isArea: true, values: figure("oldestSeconds") },
        { label: "p99 until delivery", tone: "held", values: figure("waitP99Ms", 1000), isDashed: true }] }),
      chart({ id: "requestP50Ms", title: "How long requests take", format: milliseconds, ...common, series: [
        { label: "p50", tone: "waiting", values: figure("requestP50Ms") },
        { label: "p99", tone: "held", values: figure("requestP99Ms"), isDashed: true }] })),
    failedRequests(figure));
}

const shortDuration = (seconds) => (seconds > 0 && seconds < 10 ? `${Number(seconds.toFixed(2))} s` : duration(seconds));

function failedRequests(figure) {
  const sum = (values) => values.reduce((all, value) => all + (Number.isNaN(value) ? 0 : value), 0);
  const all = sum(figure("requests"));
  const bad = sum(figure("requestsFailed"));
  return h("p", { class: "soft small" }, `In this time: ${count(all, "request")}, ${bad ? `${number(bad)} of them failed` : "none of them failed"}.`);
}

/** A range can be typed as well as dragged. */
function rangeForm(name, createdAfter, createdBefore) {
  const changed = (event) => {
    const form = event.currentTarget.form;
    const [from, to] = [form.elements.from.value, form.elements.to.value].map(parseInput);
    if (from && to && from < to) go(address(["upstreams", name], { createdAfter: from, createdBefore: to }));
  };
  return h("form", { class: "buttons", onsubmit: (event) => event.preventDefault() },
    field("From", timeInput("from", createdAfter, changed), { class: "field inline" }),
    field("To", timeInput("to", createdBefore, changed), { class: "field inline" }));
}

function laneTable({ lanes, next }, name) {
  if (!lanes.length) return empty("No lane waits.");
  return [
    h("table", { class: "cards panel" },
      h("thead", null, h("tr", null, ["Lane", "Why", "Since", "Until", "Queued"].map((title, index) =>
        h("th", { scope: "col", class: index === 4 ? "right" : null }, title)))),
      h("tbody", null, lanes.map((lane) => h("tr", { key: lane.lane, "data-lane": lane.lane },
        h("th", { scope: "row" }, lane.key === null ? h("span", { class: "soft mono" }, foreign(lane.lane)) : foreign(lane.key, 60)),
        cell("Why", {}, h("span", null, LANES[lane.state] ?? foreign(lane.state), lane.state !== "ready" || !WAITS[lane.reason] ? "" : `: ${WAITS[lane.reason]}`)),
        cell("Since", {}, time(lane.since)),
        cell("Until", {}, lane.until ? until(lane.until) : "an event"),
        cell("Queued", { class: "right" }, h("a", { href: address(["messages"], { upstream: name, state: "queued", lane: lane.key ?? lane.lane }) },
          `${number(lane.queued)}${lane.isCountComplete === false ? "+" : ""}`)))))),
    next && h("p", { class: "soft" }, `The first ${lanes.length} lanes are shown; postern outbox lanes lists all.`),
  ];
}

const requestTable = (batches) => h("table", { class: "cards panel" },
  h("thead", null, h("tr", null, ["When", "Batch", "Messages", "Status", "Took", "Outcome", "Detail"].map((title, index) =>
    h("th", { scope: "col", class: index === 2 || index === 4 ? "right" : null }, title)))),
  h("tbody", null, batches.map((batch) => {
    const [words, tone] = outcome(batch.outcome);
    return h("tr", { key: batch.batch },
      h("th", { scope: "row" }, time(batch.startedAt)),
      cell("Batch", { class: "mono" }, foreign(batch.batch)),
      cell("Messages", { class: "right" }, number(batch.messages)),
      cell("Status", {}, batch.status ?? "–"),
      cell("Took", { class: "right" }, batch.endedAt ? milliseconds(Date.parse(batch.endedAt) - Date.parse(batch.startedAt)) : "in flight"),
      cell("Outcome", {}, h("span", { class: `tone-${tone}` }, words)),
      cell("Detail", { class: "wide small" }, batch.detail ? foreign(batch.detail, 200) : ""));
  })));
