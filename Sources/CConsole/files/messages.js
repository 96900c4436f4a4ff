// The views of messages: the list, one message with its history, and Edit and resend.

import {
  address, age, call, change, changed, clock, copy, count, data, duration, exact, foreign, go, marked, milliseconds, MOST_VIEWS, number,
  parseInput, Resource, save, serverNow, settings, size, time, timeInput, until, upstreamNamed,
} from "./core.js";
import { h } from "./dom.js";
import {
  actionButton, actionsFor, bulkIcon, bulkLabel, button, cell, counted, empty, facts, failed, fault, field, icon, isBusy, loaded, messageLink,
  once, openBulk, openDialog, outcome, problemBox, retryOne, section, select, skeleton, stateBadge, table, toast, upstreamField, upstreamLink,
  WAITS, why,
} from "./parts.js";

const PAGE = 50;
const MOST_DOWNLOADED = 10_000;

const TABS = ["queued", "failed", "delivered", "cancelled", "dropped", "expired"];

const ERROR_CLASSES = ["unreachable", "timeout", "interrupted", "garbled", "busy", "failing", "unauthorized",
  "misconfigured", "refused", "damaged"];

export const MESSAGE_ID = /^[0-7][0-9a-hjkmnp-tv-z]{12}$/;

// The address from which Older led to the page of a cursor.
const cameFrom = new Map();

export function messagesView(_, query) {
  const { cursor, ...filters } = query;
  const chosen = new Map();
  let isAllChosen = false;
  let arrived = 0;
  const ask = (more, options) => call("GET", "v1/messages", { query: { ...filters, order: "newest", ...more },
    ...options });
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
        if (ids.some(({ state }) => actionsFor(state).includes("retry"))) openBulk("retry", { ids }, done);
      }
    },
    render() {
      return [
        h("div", { class: "row" }, h("h1", null, "Messages"), h("div", { class: "buttons" }, savedViews(),
          download(ask))),
        tabs(filters),
        filterForm(filters, apply),
        chosen.size > 0 && chosenBar(),
        arrived > 0 && h("p", null, button(`${arrived >= PAGE ? `${PAGE} or more` : number(arrived)} new`,
          () => page.load(), { iconName: "retry", kind: "wide" })),
        loaded(page, list, 8),
      ];
    },
  };

  function list({ messages, next }) {
    const isPageChosen = messages.length > 0 && messages.every(({ id }) => chosen.has(id));
    const all = h("input", {
      type: "checkbox", "aria-label": "Choose all on this page", checked: isPageChosen,
        indeterminate: chosen.size > 0 && !isPageChosen,
      onchange: (event) => messages.forEach((message) => choose(message, event.target.checked)),
    });
    return [
      messages.length > 0 && h("table", { class: "cards panel messages" },
        h("thead", null, h("tr", null, h("th", { class: "check" }, all),
          ["State", "Message", "Upstream and kind", "Why", "Tries",
            "Age"].map((title, index) => h("th", { scope: "col", class: index > 3 ? "right" : null }, title)))),
        h("tbody", null, messages.map(row))),
      !messages.length && !next && nothing(filters),
      messages.length < PAGE && next && h("p", { class: "soft" },
        "The gateway examines a bounded number of stored messages for a page. More may follow: Older goes on."),
      h("nav", { class: "buttons", "aria-label": "Pages" },
        cursor && h("a", { class: "button", href: cameFrom.get(cursor) ?? address(["messages"], filters) }, "Back"),
        next && h("a", { class: "button", href: address(["messages"], { ...filters, cursor: next }),
          onclick: () => cameFrom.set(next, location.hash) }, "Older")),
    ];
  }

  function row(message) {
    const { id, state, key, upstream, kind, attempts, createdAt } = message;
    return h("tr", { key: id, "data-message": id, "data-state": state, class: chosen.has(id) ? "chosen" : null },
      h("td", { class: "check" }, h("input", {
        type: "checkbox", "aria-label": `Choose ${id}`, checked: chosen.has(id),
        onchange: (event) => choose(message, event.target.checked),
      })),
      cell("State", {}, stateBadge(state)),
      h("th", { scope: "row" }, messageLink(id), key !== null && h("span", { class: "block small" },
        h("a", { class: "quiet-link", href: address(["messages"], { key }), "aria-label": `All with the key ${key}` },
          foreign(key, 40)))),
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
      canTakeAll && !isAllChosen && button(`Choose all ${matching(filters)} that match`, () => (isAllChosen = true),
        { kind: "quiet" }),
      isPageChosen && page.value.next && filters.waitingFor && h("span", { class: "soft" },
        "By what messages wait for, only rows can be chosen."),
      h("span", { class: "grow" }),
      actions.map((action) => actionButton({ action, label: bulkLabel(action), iconName: bulkIcon(action),
        onclick: () => openBulk(action, isAllChosen ? { filter: filters } : { ids: messages }, done) })),
      button("Choose none", chooseNone, { kind: "quiet" }));
  }

  function done() {
    chooseNone();
    page.load();
  }

  function chooseNone() {
    chosen.clear();
    isAllChosen = false;
  }
}

/** How many messages a filter matches, as far as the books say. */
function matching({ state, upstream, ...others }) {
  if (Object.values(others).some(Boolean)) return "";
  return number((data.upstreams ?? []).filter(({ name }) => !upstream || name === upstream)
    .reduce((sum, one) => sum + keptOf(one, state), 0));
}

const keptOf = ({ queued, kept }, state) => (state === "queued" ? queued : kept[state]);

function tabs(filters) {
  const { state, upstream } = filters;
  const shown = (data.upstreams ?? []).filter(({ name }) => !upstream || name === upstream);
  const total = (name) => shown.reduce((sum, one) => sum + counted(one, name), 0);
  const tab = (name, label) => h("a", {
    class: "tab", href: address(["messages"], { ...filters, state: name,
      waitingFor: name === "queued" ? filters.waitingFor : undefined }),
    "aria-current": (state ?? "") === name ? "page" : null,
  }, label, name && data.upstreams && h("span", { class: "soft", "data-count": name, "data-value": total(name) },
    number(total(name))));
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
    apply({ createdAfter: value ? new Date(serverNow() - 1000 * Number(value)).toISOString() : undefined,
      createdBefore: undefined });
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
  field("Id or key", h("input", { type: "search", value: filters.key ?? "", onchange: find, autocomplete: "off",
    spellcheck: "false" })),
  upstreamField(filters.upstream,
    (upstream) => apply({ upstream, kind: undefined, group: undefined, lane: undefined })),
  field("Kind", select(filters.kind ?? "", [["", "All"], ...kinds.map((kind) => [kind, kind])],
    (kind) => apply({ kind }))),
  (filters.state === "queued" || filters.waitingFor) && field("Waits for",
    select(filters.waitingFor ?? "", [["", "Anything"], ...Object.keys(WAITS).map((name) => [name, name])],
    (waitingFor) => apply({ waitingFor }))),
  field("Error", select(filters.errorClass ?? "", [["", "Any"], ...ERROR_CLASSES.map((name) => [name, name])],
    (errorClass) => apply({ errorClass }))),
  field("Error text", h("input", { type: "search", value: filters.errorText ?? "",
    onchange: (event) => apply({ errorText: event.target.value.trim() }), autocomplete: "off" })),
  field("Accepted", select(isCustom ? "custom" : "", Object.entries(PERIODS), period)),
  isCustom && field("From", timeInput("createdAfter", filters.createdAfter,
    (event) => apply({ createdAfter: parseInput(event.target.value) }))),
  isCustom && field("To", timeInput("createdBefore", filters.createdBefore,
    (event) => apply({ createdBefore: parseInput(event.target.value) }))),
  ["group", "lane"].filter((name) => filters[name]).map((name) => h("p", { class: "chip" },
    `${name === "group" ? "Failure group" : "Lane"} `,
    h("code", null, foreign(filters[name], 40)), " ",
      h("a", { href: address(["messages"], { ...filters, [name]: undefined }), "aria-label": `Without this ${name}` },
      icon("cross")))),
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
  if (Object.values(others).some(Boolean)) return empty("No message matches these filters. ",
    h("a", { href: address(["messages"], { state }) }, "Clear the filters"));
  return empty(NOTHING[state] ?? "No message has been accepted yet. POST one to /v1/{upstream}/{kind}.");
}

function savedViews() {
  return h("details", { class: "menu" }, h("summary", { class: "button quiet" }, icon("save"),
    `Saved views${settings.views.length ? ` (${settings.views.length})` : ""}`),
    h("div", { class: "panel" },
      settings.views.length ? h("ul", null,
        settings.views.map((view, index) => h("li", { key: view.address + view.name },
        h("a", { href: view.address }, foreign(view.name)),
        button("Delete", () => change({ views: settings.views.filter((_, other) => other !== index) }),
          { kind: "quiet small", "aria-label": `Delete the view ${view.name}` }))))
        : h("p", { class: "soft" }, "None is saved in this browser."),
      settings.views.length < MOST_VIEWS ? button("Save this view", openSave, { iconName: "plus" }) : h("p",
        { class: "soft" }, `At most ${MOST_VIEWS} can be saved.`)));
}

function openSave() {
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
    h("h2", null, "Save this view"),
      field("Name", h("input", { type: "text", maxlength: "80", required: true, autofocus: true,
      oninput: (event) => (name = event.target.value) })),
    h("div", { class: "buttons" }, button("Not now", close, { kind: "quiet", "data-action": "dismiss" }),
      h("button", { class: "button primary", type: "submit" }, "Save"))),
  });
}

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
  return button(downloading ? `Downloading ${number(downloading.done)}` : "Download", run,
    { iconName: "down", kind: "quiet", title: `As NDJSON, at most ${number(MOST_DOWNLOADED)} messages` });
}

/** More requests than this are folded in the middle. */
const MOST_REQUESTS = 9;
const SHOWN_AT_EACH_END = 4;

export function messageView({ id }) {
  const path = `v1/messages/${encodeURIComponent(id)}`;
  let result = null;
  const message = new Resource(async () => {
    // The answer is shown as it came, so it is taken from the text.
    const text = await (await call("GET", path, { query: { include: "attempts" }, raw: true })).text();
    result = memberTexts(text).get("result") ?? null;
    return JSON.parse(text);
  });
  const payload = new Resource(async () => {
    const bytes = new Uint8Array(await (await call("GET", `${path}/payload`,
      { headers: { Accept: "*/*" }, raw: true, patience: 30 })).arrayBuffer());
    return { bytes, text: new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes) };
  });
  const request = new Resource(() => call("GET", `${path}/request`));
  let callback = null;
  let tab = "payload";
  let isUnfolded = false;
  let shownState = null;

  async function load() {
    await message.load();
    const { value } = message;
    if (!value || value.state === shownState) return;
    shownState = value.state;
    // That of a delivered message is not kept.
    await Promise.all([value.state === "delivered" ? null : payload.load(),
      ["queued", "failed", "dropped"].includes(value.state) ? request.load() : null, findCallback(value)]);
  }

  /** The event of a callback has the id of the message that it reports as its key. */
  async function findCallback(value) {
    try {
      const found = await call("GET", "v1/messages", { query: { key: value.id, limit: 3, order: "newest" } });
      callback = found.messages;
    } catch {
      callback = null;
    }
  }

  return {
    name: "message",
    title: () => (message.value ? `${message.value.state} · ${id}` : id),
    tasks: [{ every: 10, load }],
    state: () => message.value?.state,
    key(name) {
      if (name === "r" && message.value && actionsFor(message.value.state).includes("retry")) retryOne(id);
    },
    render() {
      const { value } = message;
      if (value === null) {
        return [h("h1", { class: "id" }, foreign(id)), message.problem
          ? problemBox(message.problem.status === 404 ? Object.assign(message.problem,
            { message: "No message with this id is kept, or this key may not see it." }) : message.problem, load)
          : skeleton(8)];
      }
      return [
        h("nav", { class: "trail", "aria-label": "Breadcrumb" }, h("a", { href: address(["messages"]) }, "Messages"),
          icon("chevron"),
          upstreamLink(value.upstream), icon("chevron"),
            h("a", { href: address(["messages"], { upstream: value.upstream, kind: value.kind }) },
            foreign(value.kind))),
        h("div", { class: "row" }, h("h1", { class: "id" }, foreign(value.id)), actions(value)),
        h("p", { class: "row start" }, stateBadge(value.state), h("span", null, why(value))),
        links(value),
        h("div", { class: "columns message" },
          h("div", null, section("What happened", history(value)), value.result?.steps && steps(value.result.steps),
            details(value)),
          h("div", null, tabs(value), tabContent(value))),
      ];
    },
  };

  function actions(value) {
    const allowed = actionsFor(value.state);
    const text = payload.value?.text;
    return h("div", { class: "buttons" },
      // There from the beginning, so that no button moves when the payload arrives.
      value.state !== "delivered" && actionButton({ action: "edit", label: "Edit and resend", iconName: "edit",
        kind: "quiet", scope: "write",
        onclick: () => openResend(value, text),
          ...(text === undefined ? { "aria-disabled": "true", onclick: null } : {}) }),
      allowed.includes("cancel") && actionButton({ action: "cancel", label: "Cancel", iconName: "cross",
        onclick: () => openBulk("cancel", { ids: [value] }) }),
      allowed.includes("purge") && actionButton({ action: "purge", label: "Remove", iconName: "trash", kind: "quiet",
        onclick: () => openBulk("purge", { ids: [value] }) }),
      allowed.includes("retry") && actionButton({ action: "retry", label: "Retry", iconName: "retry", kind: "primary",
        isBusy: isBusy("retry", id), onclick: async () => {
        await retryOne(id);
        load();
      } }),
      h("details", { class: "menu" }, h("summary", { class: "button quiet" }, icon("copy"), "Copy"),
        h("div", { class: "panel" },
          text !== undefined && button("As curl", () => copy(asCurl(value, text), "The command"), { kind: "quiet" }),
          button("As postern command", () => copy(asCommand(value), "The command"), { kind: "quiet" }),
          button("Link to this page", () => copy(location.href, "The link"), { kind: "quiet" }))));
  }

  function links(value) {
    const isCallback = upstreamNamed(value.upstream)?.type === "webhook" && MESSAGE_ID.test(value.key ?? "");
    return [
      isCallback && h("p", { class: "soft" }, "An event about ", h("a",
        { class: "id", href: address(["messages", value.key]) }, foreign(value.key)), "."),
      callback?.length > 0 && h("p", { class: "soft" }, "Reported by ",
        callback.map((event, index) => [index > 0 && ", ",
        h("a", { class: "id", href: address(["messages", event.id]) }, foreign(event.id)), " to ",
          foreign(event.upstream), ` (${event.state})`]), "."),
    ];
  }

  function history(value) {
    const log = value.attemptLog ?? [];
    const isFolded = log.length > MOST_REQUESTS && !isUnfolded;
    const shown = isFolded ? [...log.slice(0, SHOWN_AT_EACH_END), null, ...log.slice(-SHOWN_AT_EACH_END)] : log;
    const most = Math.max(1, ...log.map(({ messages }) => messages));
    const firstWait = log.length ? Date.parse(log[0].startedAt) - Date.parse(value.createdAt) : 0;
    return h("ol", { class: "steps" },
      step("good", "Accepted", value.createdAt, "on disk before the answer left"),
      firstWait >= 1000 && h("li", { class: "between" }, `waited ${duration(firstWait / 1000)}`),
      shown.map((attempt) => (attempt === null
        ? h("li", { class: "between", key: "folded" },
          button(`Show ${count(log.length - 2 * SHOWN_AT_EACH_END, "more request")}`, () => (isUnfolded = true),
          { kind: "quiet" }))
        : attemptStep(attempt, most))),
      ending(value));
  }

  function details(value) {
    return facts([
      ["Upstream", upstreamLink(value.upstream)],
      ["Kind", foreign(value.kind)],
      ["Key", value.key === null ? "none" : h("a", { href: address(["messages"], { key: value.key }) },
        foreign(value.key))],
      ["Lane", value.lane === null ? "none" : h("a",
        { href: address(["messages"], { upstream: value.upstream, lane: value.lane }) }, foreign(value.lane))],
      ["Accepted", exact(Date.parse(value.createdAt))],
      ["Settled", value.settledAt && exact(Date.parse(value.settledAt))],
      ["Attempts", `${number(value.attempts)} count against it, of ${count(value.attemptLog?.length ?? 0, "request")} that carried it`],
    ]);
  }

  function tabs(value) {
    const sent = { delivered: "What was sent", queued: "What will be sent" }[value.state] ?? "What would be sent";
    const names = { payload: "Payload", request: sent, answer: "Answer" };
    return h("div", { class: "tabs", role: "tablist", "aria-label": "Contents" },
      Object.entries(names).map(([name, label]) => h("button", {
      type: "button", class: "tab", role: "tab", id: `tab-${name}`, "aria-selected": String(tab === name),
        "aria-controls": "tabpanel", tabindex: tab === name ? "0" : "-1",
      onclick: () => (tab = name),
      onkeydown: (event) => {
        const all = Object.keys(names);
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        tab = all[(all.indexOf(tab) + step + all.length) % all.length];
        queueMicrotask(() => document.getElementById(`tab-${tab}`)?.focus());
      },
    }, label)));
  }

  function tabContent(value) {
    return h("div", { class: "panel tab-panel", role: "tabpanel", id: "tabpanel", "aria-labelledby": `tab-${tab}`,
      key: tab },
      tab === "payload" ? payloadPanel() : tab === "request" ? requestPanel(value) : answerPanel(value));
  }

  function payloadPanel() {
    if (payload.problem?.status === 404 || message.value.state === "delivered") return empty("The payload is no longer kept. That of a delivered message is deleted.");
    return loaded(payload, (value) => {
      value.block ??= payloadBlock(value.text);
      return [
        h("div", { class: "row bar-of-panel" }, h("span", { class: "soft small" },
          `${size(value.bytes.length)}, shown as it came`),
          h("div", { class: "buttons" },
            button("Copy", () => copy(value.text, "The payload"), { iconName: "copy", kind: "quiet small" }),
            button("Download", () => save(new Blob([value.bytes], { type: "application/json" }), `${id}.json`),
              { iconName: "down", kind: "quiet small" }))),
        value.block,
      ];
    });
  }

  function payloadBlock(text) {
    const { lines: all, isCut } = lines(text);
    return [codeBlock(all, "Payload", { "data-payload": id }), isCut
      && h("p", { class: "soft small pad" },
      `The first ${number(Math.min(all.length, MOST_LINES))} lines are shown. Download has all of it.`)];
  }

  function requestPanel(value) {
    if (value.state === "delivered") {
      const last = value.attemptLog?.at(-1);
      return [empty("The body of a delivered request is not kept. "),
        last && facts([["Batch", foreign(last.batch)], ["Sent", exact(Date.parse(last.startedAt))],
        ["Status", last.status], ["Messages", number(last.messages)],
          ["Detail", last.detail && foreign(last.detail)]])];
    }
    if (value.state === "cancelled" || value.state === "expired") return empty(`The message is ${value.state}; nothing is sent for it.`);
    if (request.problem?.status === 404) return empty("The payload is no longer kept, so no request can be made of it.");
    return loaded(request, ({ requests }) => requests.filter(Boolean).map((one, index) => {
      one.block ??= one.body === undefined ? null : requestBody(one, payload.value?.text, index);
      return [
        one.unsent && h("p", { class: "notice tone-warning" }, icon("clock"),
          h("span", null, "Nothing is sent now: ", foreign(one.unsent), ". ",
          one.waitingFor && `It ${WAITS[one.waitingFor] ?? one.waitingFor}.`)),
        one.method && h("p", { class: "request-line mono" }, h("b", null, one.method), " ", foreign(one.url)),
        one.headers && h("dl", { class: "headers mono small" },
          Object.entries(one.headers).map(([name, text]) => h("div", null, h("dt", null, foreign(name)),
          h("dd", null, foreign(text))))),
        one.block,
        one.bodyBytesOmitted && h("p", { class: "soft small pad" },
          `${size(one.bodyBytesOmitted)} more are not shown.`),
      ];
    }));
  }

  function answerPanel(value) {
    const status = value.lastError?.status ?? value.attemptLog?.at(-1)?.status;
    const head = facts([["Status", status],
      ["Error", value.lastError && [foreign(value.lastError.class), ": ", foreign(value.lastError.detail)]],
      ["At", value.lastError && time(value.lastError.at)]]);
    if (result === null || result === "null") return [h("div", { class: "pad" }, head),
      empty("No text of the upstream's answer is kept for this message.")];
    return [h("div", { class: "pad" }, head), codeBlock(bodyLines(result).lines, "Answer of the upstream")];
  }
}

/** The body of a request, in which lines that are not in the payload are marked. */
function requestBody({ body }, payloadText, index) {
  const { lines: all, isCut } = bodyLines(body);
  const bare = (text) => text.trim().replace(/,$/, "");
  const texts = all.map((line) => bare(line.map(({ text }) => text).join("")));
  const added = new Set();
  if (payloadText !== undefined) {
    let number = 0;
    for (const { kind } of difference(indented(payloadText).split("\n").map(bare), texts)) {
      if (kind === "removed") continue;
      if (kind === "added") added.add(number);
      number += 1;
    }
  }
  return [
    added.size > 0 && h("p", { class: "soft small pad" }, h("mark", { class: "added" }, "Marked"),
      " lines are the gateway's."),
    codeBlock(all, `Body of request ${index + 1}`, {}, (line) => added.has(line)),
    isCut && h("p", { class: "soft small pad" }, "The rest is not shown."),
  ];
}

const step = (tone, title, at, ...below) => h("li", { class: `tone-${tone}` },
  h("div", { class: "row" }, h("b", null, title),
    at && h("time", { class: "mono soft small", datetime: at, title: exact(Date.parse(at)) }, precise(at))),
  h("p", { class: "soft small" }, below));

const precise = (at) => `${clock(Date.parse(at))}.${String(new Date(at).getMilliseconds()).padStart(3, "0")}`;

function attemptStep(attempt, most) {
  const { batch, startedAt, endedAt, outcome: name, status, detail, messages, step: stepName } = attempt;
  const [words, tone] = outcome(name);
  return h("li", { class: `tone-${tone}`, key: batch, "data-attempt": batch },
    h("div", { class: "row" }, h("b", null, stepName && [foreign(stepName), ": "],
      name === "rejected" && messages === 1 ? "Rejected by itself" : words),
      h("time", { class: "mono soft small", datetime: startedAt, title: exact(Date.parse(startedAt)) },
        precise(startedAt))),
    detail && h("p", { class: "small" }, foreign(detail, 400)),
    h("p", { class: "soft small carried" },
      status && h("b", null, status),
        endedAt ? h("span", null, milliseconds(Date.parse(endedAt) - Date.parse(startedAt))) : h("span", null,
        "in flight"),
      h("span", { class: "share", "aria-hidden": "true" }, h("span",
        { style: { width: `${Math.max(4, (100 * messages) / most)}%` } })),
      h("span", null, messages === 1 ? "alone" : `among ${number(messages)}`), h("span", null, `batch ${batch}`)));
}

function ending(value) {
  const { state, settledAt, nextAttemptAt, waitingFor } = value;
  switch (state) {
    case "queued": return step("waiting", nextAttemptAt ? ["Next try ", until(nextAttemptAt)] : waitingFor
      ? "Waits" : "Is about to be sent", null,
      waitingFor ? `It ${WAITS[waitingFor] ?? waitingFor}.` : "Nothing holds it up.");
    case "delivered": return step("good", "Delivered", settledAt, "its payload is no longer kept");
    case "failed": return step("bad", "Failed", settledAt, "kept with its payload, and can be retried");
    case "cancelled": return step("plain", "Cancelled", settledAt, "by a caller; it is never sent");
    case "dropped": return step("held", "Dropped", settledAt, "evicted from a full queue");
    default: return step("warning", "Expired", settledAt, "older than it was allowed to become");
  }
}

const steps = (all) => section("Steps", table([["Step"], ["Outcome"], ["Status"], ["At"], ["Event"]], all.map((one) => [
  { key: one.step }, foreign(one.step), h("span", { class: { done: "tone-good", failed: "tone-bad" }[one.outcome] },
    one.outcome),
  one.status ?? "–", one.at ? time(one.at) : "–", one.event ? foreign(one.event) : "–"])));

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function asCurl({ upstream, kind }, text) {
  const base = new URL("../", import.meta.url);
  return `curl -sS ${quoted(new URL(`v1/${upstream}/${kind}`, base).href)} -H 'Content-Type: application/json' `
    + `-H "Authorization: Bearer $POSTERN_KEY" --data-binary ${quoted(text)}`;
}

function asCommand({ id, state }) {
  return `postern outbox ${state === "failed" || state === "dropped" ? "retry" : "show"} ${id}`;
}

// Edit and resend.

/** Milliseconds after the last key press. */
const CHECK_AFTER = 400;

/** Unchanged lines that are shown around a change. */
const AROUND = 2;

function openResend(message, payload) {
  const resend = new Resend(message, payload);
  resend.check();
  openDialog({ label: "Edit and resend", kind: "wide", attributes: { "data-edit": message.id },
    render: (close) => resend.render(close) });
}

class Resend {
  problem = null;
  isChecked = false;
  sentID = null;
  #timer;
  #generation = 0;
  #writtenAt = 0;

  constructor(message, payload) {
    this.message = message;
    this.stored = indented(payload);
    this.text = this.stored;
    this.changes = [];
  }

  /** The request. The payload is put into it as it is written, so numbers and escapes stay. */
  #envelope() {
    const { upstream, kind, key } = this.message;
    this.before = `{"upstream":${JSON.stringify(upstream)},"kind":${JSON.stringify(kind)},${key === null ? "" : `"key":${JSON.stringify(key)},`}"payload":`;
    return `${this.before}${this.text}}`;
  }

  #typed(text) {
    this.text = text;
    this.#writtenAt = Date.now();
    this.isChecked = false;
    this.#generation++; // One under way is outdated.
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.check(), CHECK_AFTER);
    changed();
  }

  async check() {
    const generation = ++this.#generation;
    this.changes = difference(this.stored.split("\n"), this.text.split("\n"));
    let problem = null;
    try {
      await call("POST", "v1/messages", { query: { dryRun: "true" }, body: this.#envelope(), patience: 15 });
    } catch (caught) {
      problem = caught;
    }
    if (generation !== this.#generation) return;
    this.problem = problem;
    this.isChecked = true;
    changed();
  }

  send() {
    return once(["resend", this.message.id], async () => {
      try {
        this.sentID = (await call("POST", "v1/messages",
          { body: this.#envelope(), headers: { "Idempotency-Key": `${this.message.id}-${this.#writtenAt}` }, patience: 15 })).id;
        toast("Sent as a new message.", { link: [address(["messages", this.sentID]), "Open it"] });
      } catch (problem) {
        this.problem = problem;
      }
    });
  }

  render(close) {
    return this.sentID ? this.#sent(close) : this.#editor(close);
  }

  #editor(close) {
    const { problem, isChecked, message } = this;
    const isChanged = this.text !== this.stored;
    return [
      h("h2", null, "Edit and resend"),
      h("p", { class: "soft" }, "Sent as a new message to ", foreign(message.upstream), ", kind ",
        foreign(message.kind),
        message.key === null ? ", without a key" : [", with the same key ", foreign(message.key)],
          ". It takes its place at the end of its lane."),
      h("div", { class: "columns" },
        h("div", null,
          h("label", { class: "field" }, h("span", null, "Payload"),
            h("textarea", { value: this.text, rows: "16", spellcheck: "false", autocomplete: "off",
              autocapitalize: "off", autofocus: true,
              oninput: (event) => this.#typed(event.target.value) })),
          h("div", { role: "status" }, !isChecked ? h("p", { class: "soft" }, "Checking…")
            : problem ? this.#faults(problem) : h("p", { class: "tone-good" }, "The gateway would accept it."))),
        h("div", null, h("h3", null, "Difference to the stored one"),
          isChanged ? this.#difference() : h("p", { class: "soft" }, "Nothing is changed."))),
      h("div", { class: "buttons" }, button("Not now", close, { kind: "quiet", "data-action": "dismiss" }),
        actionButton({ action: "confirm", label: "Send as a new message", iconName: "right", kind: "primary",
          scope: "write", isBusy: isBusy("resend", message.id),
          onclick: () => isChecked && !problem && this.send(),
            ...(isChecked && !problem ? {} : { "aria-disabled": "true" }) })),
    ];
  }

  #faults(problem) {
    if (problem.status !== 422 && problem.status !== 400) return problemBox(problem, () => this.check());
    const offset = problem.members.offset;
    // Bytes before the payload are those of the envelope, which is ASCII but for the key.
    const place = offset === undefined ? null : offset - new TextEncoder().encode(this.before).length;
    return h("div", { class: "problem" },
      h("p", null, problem.errors.length
        ? `The gateway would reject it: ${count(problem.errors.length, "fault")}.` : foreign(problem.message)),
      place !== null && place >= 0 && h("p", { class: "soft" },
        `At byte ${place} of the payload, line ${this.#lineAt(place)}.`),
      h("ul", null, problem.errors.slice(0, 20).map(fault)));
  }

  #lineAt(byte) {
    return new TextDecoder().decode(new TextEncoder().encode(this.text).slice(0, byte)).split("\n").length;
  }

  #difference() {
    const near = this.changes.map(({ kind }, index) => kind !== "same" || this.changes.slice(Math.max(0,
      index - AROUND), index + AROUND + 1).some((line) => line.kind !== "same"));
    const signs = { same: " ", removed: "-", added: "+" };
    return h("div", { class: "code diff", tabindex: "0", role: "region", "aria-label": "Difference" },
      h("pre", { class: "text" },
      this.changes.slice(0, 2000).map(({ kind, text }, index) => near[index]
        && h(kind === "removed" ? "del" : kind === "added" ? "ins" : "span", null, `${signs[kind]} `, marked(text)))));
  }

  #sent(close) {
    const { message, sentID } = this;
    const isSettled = message.state !== "queued";
    return [
      h("h2", { tabindex: "-1" }, "Sent as a new message"),
      h("p", null, "The new one is ", h("a", { class: "id", href: address(["messages", sentID]), onclick: close },
        foreign(sentID)), ". The old one is still ",
        foreign(message.state), "; ", isSettled
          ? "remove it if it is not needed any more." : "cancel it if it must not be sent as well."),
      h("div", { class: "buttons" }, button("Keep the old one", close, { kind: "quiet", "data-action": "dismiss" }),
        isSettled
          ? actionButton({ action: "purge", label: "Remove the old one…", iconName: "trash", onclick: () => {
            close();
            openBulk("purge", { ids: [message] });
          } })
          : actionButton({ action: "cancel", label: "Cancel the old one…", iconName: "cross", onclick: () => {
            close();
            openBulk("cancel", { ids: [message] });
          } })),
    ];
  }
}

// Shows a payload without parsing it: tokens are copied as they are written, so `12345678901234567890`, `1e400`, `1.10`, the
// order of members and escapes stay. Only white space between tokens is changed. The difference of texts.

// White space, a string, a number or a word, or a structural character. What is none of these is passed on.
const TOKEN = /[ \t\r\n]+|"(?:[^"\\]|\\.)*"?|[^\s"{}[\],:]+|[{}[\],:]/gsu;

/** The most lines and characters that are shown; the rest can be downloaded. */
const MOST_LINES = 2000;
const MOST_CHARACTERS = 256 * 1024;

/** The lines of a JSON text, each an array of `{text, kind}`; `isCut` if there are more. */
function lines(text, mostLines = MOST_LINES, mostCharacters = MOST_CHARACTERS) {
  const all = [];
  let line = [];
  let depth = 0;
  let isEmpty = false;
  let position = 0;
  const isFull = () => all.length >= mostLines;
  const breakLine = () => {
    all.push(line);
    line = depth > 0 ? [{ text: "  ".repeat(Math.min(depth, 64)), kind: "space" }] : [];
  };
  // A long text is cut before the tokenizer sees it: a single string may be all of it.
  const shown = text.length > mostCharacters ? text.slice(0, mostCharacters) : text;
  const tokens = shown.matchAll(TOKEN);
  for (const { 0: token, index } of tokens) {
    if (isFull()) break;
    position = index + token.length;
    const first = token[0];
    if (first === " " || first === "\t" || first === "\r" || first === "\n") continue;
    if (first === "{" || first === "[") {
      if (isEmpty) breakLine();
      line.push({ text: token, kind: "mark" });
      depth += 1;
      isEmpty = true;
      continue;
    }
    if (first === "}" || first === "]") {
      depth = Math.max(0, depth - 1);
      if (!isEmpty) breakLine();
      isEmpty = false;
      line.push({ text: token, kind: "mark" });
      continue;
    }
    if (isEmpty) breakLine();
    isEmpty = false;
    if (first === ",") {
      line.push({ text: token, kind: "mark" });
      breakLine();
    } else if (first === ":") {
      const name = line.at(-1);
      if (name?.kind === "string") name.kind = "name";
      line.push({ text: token, kind: "mark" }, { text: " ", kind: "space" });
    } else {
      line.push({ text: token, kind: first === '"' ? "string" : /^[-\d]/.test(first) ? "number" : "word" });
    }
  }
  if (line.length && !isFull()) all.push(line);
  return { lines: all, isCut: shown.length < text.length || position < shown.length };
}

const indented = (text) =>
  lines(text, Infinity, Infinity).lines.map((line) => line.map((token) => token.text).join("")).join("\n");

/**
 * A block with numbered lines. `attributes` are put on the element whose text is that of the lines. `isMarked` says which
 * lines are marked.
 */
function codeBlock(allLines, label, attributes = {}, isMarked = () => false) {
  const body = [];
  allLines.forEach((line, number) => {
    const parts = line.map(({ text, kind }) => (kind === "string" || kind === "number" || kind === "word"
      ? h("span", { class: `json-${kind}` }, marked(text)) : marked(text)));
    body.push(isMarked(number) ? h("mark", { class: "added" }, parts) : parts,
      number < allLines.length - 1 ? "\n" : "");
  });
  return h("div", { class: "code", tabindex: "0", role: "region", "aria-label": label },
    h("pre", { class: "numbers", "aria-hidden": "true" }, allLines.map((_, number) => number + 1).join("\n")),
    h("pre", { class: "text" }, h("bdi", attributes, body)));
}

/** Lines of a text that need not be JSON. */
function plainLines(text, most = MOST_LINES) {
  const all = text.slice(0, MOST_CHARACTERS).split("\n");
  return { lines: all.slice(0, most).map((line) => [{ text: line, kind: "mark" }]),
    isCut: all.length > most || text.length > MOST_CHARACTERS };
}

/** JSON is indented, other text stays as it is. */
const bodyLines = (text) => (/^\s*[{["]/.test(text) ? lines(text) : plainLines(text));

/** The texts of the members of an object, by name, as they are written. */
const memberTexts = (text) => new Map(childTexts(text).map(({ name, value }) => [JSON.parse(name), value]));

const elementTexts = (text) => childTexts(text).map(({ value }) => value);

/** The text with a blank for white space that has line breaks. Strings have none. */
const onOneLine = (text) => text.replace(TOKEN,
  (token) => (/^[\r\n\t ]/.test(token) && /[\r\n]/.test(token) ? " " : token));

function childTexts(text) {
  const children = [];
  let depth = 0;
  let start = null;
  let name = null;
  const end = (index) => {
    if (start !== null) children.push({ name, value: text.slice(start, index).trim() });
    start = null;
    name = null;
  };
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    const first = token[0];
    if ((first === "}" || first === "]") && --depth === 0) end(index);
    if (depth === 1 && first === ",") end(index);
    else if (depth === 1 && first === ":") {
      name = text.slice(start, index).trim();
      start = null;
    } else if (depth >= 1 && start === null && !/\s/.test(first)) start = index;
    if (first === "{" || first === "[") depth += 1;
  }
  return children;
}

/** Above this many pairs of lines, everything between the common beginning and end counts as replaced. */
const MOST_PAIRS = 1_000_000;

/** `[{kind: "same" | "removed" | "added", text}]`, which lead from `before` to `after`, both arrays of lines. */
function difference(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < before.length - start && end < after.length - start
    && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const same = (lines) => lines.map((text) => ({ kind: "same", text }));
  return [
    ...same(before.slice(0, start)),
    ...middle(before.slice(start, before.length - end), after.slice(start, after.length - end)),
    ...same(before.slice(before.length - end)),
  ];
}

function middle(before, after) {
  const removed = (text) => ({ kind: "removed", text });
  const added = (text) => ({ kind: "added", text });
  if (before.length * after.length > MOST_PAIRS) return [...before.map(removed), ...after.map(added)];
  const width = after.length + 1;
  // The length of the longest common subsequence of what follows.
  const lengths = new Uint32Array((before.length + 1) * width);
  for (let row = before.length - 1; row >= 0; row -= 1) {
    for (let column = after.length - 1; column >= 0; column -= 1) {
      lengths[row * width + column] = before[row] === after[column]
        ? lengths[(row + 1) * width + column + 1] + 1
        : Math.max(lengths[(row + 1) * width + column], lengths[row * width + column + 1]);
    }
  }
  const result = [];
  let row = 0;
  let column = 0;
  while (row < before.length && column < after.length) {
    if (before[row] === after[column]) {
      result.push({ kind: "same", text: before[row] });
      row += 1;
      column += 1;
    } else if (lengths[(row + 1) * width + column] >= lengths[row * width + column + 1]) result.push(removed(before[row++]));
    else result.push(added(after[column++]));
  }
  return [...result, ...before.slice(row).map(removed), ...after.slice(column).map(added)];
}
