// The gateway itself: ready or why not, its store, its keys, and operations on many messages.

import { call } from "./api.js";
import { h } from "./dom.js";
import { age, foreign, milliseconds, number, size, time, until } from "./format.js";
import { actionButton, badge, cell, empty, facts, icon, loaded, problemBox, section, skeleton, upstreamLink } from "./parts.js";
import { data, may, refresh, Resource } from "./live.js";
import { finished, progress, skippedList, stop, VERBS } from "./actions.js";

/** Finished operations that are listed. */
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
      if (!gateway) return [h("h1", null, "Gateway"), data.problem ? problemBox(data.problem, refresh) : skeleton()];
      return [
        h("div", { class: "row" }, h("h1", null, "Gateway"),
          gateway.ready ? badge("good", "check", "ready") : badge("bad", "cross", "not ready")),
        !gateway.ready && h("div", { class: "notice tone-bad" }, icon("alert"), h("div", null,
          h("b", null, "It accepts no messages; callers get 503, or 507 if the disk is full. "), "Deliveries go on as far as they can.",
          h("ul", null, gateway.reasons.map((text) => h("li", null, foreign(text)))))),
        gateway.notes?.length > 0 && h("div", { class: "notice tone-warning" }, icon("alert"), h("ul", null, gateway.notes.map((text) => h("li", null, foreign(text))))),
        h("div", { class: "columns" },
          section("Process", facts([
            ["Version", foreign(gateway.version)],
            ["Instance", foreign(gateway.instance)],
            ["Running for", age(gateway.startedAt)],
            ["Started", time(gateway.startedAt)],
            ["Memory", size(gateway.memoryBytes)],
            ["Upstreams", gateway.simulated ? "simulated: nothing leaves this machine" : "real"],
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
  const ended = all.filter(({ finishedAt }) => finishedAt).sort((a, b) => (a.finishedAt < b.finishedAt ? 1 : -1)).slice(0, MOST_FINISHED);
  if (!all.length) return empty("Nothing was done to many messages since the start of the gateway. Retry, Cancel and Remove in a list begin an operation.");
  return h("ul", { class: "operations panel" }, [...running, ...ended].map((operation) => h("li", { key: operation.id },
    h("span", { class: "grow" },
      h("b", null, operation.finishedAt ? finished(operation) : `${VERBS[operation.action]?.[0] ?? operation.action} ${number(operation.done)} of ${number(operation.matched)}`),
      operation.upstream && [" · ", upstreamLink(operation.upstream)], operation.by && [" · by ", foreign(operation.by)],
      " · ", h("span", { class: "soft" }, time(operation.finishedAt ?? operation.startedAt)),
      !operation.finishedAt && progress(operation), skippedList(operation)),
    !operation.finishedAt && actionButton({ action: "stop", label: "Stop", kind: "small", onclick: () => stop(operation.id) }))));
}

const keyTable = (keys) => h("table", { class: "cards panel" },
  h("thead", null, h("tr", null, ["Key", "Scopes", "Upstreams", "Expires", "Last used"].map((title) => h("th", { scope: "col" }, title)))),
  h("tbody", null, keys.map((key) => {
    const days = key.expiresAt ? (Date.parse(key.expiresAt) - Date.now()) / 86_400_000 : Infinity;
    return h("tr", { key: key.name },
      h("th", { scope: "row" }, foreign(key.name), data.gateway.key?.name === key.name && h("span", { class: "soft small block" }, "this page")),
      cell("Scopes", {}, key.scopes.join(", ")),
      cell("Upstreams", { class: "wide" }, key.upstreams[0] === "*" ? "all" : foreign(key.upstreams.join(", "), 200)),
      cell("Expires", { class: days < SOON ? "tone-warning" : null }, key.expiresAt ? [days < SOON && icon("alert"), days < 0 ? "expired " : "", until(key.expiresAt)] : "never"),
      cell("Last used", {}, key.lastUsedAt ? time(key.lastUsedAt) : "not since the start"));
  })));
