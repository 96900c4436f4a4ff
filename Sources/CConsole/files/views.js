// The views of upstreams, failures, events, and the gateway.

import { bars, chart, durationLevels, spark, wholeLevels } from "./charts.js";
import {
  address, age, average, call, clock, count, data, dateAndClock, duration, exact, foreign, go, historyEnd, hold, limitedFor, may, milliseconds,
  number, parseInput, rate, refresh, replace, Resource, series, serverNow, size, STEP, time, timeInput, total, until, upstreamNamed,
} from "./core.js";
import { h } from "./dom.js";
import {
  actionButton, backlog, badge, button, bySeverity, canTry, condition, counted, countLink, empty, EVENTS, facts, failed, failedOf, field,
  finished, flushButton, healthBadge, HEALTHS, icon, isBehind, isBusy, LANES, lastError, loaded, messageLink, notYet, once, openBulk, outcome,
  pauseButton, PROBES, problemBox, progress, reason, section, select, skeleton, skippedList, STATES, stop, table, upstreamField, upstreamLink,
  VERBS, verdict, waiting, WAITS,
} from "./parts.js";

// The overview, and one upstream.

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
      const { upstreams, gateway } = data;
      const { tone, text } = verdict(upstreams, gateway, data.isLost);
      const heading = h("h1", { class: "verdict" }, h("span", { class: `square tone-${tone}` }), text);
      if (!upstreams) return notYet(text);
      const sorted = [...upstreams].sort(bySeverity);
      return [
        heading, troubles(sorted), figures(upstreams, gateway), books(upstreams),
        section("Upstreams", sorted.length
          ? upstreamTable(sorted) : empty("No upstream is configured, so nothing can be accepted. Add one below ",
          h("code", null, "upstreams"), " in the configuration and reload.")),
        h("section", null,
          h("div", { class: "row" }, h("h2", null, "What happened"),
            h("a", { class: "more", href: address(["live"]) }, "Everything", icon("chevron"))),
          events.value?.length ? h("ol", { class: "events panel" }, events.value.map(eventRow))
            : events.problem ? problemBox(events.problem,
              () => events.load()) : empty("Nothing but deliveries has happened.")),
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
  const failing = upstreams.filter(({ kept }) => kept.failed);
  const failed = failedOf(upstreams);
  if (failed) {
    lines.push(h("li", { class: "tone-bad", key: "failed" }, icon("ban"),
      h("span", null, h("b", null, count(failed, "message")), " rejected by ",
        failing.slice(0, 4).map(({ name }, index) => [index > 0 && ", ", upstreamLink(name)]),
        failing.length > 4 && ` and ${failing.length - 4} more`, ". ",
          h("a", { href: address(["failures"]) }, "See why and retry"))));
  }
  return lines.length > 0 && h("ul", { class: "troubles" }, lines);
}

function recentRate(values) {
  const value = average(values.slice(-RECENT)) / STEP;
  return Number.isNaN(value) ? "–" : rate(value);
}

function figures(upstreams, gateway) {
  const accepted = total("accepted", POINTS);
  const delivered = total("delivered", POINTS);
  const queued = upstreams.reduce((sum, upstream) => sum + upstream.queued, 0);
  const failed = failedOf(upstreams);
  const oldest = upstreams.reduce((worst, upstream) => (upstream.oldestQueuedSeconds > (worst?.oldestQueuedSeconds ?? 0)
    ? upstream : worst), null);
  const rateOf = (values) => [recentRate(values), h("small", null, "/s")];
  const figure = (title, value, below, props = {}) =>
    h("div", { class: "figure", ...props }, h("dt", null, title), h("dd", null, h("span", { class: "value" }, value),
      below));
  return h("dl", { class: "figures-row panel" },
    figure("Accepted", rateOf(accepted), spark([{ values: accepted, tone: "waiting", isArea: true }])),
    figure("Delivered", rateOf(delivered), spark([{ values: delivered, tone: "good", isArea: true }])),
    figure("Waiting", h("a", { href: address(["messages"], { state: "queued" }) }, number(queued)),
      spark([{ values: total("queued", POINTS), tone: "warning", isArea: true }])),
    figure("Oldest due", oldest && oldest.oldestQueuedSeconds >= 1 ? duration(oldest.oldestQueuedSeconds) : "none",
      h("span", { class: "below" }, oldest && oldest.oldestQueuedSeconds >= 1
        ? upstreamLink(oldest.name) : "on time")),
    figure("Failed", h("a", { href: address(["failures"]) }, number(failed)),
      h("span", { class: failed ? "below tone-bad" : "below" }, failed && "to look at")),
    figure("Commit p99", milliseconds(gateway?.commit?.p99Ms ?? null),
      h("span", { class: "below" }, "on disk before 202")));
}

const PARTS = ["delivered", "queued", "failed", "cancelled", "dropped", "expired"];

/** The books: accepted = the sum of the states, always. */
function books(upstreams, upstreamName) {
  if (!upstreams.every((upstream) => upstream.counts)) return null;
  const sum = (state) => upstreams.reduce((all, upstream) => all + upstream.counts[state], 0);
  const accepted = sum("accepted");
  const parts = PARTS.map((state) => ({ state, value: sum(state) }));
  const isBalanced = parts.reduce((all, { value }) => all + value, 0) === accepted;
  return h("section", { class: "books", "aria-label": "The books" },
    h("p", null,
      h("span", { class: "part", "data-count": "accepted", "data-value": accepted },
        h("a", { href: address(["messages"], { upstream: upstreamName }) }, h("b", null, number(accepted)),
          " accepted")),
      parts.map(({ state, value }, index) => [
        h("span", { class: "operator" }, index === 0 ? "=" : "+"),
        h("span", { class: value ? "part" : "part soft", "data-count": state, "data-value": value },
          h("span", { class: `square tone-${STATES[state].tone}` }),
          h("a", { href: address(["messages"], { state, upstream: upstreamName }) }, h("b", null, number(value)),
            ` ${state}`)),
      ]),
      h("span", { class: `balance tone-${isBalanced ? "good" : "bad"}` }, icon(isBalanced ? "check" : "alert"),
        isBalanced ? "balances" : "does not balance: run postern outbox audit")),
    h("div", { class: "bar", "aria-hidden": "true" }, parts.filter(({ value }) => value > 0).map(({ state, value }) =>
      h("span", { class: `tone-${STATES[state].tone}`, key: state, style: { "flex-grow": String(value) } }))));
}

const upstreamTable = (upstreams) => table(
  [["Upstream"], ["State", "wide"], ["Waiting", "right"], ["Oldest", "right"], ["Failed", "right"],
    ["In and out, 10 min", "sparks"], ["Actions", "actions"]],
  upstreams.map(upstreamRow));

function upstreamRow(upstream) {
  const { name, type, health, queued, oldestQueuedSeconds } = upstream;
  const accepted = series(name, "accepted", POINTS);
  const delivered = series(name, "delivered", POINTS);
  const { failed } = upstream.kept;
  return [
    { key: name, "data-upstream": name, "data-health": health },
    [upstreamLink(name), type !== name && h("span", { class: "soft small block" }, type)],
    [healthBadge(health), h("span", { class: "reason soft small" }, reason(upstream))],
    [countLink(queued, { state: "queued", upstream: name }), h("span", { class: "soft small block" },
      waiting(upstream))],
    oldestQueuedSeconds >= 1 ? duration(oldestQueuedSeconds) : h("span", { class: "soft" }, "–"),
    failed ? h("a", { class: "tone-bad strong", href: address(["failures"], { upstream: name }) },
      number(failed)) : h("span", { class: "soft" }, "0"),
    [spark([{ values: accepted, tone: "waiting", isArea: true }, { values: delivered, tone: "good" }]),
      h("span", { class: "soft small block" }, `${recentRate(accepted)} in · ${recentRate(delivered)} out /s`)],
    [canTry(upstream) && flushButton(upstream), pauseButton(upstream)],
  ];
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
        return [heading, data.problem && !data.upstreams ? problemBox(data.problem, refresh) : !data.upstreams
          ? skeleton()
          : empty("There is no upstream of this name, or this key may not see it. ",
            h("a", { href: "#/" }, "All upstreams"))];
      }
      const shown = { points, onPoints: (value) => (points = value) };
      return [
        h("nav", { class: "trail", "aria-label": "Breadcrumb" }, h("a", { href: "#/" }, "Overview"), icon("chevron"),
          foreign(name)),
        h("div", { class: "row" },
          h("div", { class: "row" }, heading, healthBadge(upstream.health),
            upstream.type !== name && h("span", { class: "soft" }, upstream.type)),
          h("div", { class: "buttons" },
            actionButton({ action: "probe", label: "Test credentials", name, iconName: "lock", kind: "quiet",
              isBusy: isBusy("probe", name), onclick: test }),
            (canTry(upstream) || upstream.queued > 0) && flushButton(upstream), pauseButton(upstream))),
        stateSentence(upstream),
        probe && probeResult(probe, () => (probe = null)),
        upstream.endpoints.length > 0 && endpoints(upstream),
        charts(upstream, shown, createdAfter, createdBefore),
        books([upstream], name),
        h("div", { class: "columns" },
          section("Details", facts([
            ["Kinds", upstream.kinds.map((kind, index) => [index > 0 && ", ",
              h("a", { href: address(["messages"], { upstream: name, kind }) }, foreign(kind))])],
            ["Waiting", `${count(upstream.queued, "message")}, ${size(upstream.queuedBytes)}`],
            ["Kept", upstream.kept !== undefined && keptText(upstream.kept)],
            ["In flight", count(upstream.inFlight, "request")],
            ["Circuit", [upstream.circuit.state, upstream.circuit.reopensAt
              && [", next probe ", until(upstream.circuit.reopensAt)]]],
            ["Token", upstream.token ? [upstream.token.valid ? "valid" : "not valid",
              upstream.token.expiresAt && [", expires ", until(upstream.token.expiresAt)]] : "not required"],
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

const keptText = (kept) =>
  Object.keys(kept).filter((state) => kept[state]).map((state) => `${number(kept[state])} ${state}`).join(", ") || "none";

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
      h("span", { class: "soft" }, status ? `HTTP ${status}, ` : "", milliseconds(durationMs)), " ",
        button("Dismiss", dismiss, { kind: "quiet small" })));
}

const endpoints = ({ endpoints: waiting }) => section("Endpoints that wait alone", table(
  [["Endpoint"], ["Waits for"], ["Next try"], ["Last error"]],
  waiting.map((endpoint) => [{ key: endpoint.name }, foreign(endpoint.name),
    badge("warning", endpoint.waitingFor === "credentials" ? "lock" : "clock", endpoint.waitingFor),
    endpoint.reopensAt ? until(endpoint.reopensAt) : "now", lastError(endpoint.lastError)])));

function charts(upstream, { points, onPoints }, createdAfter, createdBefore) {
  const { name } = upstream;
  const end = historyEnd();
  const figure = (series_, divisor = 1) => series(name, series_, points).map((value) => value / divisor);
  const range = createdAfter && createdBefore ? [Date.parse(createdAfter), Date.parse(createdBefore)] : null;
  const onRange = (from, to) =>
    replace(address(["upstreams", name], { createdAfter: new Date(from).toISOString(),
      createdBefore: new Date(to).toISOString() }));
  const common = { end, step: STEP, range, onRange };
  return h("section", null,
    h("div", { class: "row" }, h("h2", null, "History"),
      h("div", { class: "buttons" }, rangeForm(name, createdAfter, createdBefore),
        field("Range", select(String(points), Object.entries(RANGES), (value) => {
          onPoints(Number(value));
          refresh();
        }), { class: "field inline" }))),
    end === undefined && h("p", { class: "soft" }, "Nothing is known yet."),
    range && h("p", { class: "notice tone-waiting" }, icon("clock"),
      h("span", null, "From ", time(createdAfter), " to ", time(createdBefore), ": ",
      h("a", { href: address(["messages"], { upstream: name, createdAfter, createdBefore }) },
        "messages accepted then"), " · ",
      h("a", { href: address(["failures"], { upstream: name, createdAfter, createdBefore }) }, "failures among them"),
        " · ",
      h("a", { href: address(["upstreams", name]) }, "clear the range"))),
    h("div", { class: "charts" },
      chart({ id: "accepted", title: "Accepted and delivered", format: (value) => `${rate(value)}/s`, ...common,
        series: [
        { label: "accepted", tone: "waiting", isArea: true, values: figure("accepted", STEP) },
        { label: "delivered", tone: "good", values: figure("delivered", STEP), isDashed: true }] }),
      chart({ id: "queued", title: "Waiting", format: (value) => number(Math.round(value)), levels: wholeLevels,
        ...common, series: [
        { label: "messages", tone: "warning", isArea: true, values: figure("queued") }] }),
      chart({ id: "oldestSeconds", title: "How long messages wait", format: shortDuration, levels: durationLevels,
        ...common, series: [
        { label: "oldest due", tone: "warning", isArea: true, values: figure("oldestSeconds") },
        { label: "p99 until delivery", tone: "held", values: figure("waitP99Ms", 1000), isDashed: true }] }),
      chart({ id: "requestP50Ms", title: "How long requests take", format: milliseconds, ...common, series: [
        { label: "p50", tone: "waiting", values: figure("requestP50Ms") },
        { label: "p99", tone: "held", values: figure("requestP99Ms"), isDashed: true }] })),
    requestSum(figure, end));
}

const shortDuration = (seconds) => (seconds > 0 && seconds < 10
  ? `${Number(seconds.toFixed(2))} s` : duration(seconds));

/** The requests of the span that is shown. History begins when the gateway starts. */
function requestSum(figure, end) {
  const values = figure("requests");
  const first = values.findIndex((value) => !Number.isNaN(value));
  if (first < 0) return null;
  const sum = (figures) => figures.reduce((all, value) => all + (value || 0), 0);
  const bad = sum(figure("requestsFailed"));
  return h("p", { class: "soft small" },
    `Since ${dateAndClock(end - 1000 * STEP * (values.length - first))}: ${count(sum(values), "request")}, `,
    bad ? `${number(bad)} of them failed.` : "none of them failed.");
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

const laneTable = ({ lanes, next }, name) => (lanes.length ? [
  table([["Lane"], ["Why"], ["Since"], ["Until"], ["Queued", "right"]], lanes.map((lane) => [
    { key: lane.lane, "data-lane": lane.lane },
    lane.key === null ? h("span", { class: "soft mono" }, foreign(lane.lane)) : foreign(lane.key, 60),
    [LANES[lane.state] ?? foreign(lane.state), lane.state === "ready" && WAITS[lane.reason]
      ? `: ${WAITS[lane.reason]}` : ""],
    time(lane.since), lane.until ? until(lane.until) : "an event",
    h("a", { href: address(["messages"], { upstream: name, state: "queued", lane: lane.key ?? lane.lane }) },
      `${number(lane.queued)}${lane.isCountComplete === false ? "+" : ""}`)])),
  next && h("p", { class: "soft" }, `The first ${lanes.length} lanes are shown; postern outbox lanes lists all.`),
] : empty("No lane waits."));

const requestTable = (batches) => table(
  [["When"], ["Batch", "mono"], ["Messages", "right"], ["Status"], ["Took", "right"], ["Outcome"],
    ["Detail", "wide small"]],
  batches.map(({ batch, startedAt, endedAt, messages, status, outcome: name, detail }) => {
    const [words, tone] = outcome(name);
    return [{ key: batch }, time(startedAt), foreign(batch), number(messages), status ?? "–",
      endedAt ? milliseconds(Date.parse(endedAt) - Date.parse(startedAt)) : "in flight",
        h("span", { class: `tone-${tone}` }, words), detail && foreign(detail, 200)];
  }));

// Why messages failed: a card for each group of failures with the same cause.

/** Pages of groups of one upstream that are read; each covers 18 000 messages. */
const MOST_PAGES = 10;

/** All groups of an upstream. Pages are merged by `id`. */
async function loadGroups(upstream, filters = {}) {
  const groups = new Map();
  let cursor;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const answer = await call("GET", `v1/upstreams/${encodeURIComponent(upstream)}/failures`,
      { query: { ...filters, cursor }, patience: 10 });
    for (const group of answer.failures) {
      const known = groups.get(group.id);
      groups.set(group.id, known ? merged(known, group) : { ...group, upstream });
    }
    cursor = answer.next;
    if (!cursor) break;
  }
  return [...groups.values()].sort((a, b) => b.count - a.count);
}

const minute = ({ lastAt }) => Math.floor(Date.parse(lastAt) / 60_000);

/** Pages begin with the newest messages, so the sample of the first page stays. */
function merged(known, group) {
  const last = group.lastAt > known.lastAt ? group : known;
  const at = (index, one) => one.perMinute[index + minute(last) - minute(one)] ?? 0;
  return {
    ...known,
    count: known.count + group.count,
    firstAt: group.firstAt < known.firstAt ? group.firstAt : known.firstAt,
    lastAt: last.lastAt,
    perMinute: known.perMinute.map((_, index) => at(index, known) + at(index, group)),
  };
}

function groupCard(group, range) {
  const { id, upstream, class: errorClass, status, detail, count: size, sample, firstAt, lastAt, perMinute } = group;
  const filter = { ...range, upstream, state: "failed", group: id };
  return h("article", { class: "panel group", key: `${upstream}-${id}`, "data-group": id, "data-value": size },
    h("p", { class: "group-count tone-bad" }, h("b", null, number(size)),
      h("span", { class: "soft small" }, size === 1 ? "message" : "messages")),
    h("div", null,
      h("h3", null, detail === null ? "The stored error cannot be read." : foreign(detail, 300)),
      h("p", { class: "soft small" }, upstreamLink(upstream), errorClass && [" · ", foreign(errorClass)],
        status && ` · HTTP ${status}`, " · last ", time(lastAt),
        size > 1 && [", first ", time(firstAt)])),
    h("div", { class: "group-bars" }, bars(perMinute, `At most ${Math.max(...perMinute)} failures a minute`)),
    h("div", { class: "buttons" },
      h("a", { class: "button quiet", href: address(["messages", sample]) }, "See one"),
      h("a", { class: "button quiet", href: address(["messages"], filter) }, "See all"),
      actionButton({ action: "purge", label: "Remove…", iconName: "trash", kind: "quiet",
        onclick: () => openBulk("purge", { filter }) }),
      actionButton({ action: "retry", label: "Retry…", iconName: "retry",
        onclick: () => openBulk("retry", { filter }) })));
}

export function failuresView(_, { upstream, createdAfter, createdBefore }) {
  // After the first time, one upstream is read at a time, so that an open page asks little.
  const resources = new Map();
  const names = () => (data.upstreams ?? []).filter((one) => (upstream
    ? one.name === upstream : one.kept.failed || resources.has(one.name))).map(({ name }) => name);
  const resource = (name) => {
    if (!resources.has(name)) {
      resources.set(name, new Resource(() => loadGroups(name, { createdAfter, createdBefore })));
      resources.get(name).load();
    }
    return resources.get(name);
  };
  let turn = 0;
  return {
    name: "failures",
    title: () => "Failures",
    tasks: [{ every: 10, load: async () => {
      const all = [...resources.keys()];
      if (all.length) await resources.get(all[turn++ % all.length]).load();
    } }],
    render() {
      if (!data.upstreams) return notYet("Failures");
      const read = names().map(resource);
      const groups = read.flatMap(({ value }) => value ?? []).sort((a, b) => b.count - a.count);
      const all = groups.reduce((sum, group) => sum + group.count, 0);
      const isReading = read.some(({ value, problem }) => value === null && !problem);
      return [
        h("h1", null, "Failures"),
        h("p", { class: "soft" }, all > 0 ? [h("b", null, count(all, "message")),
          ` rejected by their upstreams, in ${count(groups.length, "group")} by what was wrong. They are kept with their payload.`] : null),
        h("div", { class: "filters" }, upstreamField(upstream,
          (value) => go(address(["failures"], { upstream: value, createdAfter, createdBefore }))),
        createdAfter && h("p", { class: "chip" }, "Accepted from ", time(createdAfter),
          createdBefore && [" to ", time(createdBefore)], " ",
          h("a", { href: address(["failures"], { upstream }) }, "any time"))),
        read.filter(({ problem }) => problem).map((one) => problemBox(one.problem, () => one.load())),
        groups.length > 0 && h("div", { class: "groups" }, groups.slice(0, 200).map((group) => groupCard(group, { createdAfter, createdBefore }))),
        groups.length > 200 && h("p", { class: "soft" },
          `The ${number(200)} largest of ${number(groups.length)} groups are shown.`),
        isReading && skeleton(3),
        !groups.length && !isReading && empty(upstream ? "This upstream has not" : "No upstream has",
          " rejected a message that is still kept."),
      ];
    },
  };
}

// The gateway.

const MOST_FINISHED = 10;

/** Days before its expiry from which a key is marked. */
const SOON = 14;

export function gatewayView() {
  const keys = new Resource(async () => (await call("GET", "v1/keys")).keys);
  const operations = new Resource(async () => (await call("GET", "v1/operations")).operations);
  return {
    name: "gateway",
    title: () => "Gateway",
    tasks: [{ every: 10, load: () => operations.load() }, { every: 60, load: async () => may("admin") && keys.load() }],
    render() {
      const { gateway } = data;
      if (!gateway) return notYet("Gateway");
      return [
        h("div", { class: "row" }, h("h1", null, "Gateway"),
          gateway.ready ? badge("good", "check", "ready") : badge("bad", "cross", "not ready")),
        !gateway.ready && h("div", { class: "notice tone-bad" }, icon("alert"), h("div", null,
          h("b", null, "It accepts no messages; callers get 503, or 507 if the disk is full. "),
            "Deliveries go on as far as they can.",
          h("ul", null, gateway.reasons.map((text) => h("li", null, foreign(text)))))),
        gateway.notes?.length > 0 && h("div", { class: "notice tone-warning" }, icon("alert"),
          h("ul", null, gateway.notes.map((text) => h("li", null, foreign(text))))),
        h("div", { class: "columns" },
          section("Process", facts([
            ["Version", foreign(gateway.version)],
            ["Instance", foreign(gateway.instance)],
            ["Running for", age(gateway.startedAt)],
            ["Memory", size(gateway.memoryBytes)],
          ])),
          section("Store", facts([
            ["Database", size(gateway.store.bytes)],
            ["Write-ahead log", size(gateway.store.walBytes)],
            ["Free disk", size(gateway.store.freeBytes)],
            ["Commit p50", milliseconds(gateway.commit.p50Ms)],
            ["Commit p99", milliseconds(gateway.commit.p99Ms)],
          ]))),
        section("Operations", loaded(operations, operationList, 2)),
        section("Keys", !may("admin") ? empty("This key lacks the scope admin, which the list of keys requires.") : loaded(keys, (all) => (all.length ? keyTable(all)
          : empty("No keys are configured: every caller that reaches the gateway may do everything. postern keys new makes one.")), 3)),
      ];
    },
  };
}

function operationList(all) {
  const running = all.filter(({ finishedAt }) => !finishedAt);
  const ended = all.filter(({ finishedAt }) => finishedAt).sort((a,
    b) => (a.finishedAt < b.finishedAt ? 1 : -1)).slice(0, MOST_FINISHED);
  if (!all.length) return empty("Nothing was done to many messages since the start.");
  return h("ul", { class: "operations panel" }, [...running, ...ended].map((operation) => h("li", { key: operation.id },
    h("span", { class: "grow" },
      h("b", null, operation.finishedAt
        ? finished(operation) : `${VERBS[operation.action]?.[0] ?? operation.action} ${number(operation.done)} of ${number(operation.matched)}`),
      operation.upstream && [" · ", upstreamLink(operation.upstream)],
        operation.by && [" · by ", foreign(operation.by)],
      " · ", h("span", { class: "soft" }, time(operation.finishedAt ?? operation.startedAt)),
      !operation.finishedAt && progress(operation), skippedList(operation)),
    !operation.finishedAt && actionButton({ action: "stop", label: "Stop", kind: "small",
      onclick: () => stop(operation.id) }))));
}

const keyTable = (keys) => table([["Key"], ["Scopes"], ["Upstreams", "wide"], ["Expires"], ["Last used"]],
  keys.map((key) => {
  const days = key.expiresAt ? (Date.parse(key.expiresAt) - serverNow()) / 86_400_000 : Infinity;
  return [{ key: key.name }, [foreign(key.name), data.gateway.key?.name === key.name
    && h("span", { class: "soft small block" }, "this page")],
    key.scopes.join(", "), key.upstreams[0] === "*" ? "all" : foreign(key.upstreams.join(", "), 200),
    key.expiresAt ? h("span", { class: days < SOON ? "tone-warning" : null }, days < SOON && icon("alert"),
      days < 0 ? " expired " : " ", until(key.expiresAt)) : "never",
    key.lastUsedAt ? time(key.lastUsedAt) : "not since the start"];
}));

// Events.

const DELIVERIES = ["message.delivered", "batch.sent", "message.queued"];
const isDelivery = (type) => DELIVERIES.includes(type);

/** All other types, as the query of the stream names them. */
const NOTABLE = Object.keys(EVENTS).filter((type) => type !== "gap" && !isDelivery(type));

/** When an event happened: as it says, or when this page saw it happen; NaN if it was there before. */
const eventTime = (event) => Date.parse(event.at ?? event.data.at ?? "") || (event.seenAt ?? NaN);

const timeOf = (at) => (Number.isNaN(at) ? h("span", { class: "soft small" }, "earlier")
  : h("time", { class: "mono soft", datetime: new Date(at).toISOString(), title: exact(at) }, clock(at)));

const IDS_SHOWN = 3;

function eventRow(event) {
  const { type, data, id } = event;
  const [words, tone, iconName] = EVENTS[type] ?? [type, "plain", "right"];
  const at = eventTime(event);
  const ids = data.ids ?? [];
  return h("li", { key: id },
    timeOf(at),
    h("span", { class: `what tone-${tone}` }, icon(iconName), foreign(words)),
    h("span", { class: "whom" }, data.upstream && upstreamLink(data.upstream)),
    h("span", { class: "detail" },
      data.count > 0 && [count(data.count, "message"), " "],
      data.by && ["by ", h("b", null, foreign(data.by)), " "],
      ids.slice(0, IDS_SHOWN).map((message) => [messageLink(message), " "]),
      data.count > IDS_SHOWN && ids.length > 0 && `and ${number(data.count - IDS_SHOWN)} more`,
      data.detail && foreign(data.detail, 200)));
}

/** "Delivered 1 240 messages in 31 requests, 5 s". */
function foldedRow({ upstream, requests, from, to, id, ...counts }) {
  const type = DELIVERIES.find((one) => one in counts);
  const [words, tone, iconName] = EVENTS[type];
  const seconds = Math.round((to - from) / 1000);
  return h("li", { key: `run-${id}` },
    timeOf(to),
    h("span", { class: `what tone-${tone}` }, icon(iconName), words),
    h("span", { class: "whom" }, upstreamLink(upstream)),
    h("span", { class: "detail" }, h("a", { href: address(["messages"], { upstream }) },
      count(counts[type], "message")),
      requests ? ` in ${count(requests, "request")}` : "", seconds > 0 ? `, ${seconds} s` : ""));
}

const MOST_ROWS = 400;
/** Milliseconds between two looks. */
const EVERY = 1100;

const TYPES = { "": "Everything", notable: "All but deliveries" };

export function liveView({ upstream, type }) {
  let events = null;
  let problem = null;
  let last;
  let timer;
  let isOpen = true;

  async function look() {
    clearTimeout(timer);
    if (!isOpen) return;
    if (!document.hidden && !data.isHeld && !data.needsKey && !limitedFor()) {
      try {
        const answer = await call("GET", "v1/stream",
          { query: { after: last, limit: MOST_ROWS, upstream, type: type === "notable" ? NOTABLE : type } });
        const isMissing = answer.gap && last !== undefined;
        last = answer.last ?? last;
        const arrived = answer.events;
        if (events) for (const event of arrived) event.seenAt = Date.now();
        if (isMissing) arrived.unshift({ id: `gap-${last}`, type: "gap",
          data: { detail: "More happened than is remembered." } });
        events = [...arrived.reverse(), ...(events ?? [])].slice(0, MOST_ROWS);
        problem = null;
      } catch (caught) {
        problem = caught;
      }
    }
    timer = setTimeout(look, EVERY);
  }
  look();

  return {
    name: "live",
    title: () => "Live",
    tasks: [],
    close() {
      isOpen = false;
      clearTimeout(timer);
    },
    render() {
      const rows = fold(events ?? []);
      return [
        h("h1", null, "Live"),
        h("div", { class: "filters" },
          field("Show", select(TYPES[type ?? ""] ? type ?? "" : "", Object.entries(TYPES),
            (value) => go(address(["live"], { upstream, type: value })))),
          upstreamField(upstream, (value) => go(address(["live"], { upstream: value, type }))),
          button(data.isHeld ? "Go on" : "Hold", () => hold(), { iconName: data.isHeld ? "play" : "pause",
            "aria-pressed": String(data.isHeld) })),
        problem && problemBox(problem, look),
        events === null ? (!problem && skeleton())
          : rows.length ? h("ol", { class: "events panel" }, rows)
            : empty("Nothing has happened yet. What the gateway accepts and delivers appears here."),
        events?.length >= MOST_ROWS && h("p", { class: "soft" }, `The last ${MOST_ROWS} events are shown.`),
      ];
    },
  };
}

/** Deliveries of one upstream that follow each other are one row. */
function fold(events) {
  const rows = [];
  let run = null;
  const end = () => {
    if (run) rows.push(run.events.length > 1 ? foldedRow(run) : eventRow(run.events[0]));
    run = null;
  };
  for (const event of events) {
    if (!isDelivery(event.type)) {
      end();
      rows.push(eventRow(event));
      continue;
    }
    const at = eventTime(event);
    if (run?.upstream !== event.data.upstream) end();
    run ??= { upstream: event.data.upstream, requests: 0, from: at, to: at, id: event.id, events: [] };
    run.from = at;
    run.id = event.id;
    run.events.push(event);
    if (event.type === "batch.sent") run.requests += event.data.requests;
    run[event.type] = (run[event.type] ?? 0) + event.data.count;
  }
  end();
  return rows;
}
