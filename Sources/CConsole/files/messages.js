// The list of messages: filters, pages, choosing, and what can be done to those that were chosen.

import { actionsFor, bulkIcon, bulkLabel, openBulk } from "./actions.js";
import { call, serverNow } from "./api.js";
import { failed, openDialog, toast } from "./dialogs.js";
import { h } from "./dom.js";
import { save } from "./files.js";
import { age, count, foreign, number, parseInput, time, timeInput } from "./format.js";
import { actionButton, button, cell, empty, field, icon, loaded, messageLink, select, stateBadge, upstreamLink } from "./parts.js";
import { elementTexts, memberTexts, onOneLine } from "./payload.js";
import { data, Resource } from "./live.js";
import { address, go } from "./router.js";
import { change, MOST_VIEWS, settings } from "./settings.js";
import { counted, WAITS, why } from "./words.js";

const PAGE = 50;
const MOST_DOWNLOADED = 10_000;

const TABS = ["queued", "failed", "delivered", "cancelled", "dropped", "expired"];

const ERROR_CLASSES = ["unreachable", "timeout", "interrupted", "garbled", "busy", "failing", "unauthorized", "misconfigured", "refused", "damaged"];

export const MESSAGE_ID = /^[0-7][0-9a-hjkmnp-tv-z]{12}$/;

// The address from which Older led to the page of a cursor.
const cameFrom = new Map();

export function messagesView(_, query) {
  const { cursor, ...filters } = query;
  const chosen = new Map();
  let isAllChosen = false;
  let arrived = 0;
  let lastChosen = null;
  const ask = (more, options) => call("GET", "v1/messages", { query: { ...filters, order: "newest", ...more }, ...options });
  const page = new Resource(async () => {
    const answer = await ask({ limit: PAGE, cursor });
    arrived = 0;
    return answer;
  });

  /** Brings the rows that are shown up to date where they are, and counts what would be above them. */
  async function lookForNew() {
    if (page.value === null) return page.load();
    if (cursor) return;
    const answer = await ask({ limit: PAGE });
    const newest = page.value.messages[0]?.id ?? "";
    arrived = answer.messages.filter(({ id }) => id > newest).length;
    const now = new Map(answer.messages.map((message) => [message.id, message]));
    page.value.messages = page.value.messages.map((message) => now.get(message.id) ?? message);
  }

  const choose = (message, isChosen) => {
    if (isChosen) chosen.set(message.id, message);
    else chosen.delete(message.id);
    isAllChosen = false;
    lastChosen = message.id;
  };
  /** Shift chooses all between the last one and this one. */
  const chooseUntil = (message, isChosen) => {
    const all = page.value.messages;
    const [from, to] = [all.findIndex(({ id }) => id === lastChosen), all.indexOf(message)].sort((a, b) => a - b);
    for (const between of all.slice(Math.max(0, from), to + 1)) choose(between, isChosen);
  };

  const openedAt = location.hash;
  // A field that leaves the page with the view reports a change, too.
  const apply = (changes) => location.hash === openedAt && go(address(["messages"], { ...filters, ...changes }));

  return {
    name: "messages",
    title: () => (filters.state ? `Messages: ${filters.state}` : "Messages"),
    tasks: [{ every: 10, load: lookForNew }],
    /** Keys of the list: `x` chooses the row that has the focus, `r` retries what is chosen, or that row. */
    key(name, row) {
      const message = page.value?.messages.find(({ id }) => id === row);
      if (name === "x" && message) choose(message, !chosen.has(message.id));
      if (name === "r") {
        const ids = chosen.size ? [...chosen.values()] : message ? [message] : [];
        if (ids.some(({ state }) => actionsFor(state).includes("retry"))) openBulk("retry", { ids });
      }
    },
    render() {
      return [
        h("div", { class: "row" }, h("h1", null, "Messages"), h("div", { class: "buttons" }, savedViews(), download(ask))),
        tabs(filters),
        filterForm(filters, apply),
        chosen.size > 0 && chosenBar(),
        arrived > 0 && h("p", null, button(`${arrived >= PAGE ? `${PAGE} or more` : number(arrived)} new`, () => page.load(), { iconName: "retry", kind: "wide" })),
        loaded(page, list, 8),
      ];
    },
  };

  function list({ messages, next }) {
    const isPageChosen = messages.length > 0 && messages.every(({ id }) => chosen.has(id));
    const all = h("input", {
      type: "checkbox", "aria-label": "Choose all on this page", checked: isPageChosen, indeterminate: chosen.size > 0 && !isPageChosen,
      onchange: (event) => messages.forEach((message) => choose(message, event.target.checked)),
    });
    return [
      messages.length > 0 && h("table", { class: "cards panel messages" },
        h("thead", null, h("tr", null, h("th", { class: "check" }, all),
          ["State", "Message", "Upstream and kind", "Why", "Tries", "Age"].map((title, index) => h("th", { scope: "col", class: index > 3 ? "right" : null }, title)))),
        h("tbody", null, messages.map(row))),
      !messages.length && !next && nothing(filters),
      messages.length < PAGE && next && h("p", { class: "soft" },
        `${messages.length ? "This page is short" : "Nothing was found here"}: so many stored messages were examined that the gateway stopped. `,
        "More may follow below Older."),
      h("nav", { class: "buttons", "aria-label": "Pages" },
        cursor && h("a", { class: "button", href: cameFrom.get(cursor) ?? address(["messages"], filters) }, "Back"),
        cursor && h("a", { class: "button quiet", href: address(["messages"], filters) }, "Newest"),
        next && h("a", { class: "button", href: address(["messages"], { ...filters, cursor: next }), onclick: () => cameFrom.set(next, location.hash) }, "Older")),
    ];
  }

  function row(message) {
    const { id, state, key, upstream, kind, attempts, createdAt } = message;
    return h("tr", { key: id, "data-message": id, "data-state": state, class: chosen.has(id) ? "chosen" : null },
      h("td", { class: "check" }, h("input", {
        type: "checkbox", "aria-label": `Choose ${id}`, checked: chosen.has(id),
        onclick: (event) => (event.shiftKey && lastChosen ? chooseUntil(message, event.target.checked) : choose(message, event.target.checked)),
      })),
      cell("State", {}, stateBadge(state)),
      h("th", { scope: "row" }, messageLink(id), key !== null && h("span", { class: "block small" },
        h("a", { class: "quiet-link", href: address(["messages"], { key }), "aria-label": `All with the key ${key}` }, foreign(key, 40)))),
      cell("Upstream and kind", {}, upstreamLink(upstream), h("span", { class: "soft small block" }, foreign(kind))),
      cell("Why", { class: "wide small" }, why(message)),
      cell("Tries", { class: "right" }, number(attempts)),
      cell("Age", { class: "right" }, settings.times === "relative" ? age(createdAt) : time(createdAt)));
  }

  function chosenBar() {
    const messages = [...chosen.values()];
    const isPageChosen = page.value?.messages.every(({ id }) => chosen.has(id));
    // The gateway does it by the filter, not by ids; it does not know every filter there.
    const canTakeAll = isPageChosen && page.value.next && filters.state && !filters.waitingFor;
    const actions = isAllChosen ? actionsFor(filters.state) : [...new Set(messages.flatMap(({ state }) => actionsFor(state)))];
    return h("div", { class: "chosen-bar", role: "region", "aria-label": "Chosen messages" },
      h("b", null, isAllChosen ? `All ${matching(filters)} that match` : `${number(messages.length)} chosen`),
      canTakeAll && !isAllChosen && button(`Choose all ${matching(filters)} that match`, () => (isAllChosen = true), { kind: "quiet" }),
      isPageChosen && page.value.next && filters.waitingFor && h("span", { class: "soft" }, "What messages wait for is not a filter of bulk actions, so only rows can be chosen."),
      h("span", { class: "grow" }),
      actions.map((action) => actionButton({ action, label: bulkLabel(action), iconName: bulkIcon(action),
        onclick: () => openBulk(action, isAllChosen ? { filter: filters } : { ids: messages }) })),
      button("Choose none", () => {
        chosen.clear();
        isAllChosen = false;
      }, { kind: "quiet" }));
  }
}

/** How many messages a filter matches, as far as the books say. */
function matching({ state, upstream, ...others }) {
  if (Object.values(others).some(Boolean)) return "";
  return number((data.upstreams ?? []).filter(({ name }) => !upstream || name === upstream).reduce((sum, one) => sum + keptOf(one, state), 0));
}

/** The messages in a state that are still stored. */
const keptOf = (upstream, state) => (state === "queued" ? upstream.queued : upstream.kept?.[state] ?? counted(upstream, state));

function tabs(filters) {
  const { state, upstream } = filters;
  const shown = (data.upstreams ?? []).filter(({ name }) => !upstream || name === upstream);
  const total = (name) => shown.reduce((sum, one) => sum + counted(one, name), 0);
  const tab = (name, label) => h("a", {
    class: "tab", href: address(["messages"], { ...filters, state: name, waitingFor: name === "queued" ? filters.waitingFor : undefined }),
    "aria-current": (state ?? "") === name ? "page" : null,
  }, label, name && data.upstreams && h("span", { class: "soft", "data-count": name, "data-value": total(name) }, number(total(name))));
  return h("nav", { class: "tabs", "aria-label": "States" }, tab("", "All"), TABS.map((name) => tab(name, name)));
}

const PERIODS = { "": "Any time", 900: "Last 15 min", 3600: "Last hour", 86400: "Last 24 h", custom: "From – to" };

let isCustomPeriod = false;

function filterForm(filters, apply) {
  const upstreams = data.upstreams ?? [];
  const kinds = [...new Set(upstreams.filter(({ name }) => !filters.upstream || name === filters.upstream).flatMap((one) => one.kinds))].sort();
  const hasPeriod = Boolean(filters.createdAfter || filters.createdBefore);
  const isCustom = hasPeriod || isCustomPeriod;
  const period = (value) => {
    isCustomPeriod = value === "custom";
    if (value === "custom") return;
    apply({ createdAfter: value ? new Date(serverNow() - 1000 * Number(value)).toISOString() : undefined, createdBefore: undefined });
  };
  const find = (event) => {
    const text = event.target.value.trim();
    if (MESSAGE_ID.test(text)) go(address(["messages", text]));
    else if (text !== (filters.key ?? "")) apply({ key: text });
  };
  return h("form", { class: "filters", role: "search", onsubmit: (event) => {
    event.preventDefault();
    document.activeElement?.blur?.();
  } },
  field("Id or key", h("input", { type: "search", value: filters.key ?? "", onchange: find, autocomplete: "off", spellcheck: "false" })),
  field("Upstream", select(filters.upstream ?? "", [["", "All"], ...upstreams.map(({ name }) => [name, name])], (upstream) => apply({ upstream, kind: undefined, group: undefined, lane: undefined }))),
  field("Kind", select(filters.kind ?? "", [["", "All"], ...kinds.map((kind) => [kind, kind])], (kind) => apply({ kind }))),
  (filters.state === "queued" || filters.waitingFor) && field("Waits for", select(filters.waitingFor ?? "", [["", "Anything"], ...Object.keys(WAITS).map((name) => [name, name])],
    (waitingFor) => apply({ waitingFor }))),
  field("Error", select(filters.errorClass ?? "", [["", "Any"], ...ERROR_CLASSES.map((name) => [name, name])], (errorClass) => apply({ errorClass }))),
  field("Error text", h("input", { type: "search", value: filters.errorText ?? "", onchange: (event) => apply({ errorText: event.target.value.trim() }), autocomplete: "off" })),
  field("Accepted", select(isCustom ? "custom" : "", Object.entries(PERIODS), period)),
  isCustom && field("From", timeInput("createdAfter", filters.createdAfter, (event) => apply({ createdAfter: parseInput(event.target.value) }))),
  isCustom && field("To", timeInput("createdBefore", filters.createdBefore, (event) => apply({ createdBefore: parseInput(event.target.value) }))),
  ["group", "lane"].filter((name) => filters[name]).map((name) => h("p", { class: "chip" }, `${name === "group" ? "Failure group" : "Lane"} `,
    h("code", null, foreign(filters[name], 40)), " ", h("a", { href: address(["messages"], { ...filters, [name]: undefined }), "aria-label": `Without this ${name}` }, icon("cross")))),
  Object.keys(filters).filter((name) => filters[name] && name !== "state").length > 0
    && h("a", { class: "button quiet", href: address(["messages"], { state: filters.state }) }, "Clear filters"));
}

const NOTHING = {
  failed: "No upstream has rejected a message that is still kept.",
  queued: "No message waits.",
  delivered: "No receipt of a delivered message is kept.",
  cancelled: "No message was cancelled.",
  dropped: "No message was evicted from a full queue.",
  expired: "No message has expired.",
};

function nothing(filters) {
  const { state, ...others } = filters;
  if (Object.values(others).some(Boolean)) return empty("No message matches these filters. ", h("a", { href: address(["messages"], { state }) }, "Clear the filters"));
  return empty(NOTHING[state] ?? "No message has been accepted yet. POST one to /v1/{upstream}/{kind}.");
}

// Saved views.

function savedViews() {
  return h("details", { class: "menu" }, h("summary", { class: "button quiet" }, icon("save"), `Saved views${settings.views.length ? ` (${settings.views.length})` : ""}`),
    h("div", { class: "panel" },
      settings.views.length ? h("ul", null, settings.views.map((view, index) => h("li", { key: view.address + view.name },
        h("a", { href: view.address }, foreign(view.name)),
        button("Delete", () => change({ views: settings.views.filter((_, other) => other !== index) }), { kind: "quiet small", "aria-label": `Delete the view ${view.name}` }))))
        : h("p", { class: "soft" }, "None is saved in this browser."),
      settings.views.length < MOST_VIEWS ? button("Save this view", openSave, { iconName: "plus" }) : h("p", { class: "soft" }, `At most ${MOST_VIEWS} can be saved.`)));
}

export function openSave() {
  let name = "";
  const saved = location.hash;
  openDialog({
    label: "Save this view",
    render: (close) => h("form", { onsubmit: (event) => {
      event.preventDefault();
      if (!name.trim()) return;
      change({ views: [...settings.views, { name: name.trim().slice(0, 80), address: saved }].slice(-MOST_VIEWS) });
      toast("The view is saved in this browser.");
      close();
    } },
    h("h2", null, "Save this view"), field("Name", h("input", { type: "text", maxlength: "80", required: true, autofocus: true, oninput: (event) => (name = event.target.value) })),
    h("div", { class: "buttons" }, button("Not now", close, { kind: "quiet", "data-action": "dismiss" }), h("button", { class: "button primary", type: "submit" }, "Save"))),
  });
}

// Download.

let downloading = null;

function download(ask) {
  const run = async () => {
    if (downloading) return;
    downloading = { done: 0 };
    const parts = [];
    try {
      let cursor;
      do {
        // As text, so that payloads and numbers stay as they are.
        const text = await (await ask({ limit: 500, cursor, include: "payload" }, { raw: true, patience: 30 })).text();
        const members = memberTexts(text);
        const rows = elementTexts(members.get("messages")).slice(0, MOST_DOWNLOADED - downloading.done);
        parts.push(...rows.map((row) => `${onOneLine(row)}\n`));
        downloading.done += rows.length;
        cursor = JSON.parse(members.get("next"));
      } while (cursor && downloading.done < MOST_DOWNLOADED);
      save(new Blob(parts, { type: "application/x-ndjson" }), "messages.ndjson");
      toast(`${count(parts.length, "message")} downloaded${cursor ? `; a download has at most ${number(MOST_DOWNLOADED)}, postern outbox export has all` : ""}.`);
    } catch (problem) {
      failed("The download failed", problem);
    }
    downloading = null;
  };
  return button(downloading ? `Downloading ${number(downloading.done)}` : "Download", run, { iconName: "down", kind: "quiet", title: `As NDJSON, at most ${number(MOST_DOWNLOADED)} messages` });
}
