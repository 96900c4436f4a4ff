// Why messages failed: a card for each group of failures with the same cause.

import { openBulk } from "./actions.js";
import { call } from "./api.js";
import { bars } from "./charts.js";
import { h } from "./dom.js";
import { count, foreign, number, time } from "./format.js";
import { data, refresh, Resource } from "./live.js";
import { actionButton, empty, field, problemBox, select, skeleton, upstreamLink } from "./parts.js";
import { address, go } from "./router.js";
import { counted } from "./words.js";

/** Pages of groups of one upstream that are read; each covers 18 000 messages. */
const MOST_PAGES = 10;

/** All groups of an upstream. Pages are merged by `id`. */
export async function loadGroups(upstream, filters = {}) {
  const groups = new Map();
  let cursor;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const answer = await call("GET", `v1/upstreams/${encodeURIComponent(upstream)}/failures`, { query: { ...filters, cursor }, patience: 10 });
    for (const group of answer.failures) {
      const known = groups.get(group.id);
      groups.set(group.id, known ? merged(known, group) : { ...group, upstream });
    }
    cursor = answer.next;
    if (!cursor) break;
  }
  return [...groups.values()].sort((a, b) => b.count - a.count);
}

/** Pages begin with the newest messages, so the sample of the first page stays. */
const merged = (known, group) => ({
  ...known,
  count: known.count + group.count,
  firstAt: group.firstAt < known.firstAt ? group.firstAt : known.firstAt,
  lastAt: group.lastAt > known.lastAt ? group.lastAt : known.lastAt,
  perMinute: known.perMinute && group.perMinute ? addMinutes(known, group) : known.perMinute ?? group.perMinute,
});

function addMinutes(known, group) {
  if (known.perMinute.length !== group.perMinute.length) return known.perMinute;
  return known.perMinute.map((value, index) => value + group.perMinute[index]);
}

export function groupCard(group) {
  const { id, upstream, class: errorClass, status, detail, count: size, sample, firstAt, lastAt, perMinute } = group;
  const filter = { upstream, state: "failed", group: id };
  return h("article", { class: "panel group", key: `${upstream}-${id}`, "data-group": id, "data-value": size },
    h("p", { class: "group-count tone-bad" }, h("b", null, number(size)), h("span", { class: "soft small" }, size === 1 ? "message" : "messages")),
    h("div", { class: "group-what" },
      h("h3", null, detail === null ? "The stored error cannot be read." : foreign(detail, 300)),
      h("p", { class: "soft small" }, upstreamLink(upstream), errorClass && [" · ", foreign(errorClass)], status && ` · HTTP ${status}`, " · last ", time(lastAt),
        size > 1 && [", first ", time(firstAt)])),
    perMinute?.length > 0 && h("div", { class: "group-bars" },
      bars(perMinute, `Failures per minute in the last ${perMinute.length} minutes with failures: at most ${Math.max(...perMinute)} in one.`)),
    h("div", { class: "buttons" },
      h("a", { class: "button quiet", href: address(["messages", sample]) }, "See one"),
      h("a", { class: "button quiet", href: address(["messages"], filter) }, "See all"),
      actionButton({ action: "purge", label: "Remove…", iconName: "trash", kind: "quiet", onclick: () => openBulk("purge", { filter }) }),
      actionButton({ action: "retry", label: "Retry…", iconName: "retry", onclick: () => openBulk("retry", { filter }) })));
}

export function failuresView(_, { upstream, createdAfter, createdBefore }) {
  // After the first time, one upstream is read at a time, so that an open page asks little.
  const resources = new Map();
  const names = () => (data.upstreams ?? []).filter((one) => (upstream ? one.name === upstream : counted(one, "failed") > 0 || resources.has(one.name))).map(({ name }) => name);
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
      if (!data.upstreams) return [h("h1", null, "Failures"), data.problem ? problemBox(data.problem, refresh) : skeleton()];
      const read = names().map(resource);
      const groups = read.flatMap(({ value }) => value ?? []).sort((a, b) => b.count - a.count);
      const all = groups.reduce((sum, group) => sum + group.count, 0);
      const isReading = read.some(({ value, problem }) => value === null && !problem);
      return [
        h("h1", null, "Failures"),
        h("p", { class: "soft" }, all > 0 ? [h("b", null, count(all, "message")), ` rejected by their upstreams, in ${count(groups.length, "group")} by what was wrong. They are kept with their payload.`] : null),
        h("div", { class: "filters" }, field("Upstream", select(upstream ?? "", [["", "All"], ...data.upstreams.map(({ name }) => [name, name])],
          (value) => go(address(["failures"], { upstream: value, createdAfter, createdBefore })))),
        createdAfter && h("p", { class: "chip" }, "Accepted from ", time(createdAfter), createdBefore && [" to ", time(createdBefore)], " ",
          h("a", { href: address(["failures"], { upstream }) }, "any time"))),
        read.filter(({ problem }) => problem).map(({ problem }, index) => problemBox(problem, () => read[index].load())),
        groups.length > 0 && h("div", { class: "groups" }, groups.slice(0, 200).map(groupCard)),
        groups.length > 200 && h("p", { class: "soft" }, `The ${number(200)} largest of ${number(groups.length)} groups are shown.`),
        isReading && skeleton(3),
        !groups.length && !isReading && empty(upstream ? "This upstream has not" : "No upstream has", " rejected a message that is still kept."),
      ];
    },
  };
}
