// One message: what happened to it, its payload, what was or will be sent, and the upstream's answer.

import { actionsFor, isBusy, openBulk, retryOne } from "./actions.js";
import { call } from "./api.js";
import { bodyLines, codeBlock, difference, indented, lines, memberTexts, MOST_LINES } from "./payload.js";
import { h } from "./dom.js";
import { copy, save } from "./files.js";
import { clock, count, duration, exact, foreign, milliseconds, number, size, time, until } from "./format.js";
import { actionButton, button, cell, empty, facts, icon, loaded, problemBox, section, skeleton, stateBadge, upstreamLink } from "./parts.js";
import { Resource, upstreamNamed } from "./live.js";
import { MESSAGE_ID } from "./messages.js";
import { openResend } from "./resend.js";
import { address } from "./router.js";
import { outcome, why, WAITS } from "./words.js";

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
    const bytes = new Uint8Array(await (await call("GET", `${path}/payload`, { headers: { Accept: "*/*" }, raw: true, patience: 30 })).arrayBuffer());
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
    await Promise.all([value.state === "delivered" ? null : payload.load(), ["queued", "failed", "dropped"].includes(value.state) ? request.load() : null, findCallback(value)]);
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
          ? problemBox(message.problem.status === 404 ? Object.assign(message.problem, { message: "No message with this id is kept, or this key may not see it." }) : message.problem, load)
          : skeleton(8)];
      }
      return [
        h("nav", { class: "trail", "aria-label": "Breadcrumb" }, h("a", { href: address(["messages"]) }, "Messages"), icon("chevron"),
          upstreamLink(value.upstream), icon("chevron"), h("a", { href: address(["messages"], { upstream: value.upstream, kind: value.kind }) }, foreign(value.kind))),
        h("div", { class: "row" }, h("h1", { class: "id" }, foreign(value.id)), actions(value)),
        h("p", { class: "row start" }, stateBadge(value.state), h("span", null, why(value)), value.simulated && h("span", { class: "soft" }, " · delivered to a simulator")),
        links(value),
        h("div", { class: "columns message" },
          h("div", null, section("What happened", history(value)), value.result?.steps && steps(value.result.steps), details(value)),
          h("div", null, tabs(value), tabContent(value))),
      ];
    },
  };

  function actions(value) {
    const allowed = actionsFor(value.state);
    const text = payload.value?.text;
    return h("div", { class: "buttons" },
      // There from the beginning, so that no button moves when the payload arrives.
      value.state !== "delivered" && actionButton({ action: "edit", label: "Edit and resend", iconName: "edit", kind: "quiet", scope: "write",
        onclick: () => openResend(value, text), ...(text === undefined ? { "aria-disabled": "true", onclick: null } : {}) }),
      allowed.includes("cancel") && actionButton({ action: "cancel", label: "Cancel", iconName: "cross", onclick: () => openBulk("cancel", { ids: [value] }) }),
      allowed.includes("purge") && actionButton({ action: "purge", label: "Remove", iconName: "trash", kind: "quiet", onclick: () => openBulk("purge", { ids: [value] }) }),
      allowed.includes("retry") && actionButton({ action: "retry", label: "Retry", iconName: "retry", kind: "primary", isBusy: isBusy("retry", id), onclick: async () => {
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
      isCallback && h("p", { class: "soft" }, "If it is the event of a callback, it reports ", h("a", { class: "id", href: address(["messages", value.key]) }, foreign(value.key)), "."),
      callback?.length > 0 && h("p", { class: "soft" }, "Reported by ", callback.map((event, index) => [index > 0 && ", ",
        h("a", { class: "id", href: address(["messages", event.id]) }, foreign(event.id)), " to ", foreign(event.upstream), ` (${event.state})`]), "."),
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
        ? h("li", { class: "between", key: "folded" }, button(`Show ${count(log.length - 2 * SHOWN_AT_EACH_END, "more request")}`, () => (isUnfolded = true), { kind: "quiet" }))
        : attemptStep(attempt, most))),
      ending(value));
  }

  function details(value) {
    return facts([
      ["Upstream", upstreamLink(value.upstream)],
      ["Kind", foreign(value.kind)],
      ["Key", value.key === null ? "none" : h("a", { href: address(["messages"], { key: value.key }) }, foreign(value.key))],
      ["Lane", value.lane === null ? "none" : h("a", { href: address(["messages"], { upstream: value.upstream, lane: value.lane }) }, foreign(value.lane))],
      ["Accepted", exact(Date.parse(value.createdAt))],
      ["Settled", value.settledAt && exact(Date.parse(value.settledAt))],
      ["Attempts", `${number(value.attempts)} count against it, of ${count(value.attemptLog?.length ?? 0, "request")} that carried it`],
    ]);
  }

  function tabs(value) {
    const sent = { delivered: "What was sent", queued: "What will be sent" }[value.state] ?? "What would be sent";
    const names = { payload: "Payload", request: sent, answer: "Answer" };
    return h("div", { class: "tabs", role: "tablist", "aria-label": "Contents" }, Object.entries(names).map(([name, label]) => h("button", {
      type: "button", class: "tab", role: "tab", id: `tab-${name}`, "aria-selected": String(tab === name), "aria-controls": "tabpanel", tabindex: tab === name ? "0" : "-1",
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
    return h("div", { class: "panel tab-panel", role: "tabpanel", id: "tabpanel", "aria-labelledby": `tab-${tab}`, key: tab },
      tab === "payload" ? payloadPanel() : tab === "request" ? requestPanel(value) : answerPanel(value));
  }

  function payloadPanel() {
    if (payload.problem?.status === 404 || message.value.state === "delivered") return empty("The payload is no longer kept. Those of delivered messages are deleted with their delivery.");
    return loaded(payload, (value) => {
      value.block ??= payloadBlock(value.text);
      return [
        h("div", { class: "row bar-of-panel" }, h("span", { class: "soft small" }, `${size(value.bytes.length)}, shown as it came`),
          h("div", { class: "buttons" },
            button("Copy", () => copy(value.text, "The payload"), { iconName: "copy", kind: "quiet small" }),
            button("Download", () => save(new Blob([value.bytes], { type: "application/json" }), `${id}.json`), { iconName: "down", kind: "quiet small" }))),
        value.block,
      ];
    });
  }

  function payloadBlock(text) {
    const { lines: all, isCut } = lines(text);
    return [codeBlock(all, "Payload", { "data-payload": id }), isCut && h("p", { class: "soft small pad" }, `The first ${number(Math.min(all.length, MOST_LINES))} lines are shown. Download has all of it.`)];
  }

  function requestPanel(value) {
    if (value.state === "delivered") {
      const last = value.attemptLog?.at(-1);
      return [empty("The body of a delivered request is not kept. "), last && facts([["Batch", foreign(last.batch)], ["Sent", exact(Date.parse(last.startedAt))],
        ["Status", last.status], ["Messages", number(last.messages)], ["Detail", last.detail && foreign(last.detail)]])];
    }
    if (value.state === "cancelled" || value.state === "expired") return empty(`The message is ${value.state}; nothing is sent for it.`);
    if (request.problem?.status === 404) return empty("The payload is no longer kept, so no request can be made of it.");
    return loaded(request, ({ requests }) => requests.filter(Boolean).map((one, index) => {
      one.block ??= one.body === undefined ? null : requestBody(one, payload.value?.text, index);
      return [
        one.unsent && h("p", { class: "notice tone-warning" }, icon("clock"), h("span", null, "Nothing is sent now: ", foreign(one.unsent), ". ", one.waitingFor && `It ${WAITS[one.waitingFor] ?? one.waitingFor}.`)),
        one.method && h("p", { class: "request-line mono" }, h("b", null, one.method), " ", foreign(one.url)),
        one.headers && h("dl", { class: "headers mono small" }, Object.entries(one.headers).map(([name, text]) => h("div", null, h("dt", null, foreign(name)), h("dd", null, foreign(text))))),
        one.block,
        one.bodyBytesOmitted && h("p", { class: "soft small pad" }, `${size(one.bodyBytesOmitted)} more are not shown.`),
      ];
    }));
  }

  function answerPanel(value) {
    const status = value.lastError?.status ?? value.attemptLog?.at(-1)?.status;
    const head = facts([["Status", status], ["Error", value.lastError && [foreign(value.lastError.class), ": ", foreign(value.lastError.detail)]], ["At", value.lastError && time(value.lastError.at)]]);
    if (result === null || result === "null") return [h("div", { class: "pad" }, head), empty("No text of the upstream's answer is kept for this message.")];
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
    added.size > 0 && h("p", { class: "soft small pad" }, h("mark", { class: "added" }, "Marked"), " lines were added or changed by the gateway."),
    codeBlock(all, `Body of request ${index + 1}`, {}, (line) => added.has(line)),
    isCut && h("p", { class: "soft small pad" }, "The rest is not shown."),
  ];
}

const step = (tone, title, at, ...below) => h("li", { class: `tone-${tone}` },
  h("div", { class: "row" }, h("b", null, title), at && h("time", { class: "mono soft small", datetime: at, title: exact(Date.parse(at)) }, precise(at))),
  h("p", { class: "soft small" }, below));

/** "04:13:53.750". */
const precise = (at) => `${clock(Date.parse(at))}.${String(new Date(at).getMilliseconds()).padStart(3, "0")}`;

function attemptStep(attempt, most) {
  const { batch, startedAt, endedAt, outcome: name, status, detail, messages, step: stepName } = attempt;
  const [words, tone] = outcome(name);
  return h("li", { class: `tone-${tone}`, key: batch, "data-attempt": batch },
    h("div", { class: "row" }, h("b", null, stepName && [foreign(stepName), ": "], name === "rejected" && messages === 1 ? "Rejected by itself" : words),
      h("time", { class: "mono soft small", datetime: startedAt, title: exact(Date.parse(startedAt)) }, precise(startedAt))),
    detail && h("p", { class: "small" }, foreign(detail, 400)),
    h("p", { class: "soft small carried" },
      status && h("b", null, status), endedAt ? h("span", null, milliseconds(Date.parse(endedAt) - Date.parse(startedAt))) : h("span", null, "in flight"),
      h("span", { class: "share", "aria-hidden": "true" }, h("span", { style: { width: `${Math.max(4, (100 * messages) / most)}%` } })),
      h("span", null, messages === 1 ? "alone" : `among ${number(messages)}`), h("span", null, `batch ${batch}`)));
}

function ending(value) {
  const { state, settledAt, nextAttemptAt, waitingFor } = value;
  switch (state) {
    case "queued": return step("waiting", nextAttemptAt ? ["Next try ", until(nextAttemptAt)] : waitingFor ? "Waits" : "Is about to be sent", null,
      waitingFor ? `It ${WAITS[waitingFor] ?? waitingFor}.` : "Nothing holds it up.");
    case "delivered": return step("good", "Delivered", settledAt, "its payload is no longer kept");
    case "failed": return step("bad", "Failed", settledAt, "kept with its payload, and can be retried");
    case "cancelled": return step("plain", "Cancelled", settledAt, "by a caller; it is never sent");
    case "dropped": return step("held", "Dropped", settledAt, "evicted from a full queue");
    default: return step("warning", "Expired", settledAt, "older than it was allowed to become");
  }
}

const steps = (all) => section("Steps", h("table", { class: "cards panel" },
  h("thead", null, h("tr", null, ["Step", "Outcome", "Status", "At", "Event"].map((title) => h("th", { scope: "col" }, title)))),
  h("tbody", null, all.map((one) => h("tr", { key: one.step },
    h("th", { scope: "row" }, foreign(one.step)),
    cell("Outcome", { class: { done: "tone-good", failed: "tone-bad" }[one.outcome] }, one.outcome),
    cell("Status", {}, one.status ?? "–"),
    cell("At", {}, one.at ? time(one.at) : "–"),
    cell("Event", {}, one.event ? foreign(one.event) : "–"))))));

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function asCurl({ upstream, kind }, text) {
  const base = new URL("../", import.meta.url);
  return `curl -sS ${quoted(new URL(`v1/${upstream}/${kind}`, base).href)} -H 'Content-Type: application/json' `
    + `-H "Authorization: Bearer $POSTERN_KEY" --data-binary ${quoted(text)}`;
}

function asCommand({ id, state }) {
  return `postern outbox ${state === "failed" || state === "dropped" ? "retry" : "show"} ${id} --config /etc/postern/postern.json`;
}

