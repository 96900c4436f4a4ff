// What states, reasons and outcomes are called, with their color and icon. The color is never the only sign.

import { h } from "./dom.js";
import { count, duration, foreign, number, size, time, until } from "./format.js";

export const HEALTHS = {
  up: { tone: "good", icon: "check" },
  degraded: { tone: "warning", icon: "alert" },
  down: { tone: "bad", icon: "cross" },
  unauthorized: { tone: "bad", icon: "lock" },
  misconfigured: { tone: "bad", icon: "wrench" },
  paused: { tone: "held", icon: "pause" },
  disabled: { tone: "held", icon: "off" },
};

export const STATES = {
  delivered: { tone: "good", icon: "check" },
  queued: { tone: "waiting", icon: "clock" },
  failed: { tone: "bad", icon: "ban" },
  cancelled: { tone: "plain", icon: "cross" },
  dropped: { tone: "held", icon: "down" },
  expired: { tone: "warning", icon: "clock" },
};

/** Worst first. */
const SEVERITY = ["unauthorized", "misconfigured", "down", "degraded", "paused", "disabled", "up"];

/** Seconds that the oldest due message of an upstream may wait before the page calls it behind. */
const BEHIND = 30;

export const isBehind = (upstream) => upstream.health === "up" && upstream.oldestQueuedSeconds > BEHIND;

/** Whether an operator has to act on it. */
export const needsAction = ({ health }) => health === "unauthorized" || health === "misconfigured" || health === "down";

/** Whether trying now could help. */
export const canTry = (upstream) => needsAction(upstream) || upstream.health === "degraded" || isBehind(upstream);

export function bySeverity(a, b) {
  const rank = (upstream) => (isBehind(upstream) ? SEVERITY.indexOf("degraded") + 0.5 : SEVERITY.indexOf(upstream.health));
  return rank(a) - rank(b) || (a.name < b.name ? -1 : 1);
}

export const counted = (upstream, state) => upstream.counts?.[state] ?? (state === "queued" ? upstream.queued : 0);

/** "2 upstreams need you": the first line, and the title of the page. */
export function verdict(upstreams, gateway, isLost) {
  if (isLost) return { tone: "bad", text: "The gateway does not respond" };
  if (gateway && !gateway.ready) return { tone: "bad", text: "The gateway accepts no messages" };
  if (!upstreams) return { tone: "plain", text: "Loading" };
  if (!upstreams.length) return { tone: "plain", text: "No upstream is configured" };
  const acting = upstreams.filter(needsAction).length;
  if (acting) return { tone: "bad", text: acting === 1 ? "1 upstream needs you" : `${number(acting)} upstreams need you` };
  const late = upstreams.filter((upstream) => upstream.health === "degraded" || isBehind(upstream)).length;
  if (late) return { tone: "warning", text: `${count(late, "upstream")} ${late === 1 ? "has" : "have"} trouble` };
  const failed = upstreams.reduce((sum, upstream) => sum + counted(upstream, "failed"), 0);
  if (failed) return { tone: "bad", text: `${count(failed, "message")} failed` };
  const paused = upstreams.filter(({ health }) => health === "paused").length;
  if (paused) return { tone: "held", text: `${count(paused, "upstream")} ${paused === 1 ? "is" : "are"} paused` };
  return { tone: "good", text: "All is well" };
}

const pausedBy = ({ pausedBy: by }) => (by ? [" by ", h("b", null, foreign(by.key ?? "a caller without a key")), " ", time(by.at)] : []);

const detailOf = ({ lastError }) => (lastError ? [": ", foreign(lastError.detail, 300)] : []);

/** What one upstream does: "is not responding", for a sentence that begins with its name. */
export function condition(upstream) {
  switch (upstream.health) {
    case "unauthorized": return ["rejected our credentials"];
    case "misconfigured": return ["rejects our requests, or lacks settings"];
    case "down": return ["is not responding"];
    case "degraded": return upstream.endpoints.length
      ? [`holds ${count(upstream.endpoints.length, "endpoint")} while it takes the rest`] : ["fails some requests"];
    case "paused": return ["is paused", pausedBy(upstream)];
    case "disabled": return ["is disabled, or no longer configured"];
    default: return isBehind(upstream) ? ["takes messages more slowly than they arrive"] : ["is up"];
  }
}

/** "; 7 messages wait, the oldest for 11 min". */
export function backlog(upstream) {
  if (!upstream.queued) return ["; no message waits"];
  const oldest = upstream.oldestQueuedSeconds >= 1 ? `, the oldest for ${duration(upstream.oldestQueuedSeconds)}` : "";
  return ["; ", h("b", null, count(upstream.queued, "message")), upstream.queued === 1 ? " waits" : " wait", oldest];
}

/** Why an upstream is as it is, until when, and what to do: one or two sentences. */
export function reason(upstream) {
  const { circuit, token, lastSuccessAt, name } = upstream;
  const nextTry = circuit.reopensAt ? [" It is tried again ", until(circuit.reopensAt), "."] : [];
  const correct = ` Correct upstreams.${name} in the configuration and reload.`;
  switch (upstream.health) {
    case "unauthorized": return ["It rejected our credentials", detailOf(upstream), ".", correct, nextTry];
    case "misconfigured": return ["It rejects the URL, or settings are missing", detailOf(upstream), ".", correct, nextTry];
    case "down": return ["It is not responding", detailOf(upstream), ".", nextTry];
    case "degraded": return upstream.endpoints.length
      ? [count(upstream.endpoints.length, "endpoint"), upstream.endpoints.length === 1 ? " waits" : " wait", " alone: ",
        foreign(upstream.endpoints.slice(0, 3).map((endpoint) => endpoint.name).join(", "), 120), ". The rest is delivered."]
      : ["Some requests fail", detailOf(upstream), ".", nextTry];
    case "paused": return ["Paused", pausedBy(upstream), ". It still accepts messages."];
    case "disabled": return ["Its messages wait until it is enabled again."];
    default: {
      const parts = lastSuccessAt ? ["Last delivery ", time(lastSuccessAt)] : ["Nothing was delivered since the start"];
      if (isBehind(upstream)) parts.push(". More arrives than it takes, or one lane waits");
      if (token) parts.push(token.valid ? " · token valid" : " · no valid token", token.valid && token.expiresAt ? [" until ", until(token.expiresAt)] : "");
      return [parts, "."];
    }
  }
}

export const waiting = (upstream) => (upstream.queued ? size(upstream.queuedBytes) : "");

/** What a queued message waits for. */
export const WAITS = {
  retry: "waits to be sent again",
  order: "waits for an earlier message of its lane",
  circuit: "waits because the upstream is not responding",
  token: "waits for an access token",
  credentials: "waits until credentials are corrected",
  pause: "waits because the upstream is paused",
  schedule: "is scheduled",
};

/** Why a message is in its state, in one sentence. */
export function why(message) {
  const { state, waitingFor, nextAttemptAt, lastError, settledAt } = message;
  const error = lastError ? [foreign(lastError.detail, 160)] : [];
  switch (state) {
    case "queued": {
      const next = nextAttemptAt ? [", next try ", until(nextAttemptAt)] : [];
      if (!waitingFor) return ["is about to be sent, or is being sent"];
      return [WAITS[waitingFor] ?? foreign(waitingFor), next, lastError && waitingFor !== "schedule" ? [": ", error] : ""];
    }
    case "failed": return lastError ? error : ["was rejected"];
    case "delivered": return ["delivered ", time(settledAt)];
    case "cancelled": return ["cancelled ", time(settledAt)];
    case "dropped": return ["evicted from a full queue ", time(settledAt)];
    case "expired": return ["expired ", time(settledAt), lastError ? [": ", error] : ""];
    default: return [foreign(state)];
  }
}

/** How a request to an upstream ended: title, tone. */
export const OUTCOMES = {
  delivered: ["Delivered", "good"],
  proceed: ["Step done", "good"],
  sorted: ["Answered for each message", "plain"],
  retry: ["No success, sent again", "waiting"],
  "backed-off": ["Lane backs off, sent again", "waiting"],
  suspect: ["Doubtful, sent again alone", "warning"],
  unauthorized: ["Token rejected, sent again with a new one", "waiting"],
  held: ["Upstream held: an operator has to act", "warning"],
  parked: ["Waits for a credential", "warning"],
  split: ["Batch rejected, so halved", "plain"],
  rejected: ["Rejected", "bad"],
  cancelled: ["Cut short by a stop of the gateway", "plain"],
  unsent: ["Settled without a request", "plain"],
  expired: ["Expired", "warning"],
  unknown: ["Outcome unknown: the gateway was killed", "warning"],
};

export const outcome = (name) => OUTCOMES[name] ?? [name === null ? "Is being sent" : name, name === null ? "waiting" : "plain"];

/** Outcomes of a probe. */
export const PROBES = {
  ok: ["good", "accepts the credentials, as far as the request shows them"],
  unauthorized: ["bad", "rejects the credentials"],
  misconfigured: ["bad", "a setting is missing, or there is no such endpoint"],
  failed: ["warning", "responded with an error that does not concern the credentials"],
  unreachable: ["bad", "cannot be reached"],
};

export const LANES = {
  ready: "waits for the upstream",
  "backing-off": "is sent again",
  scheduled: "is scheduled",
  held: "is held by its endpoint or a rule of its type",
  parked: "waits for a credential from a caller",
};

/** Events of the stream: words, tone, icon. */
export const EVENTS = {
  "message.queued": ["accepted", "waiting", "plus"],
  "batch.sent": ["request ended", "plain", "right"],
  "message.retrying": ["retrying", "waiting", "retry"],
  "message.delivered": ["delivered", "good", "check"],
  "message.failed": ["failed", "bad", "ban"],
  "message.dropped": ["dropped", "held", "down"],
  "message.expired": ["expired", "warning", "clock"],
  "message.cancelled": ["cancelled", "plain", "cross"],
  "token.refreshed": ["token refreshed", "good", "lock"],
  "token.failed": ["no token", "bad", "lock"],
  "upstream.down": ["upstream is down", "bad", "cross"],
  "upstream.up": ["upstream is up", "good", "check"],
  "upstream.paused": ["paused", "held", "pause"],
  "upstream.resumed": ["resumed", "good", "play"],
  "flush.finished": ["flush finished", "plain", "right"],
  "configuration.reloaded": ["configuration reloaded", "plain", "retry"],
  "operation.finished": ["operation finished", "plain", "check"],
  gap: ["events are missing", "warning", "alert"],
};
