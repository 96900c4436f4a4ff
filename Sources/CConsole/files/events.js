// Events of the gateway, and the view of what happens right now.

import { call } from "./api.js";
import { h } from "./dom.js";
import { clock, count, exact, foreign, number } from "./format.js";
import { button, empty, field, icon, messageLink, problemBox, select, skeleton, upstreamLink } from "./parts.js";
import { data, hold } from "./live.js";
import { address, go } from "./router.js";
import { EVENTS } from "./words.js";

/** What happens all the time while all is well. */
const DELIVERIES = new Set(["message.queued", "batch.sent", "message.delivered"]);
export const isDelivery = (type) => DELIVERIES.has(type);

/** All other types, as the query of the stream names them. */
export const NOTABLE = Object.keys(EVENTS).filter((type) => type !== "gap" && !isDelivery(type));

/** When an event happened: as it says, or when this page saw it happen; NaN if it was there before. */
export const eventTime = (event) => Date.parse(event.at ?? event.data.at ?? "") || (event.seenAt ?? NaN);

const timeOf = (at) => (Number.isNaN(at) ? h("span", { class: "soft small" }, "earlier")
  : h("time", { class: "mono soft", datetime: new Date(at).toISOString(), title: exact(at) }, clock(at)));

const IDS_SHOWN = 3;

export function eventRow(event) {
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

/** A run of deliveries of one upstream: "1 240 messages in 31 requests, 5 s". */
export function foldedRow({ upstream, delivered, requests, from, to, id }) {
  const seconds = Math.round((to - from) / 1000);
  return h("li", { key: `run-${id}` },
    timeOf(to),
    h("span", { class: "what tone-good" }, icon("check"), "deliveries"),
    h("span", { class: "whom" }, upstreamLink(upstream)),
    h("span", { class: "detail" }, h("a", { href: address(["messages"], { upstream, state: "delivered" }) }, count(delivered, "message")),
      requests ? ` in ${count(requests, "request")}` : "", seconds > 0 ? `, ${seconds} s` : ""));
}

/** The most rows; older ones are dropped. */
const MOST_ROWS = 400;
/** Milliseconds between two looks. */
const EVERY = 1100;

const TYPES = {
  "": "Everything",
  notable: "All but deliveries",
  "message.failed": "Failed",
  "message.retrying": "Retrying",
  "message.dropped": "Dropped",
  "message.expired": "Expired",
  "message.cancelled": "Cancelled",
};

export function liveView({ upstream, type }) {
  let events = null;
  let problem = null;
  let last;
  let timer;
  let isOpen = true;

  async function look() {
    clearTimeout(timer);
    if (!isOpen) return;
    if (!document.hidden && !data.isHeld && !data.needsKey) {
      try {
        const answer = await call("GET", "v1/stream", { query: { after: last, limit: MOST_ROWS, upstream, type: type === "notable" ? NOTABLE : type } });
        const isMissing = answer.gap && last !== undefined;
        last = answer.last ?? last;
        const arrived = answer.events;
        if (events) for (const event of arrived) event.seenAt = Date.now();
        if (isMissing) arrived.unshift({ id: `gap-${last}`, type: "gap", data: { detail: "More happened than is remembered. The messages themselves are complete." } });
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
          field("Show", select(TYPES[type ?? ""] ? type ?? "" : "", Object.entries(TYPES), (value) => go(address(["live"], { upstream, type: value })))),
          field("Upstream", select(upstream ?? "", [["", "All"], ...(data.upstreams ?? []).map(({ name }) => [name, name])],
            (value) => go(address(["live"], { upstream: value, type })))),
          button(data.isHeld ? "Go on" : "Hold", () => hold(), { iconName: data.isHeld ? "play" : "pause", "aria-pressed": String(data.isHeld) })),
        problem && problemBox(problem, look),
        events === null ? (!problem && skeleton())
          : rows.length ? h("ol", { class: "events panel" }, rows)
            : empty("Nothing has happened since the gateway started to remember. What it accepts and delivers appears here."),
        events?.length >= MOST_ROWS && h("p", { class: "soft" }, `The last ${MOST_ROWS} events are shown.`),
      ];
    },
  };
}

/** The newest first. Deliveries of one upstream that follow each other are one row. */
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
    run ??= { upstream: event.data.upstream, delivered: 0, requests: 0, from: at, to: at, id: event.id, events: [] };
    run.from = at;
    // The row keeps its key while it grows at its newer end.
    run.id = event.id;
    run.events.push(event);
    if (event.type === "message.delivered") run.delivered += event.data.count;
    if (event.type === "batch.sent") run.requests += event.data.requests ?? 1;
  }
  end();
  return rows;
}
