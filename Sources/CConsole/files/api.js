// Requests to the gateway. The key is sent as `Authorization` and by no other way: no cookie, no address.

const KEPT = "postern.key";

// The directory above this one, also behind a proxy that adds a prefix.
const ROOT = new URL("../", import.meta.url);

/** Seconds after which a request is given up. */
const PATIENCE = 4;

/** What a request failed with: a problem of the API (RFC 9457), or no response at all (`status` 0). */
export class Problem extends Error {
  constructor(status, members = {}) {
    super(members.detail ?? `The gateway answered with HTTP status ${status}.`);
    this.status = status;
    this.requestId = members.requestId;
    this.errors = members.errors ?? [];
    this.members = members;
  }
}

let key = readKept();
let limitedUntil = 0;
const listeners = { unauthorized: () => {} };

/** Calls `listener` when the gateway requires a key or rejects this one. */
export function onUnauthorized(listener) {
  listeners.unauthorized = listener;
}

export const hasKey = () => key !== null;

/** Uses another key, or none. `keep`: until this tab is closed. */
export function useKey(newKey, keep = false) {
  key = newKey;
  try {
    if (key && keep) sessionStorage.setItem(KEPT, key);
    else sessionStorage.removeItem(KEPT);
  } catch {
    // Storage is switched off; the key is kept in memory.
  }
}

function readKept() {
  try {
    return sessionStorage.getItem(KEPT);
  } catch {
    return null;
  }
}

/** Seconds for which the gateway rejects requests because the key is over its limit. */
export const limitedFor = () => Math.max(0, (limitedUntil - Date.now()) / 1000);

/** Sends a request. Returns its JSON, or with `raw` the response itself. Throws a `Problem`. */
export async function call(method, path, options = {}) {
  const { query, body, headers = {}, patience = PATIENCE, raw = false, signal } = options;
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of [value].flat()) if (one !== undefined && one !== null && one !== "") url.searchParams.append(name, one);
  }
  const sent = { Accept: "application/json", ...headers };
  const sentKey = key;
  if (sentKey) sent.Authorization = `Bearer ${sentKey}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  const limit = AbortSignal.timeout(patience * 1000);
  const startedAt = Date.now();
  try {
    const response = await fetch(url, {
      method, headers: sent, credentials: "omit", cache: "no-store", redirect: "error", referrerPolicy: "no-referrer",
      body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    learnClock(response.headers.get("Date"), startedAt);
    if (!response.ok) throw await problem(response, sentKey);
    if (raw) return response;
    const text = await response.text();
    return text === "" ? null : JSON.parse(text);
  } catch (error) {
    if (error instanceof Problem) throw error;
    if (signal?.aborted) throw new Problem(0, { detail: "The request was given up." });
    throw new Problem(0, { detail: error.name === "TimeoutError"
      ? `The gateway has not answered within ${patience} s.` : "The gateway cannot be reached." });
  }
}

async function problem(response, sentKey) {
  let members = {};
  try {
    members = await response.json();
  } catch {
    // A proxy answered, or the body was cut off. The status has to do.
  }
  const found = new Problem(response.status, members ?? {});
  found.requestId ??= response.headers.get("X-Request-Id");
  // Another key may have been entered meanwhile.
  if (response.status === 401 && sentKey === key) listeners.unauthorized(hasKey());
  if (response.status === 429) limitedUntil = Date.now() + 1000 * (Number(response.headers.get("Retry-After")) || 1);
  return found;
}

// The gateway's clock less this one's lies between these. Each `Date` header, which has whole seconds, narrows it.
let earliest = -Infinity;
let latest = Infinity;

function learnClock(header, startedAt) {
  const date = Date.parse(header ?? "");
  if (Number.isNaN(date)) return;
  earliest = Math.max(earliest, date - Date.now());
  latest = Math.min(latest, date + 1000 - startedAt);
  // One of the clocks was set.
  if (earliest > latest) [earliest, latest] = [date - Date.now(), date + 1000 - startedAt];
}

/** The time by the gateway's clock, as far as it is known: this browser's, unless that cannot be right. */
export function serverNow() {
  const offset = Math.min(Math.max(0, earliest), latest);
  return Date.now() + (Number.isFinite(offset) ? offset : 0);
}
