// What happens right now.

import { call } from "./api.js";
import { h } from "./dom.js";
import { eventRow, eventTime, foldedRow, isDelivery, NOTABLE } from "./events.js";
import { data, hold } from "./live.js";
import { button, empty, field, problemBox, select, skeleton } from "./parts.js";
import { address, go } from "./router.js";

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

