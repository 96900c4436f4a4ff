// Events of the gateway, as rows.

import { h } from "./dom.js";
import { clock, count, exact, foreign, number } from "./format.js";
import { icon } from "./icons.js";
import { messageLink, upstreamLink } from "./parts.js";
import { address } from "./router.js";
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
