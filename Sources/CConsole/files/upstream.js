// One upstream: health and why, charts, books, what waits, what failed, its last requests.

import { flushButton, isBusy, once, pauseButton } from "./actions.js";
import { call } from "./api.js";
import { chart } from "./charts.js";
import { failed } from "./dialogs.js";
import { h } from "./dom.js";
import { count, duration, foreign, milliseconds, number, rate, size, time, until } from "./format.js";
import { groupCard, loadGroups } from "./failures.js";
import { icon } from "./icons.js";
import { data, historyEnd, refresh, Resource, series, STEP, upstreamNamed } from "./live.js";
import { books } from "./overview.js";
import { actionButton, badge, button, cell, empty, facts, field, healthBadge, lastError, loaded, problemBox, section, select, skeleton } from "./parts.js";
import { address, go, replace } from "./router.js";
import { parseInput, timeInput } from "./timeinput.js";
import { canTry, HEALTHS, isBehind, LANES, outcome, PROBES, reason, WAITS } from "./words.js";

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
          : empty("No request was sent to this upstream that is still on record."))), 4),
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
      chart({ id: "queued", title: "Waiting", format: (value) => number(Math.round(value)), ...common, series: [
        { label: "messages", tone: "warning", isArea: true, values: figure("queued") }] }),
      chart({ id: "oldestSeconds", title: "How long messages wait", format: shortDuration, ...common, series: [
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
