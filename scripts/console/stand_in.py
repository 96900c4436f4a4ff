"""Serves the console's files and answers its requests with made-up data.

For what a real gateway is rarely in: troubles of every kind, hostile texts, errors, hundreds of thousands of messages. The
shapes are those of `openapi/openapi.yaml`. Python's standard library only; loopback only.
"""

import base64
import contextlib
import datetime
import gzip
import json
import pathlib
import random
import re
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FILES = pathlib.Path(__file__).resolve().parent.parent.parent / "Sources/CConsole/files"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
STATES = ["delivered", "queued", "failed", "cancelled", "dropped", "expired"]
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

# What may not run, may not become an element, and has to be readable.
HOSTILE = [
    '<img src=x onerror="window.pwned=1">',
    "<script>window.pwned=1</script>",
    '"><svg onload=window.pwned=1>',
    "'-window.pwned=1-'",
    "javascript:window.pwned=1",
    "{{constructor.constructor('window.pwned=1')()}} ${window.pwned=1} <%= 1 %>",
    "<form id=main name=body><input name=attributes></form>",
    "__proto__",
    "toString",
    "\u202egnp.exe \u2066abc\u2069 \u200b\u200f\ufeff\u0085\u009b31m",
    "</textarea></title></style><base href=//evil.example>",
    "&lt;b&gt; &amp;",
    "data:text/html,<script>window.pwned=1</script>",
]

# Nothing of it survives being parsed and written again.
EXACT_PAYLOAD = (
    '{"big":12345678901234567890,"huge":1e400,"price":1.10,"minus":-0.0,"10":"ten","9":"nine",'
    '"escaped":"\\u0041\\/\\ud83d\\ude00","empty":{},"list":[ ],"nested":[{"a":[1,2]}]}'
)


def iso(at):
    return (
        datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.")
        + f"{int(at * 1000) % 1000:03d}Z"
    )


def message_id(number):
    digits = ""
    value = (1 << 61) + number * 4096
    for _ in range(13):
        digits = ALPHABET[value & 31] + digits
        value >>= 5
    return "0" + digits[1:]


class StandIn:
    """A gateway that is in the state `scenario` names. Use as a context manager; `url` is the console's address."""

    def __init__(self, scenario="healthy", key=None, scopes=("read", "write", "admin"), messages=240):
        self.random = random.Random(7)
        self.scenario = scenario
        self.key = key
        self.scopes = list(scopes)
        self.requests = []
        # Path prefixes that are answered with an error: {"/v1/upstreams": (500, {...}, headers)}.
        self.faults = {}
        # Seconds before each answer.
        self.delay = 0
        self.is_mute = False
        self.lock = threading.RLock()
        self.started = time.time() - 90_000
        self.events = []
        self.operations = {}
        # How many operations may begin; None: any number.
        self.room = None
        self.ready = scenario != "unready"
        self.failure_pages = []  # Of each upstream, instead of the groups of its messages.
        self.next_number = 0
        self._make(messages)

    def __enter__(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/console"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    # What it has.

    def _make(self, count):
        names = {
            "healthy": [("samsara", "up"), ("seer", "up"), ("curio", "up"), ("hooks", "up")],
            "troubled": [
                ("samsara", "up"),
                ("seer", "up"),
                ("curio", "down"),
                ("streamone", "unauthorized"),
                ("samsara-eu", "paused"),
                ("push-prod", "degraded"),
                ("push-dev", "misconfigured"),
                ("hooks", "up"),
                ("old-hooks", "disabled"),
            ],
            "empty": [],
            "fresh": [("samsara", "up"), ("seer", "up")],
        }
        names["unready"] = names["healthy"]
        names["large"] = [("samsara", "down"), ("seer", "up")]
        names["hostile"] = [
            ("constructor", "down"),
            ("toString".lower(), "unauthorized"),
            ("a-script-b", "degraded"),
            ("samsara", "paused"),
        ]
        self.upstreams = {name: self._upstream(name, health) for name, health in names[self.scenario]}
        self.messages = []
        if self.scenario == "large":
            for number in range(20_000):
                self.add("samsara", "queued", at=time.time() - 20_010 + number)
            for number in range(3_000):
                self.add("seer", "failed", at=time.time() - 3_010 + number)
        elif self.scenario not in ("empty", "fresh"):
            for number in range(count):
                self._add_some(number, count)
        for number in range(40 if self.scenario != "empty" else 0):
            self._event(number)

    def _upstream(self, name, health):
        now = time.time()
        types = {
            "samsara-eu": "samsara",
            "push-prod": "appservices",
            "push-dev": "appservices",
            "hooks": "webhook",
            "old-hooks": "webhook",
        }
        error = None
        details = {
            "down": (
                "unreachable",
                None,
                "Failed to connect to 127.0.0.1 port 58715 after 0 ms: Couldn't connect to server",
            ),
            "unauthorized": ("unauthorized", 200, "status 3 AUTHENTICATION_FAILED: Authentication failed"),
            "misconfigured": ("misconfigured", 404, "HTTP 404: there is nothing at this path"),
            "degraded": ("failing", 503, "HTTP 503"),
        }
        if health in details:
            kind, status, detail = details[health]
            error = {"class": kind, "status": status, "detail": self.text(detail), "at": iso(now - 30)}
        endpoints = []
        if health == "degraded":
            endpoints = [
                {"name": self.text("/devices"), "waitingFor": "circuit", "reopensAt": iso(now + 50), "lastError": error}
            ]
        return {
            "name": name,
            "type": types.get(name, name if self.scenario != "hostile" else "webhook"),
            "health": health,
            "queued": 0,
            "queuedBytes": 0,
            "oldestQueuedSeconds": 0,
            "drainSeconds": 0,
            "inFlight": 1 if health == "up" else 0,
            "circuit": {"state": "open", "reopensAt": iso(now + 68)}
            if health == "down"
            else {"state": "closed", "reopensAt": None},
            "endpoints": endpoints,
            "token": {"valid": health == "up", "expiresAt": iso(now + 2900) if health == "up" else None}
            if name == "seer"
            else None,
            "lastSuccessAt": iso(now - 1.2)
            if health == "up" and self.scenario != "fresh"
            else iso(now - 660)
            if self.scenario != "fresh"
            else None,
            "lastError": error,
            "kinds": {"seer": ["activity", "tincan", "instrumentation"]}.get(name, ["event"]),
            "counts": {state: 0 for state in ["accepted", *STATES]},
            "kept": {state: 0 for state in STATES if state != "queued"},
            "pausedBy": {"key": self.text("ops-anna"), "at": iso(now - 660)} if health == "paused" else None,
        }

    def text(self, plain):
        return self.random.choice(HOSTILE) if self.scenario == "hostile" else plain

    def _add_some(self, number, count):
        at = time.time() - 4 * (count - number) - 1
        name, upstream = self.random.choice(list(self.upstreams.items()))
        state = (
            "queued"
            if upstream["health"] not in ("up", "degraded")
            else self.random.choices(STATES, [70, 4, 20, 3, 2, 1])[0]
        )
        self.add(name, state, at=at)

    def add(self, name, state, at=None, payload=None, key=None, detail=None, attempts=None):
        """Adds a message, and counts it in the books."""
        with self.lock:
            self.next_number += 1
            upstream = self.upstreams[name]
            at = at or time.time()
            payload = payload or json.dumps(
                {
                    "actor": {"mbox": f"mailto:learner{self.next_number}@example.edu"},
                    "verb": {"id": "http://adlnet.gov/expapi/verbs/experienced"},
                    "object": {"id": "course-13", "definition": {"type": "page"}},
                    "context": {"extensions": {"appId": self.text("reader")}},
                    **({self.text("m"): self.text("v")} if self.scenario == "hostile" else {}),
                },
                ensure_ascii=False,
            )
            failed = state == "failed"
            detail = detail or self.text(
                self.random.choice(
                    [
                        "refused: {:eventName (not (poison))}",
                        'HTTP 400: {"error":"bad item"}',
                        "HTTP 413: too large for something",
                    ]
                )
            )
            waiting = {
                "down": "circuit",
                "unauthorized": "credentials",
                "misconfigured": "credentials",
                "paused": "pause",
            }.get(upstream["health"], "retry")
            error = (
                {"class": "refused", "status": 400, "detail": detail, "at": iso(at + 2)}
                if failed
                else upstream["lastError"]
                if state == "queued"
                else None
            )
            message = {
                "id": message_id(self.next_number),
                "upstream": name,
                "kind": upstream["kinds"][0],
                "state": state,
                "key": key
                if key is not None
                else self.text(f"order-{self.next_number}")
                if self.next_number % 3
                else None,
                "lane": self.text("tincan"),
                "attempts": (1 if failed else 0) if attempts is None else attempts,
                "createdAt": iso(at),
                "nextAttemptAt": iso(time.time() + 43)
                if state == "queued" and waiting in ("retry", "circuit")
                else None,
                "settledAt": None if state == "queued" else iso(at + 3),
                "waitingFor": waiting if state == "queued" else None,
                "lastError": error,
                "result": {"error": self.text("bad item"), "n": 1} if failed else None,
            }
            self.messages.append({"message": message, "payload": payload})
            counts = upstream["counts"]
            counts["accepted"] += 1
            counts[state] += 1
            if state == "queued":
                upstream["queued"] += 1
                upstream["queuedBytes"] += len(payload)
                if upstream["health"] != "up":
                    upstream["oldestQueuedSeconds"] = max(upstream["oldestQueuedSeconds"], time.time() - at)
            else:
                upstream["kept"][state] += 1
            return message["id"]

    def _event(self, number):
        if not self.upstreams:
            return
        name = self.random.choice(list(self.upstreams))
        kind = self.random.choice(
            [
                "message.queued",
                "batch.sent",
                "message.delivered",
                "message.delivered",
                "message.failed",
                "upstream.down",
                "upstream.paused",
            ]
        )
        data = {
            "upstream": name,
            "ids": [message_id(1)] if kind.startswith("message") else [],
            "count": 0 if kind.startswith("upstream") else 14,
        }
        if kind == "batch.sent":
            data["requests"] = 2
        if kind == "upstream.paused":
            data["by"] = self.text("ops-anna")
        self.events.append({"id": f"19a8f6a5b3c-{number + 1}", "type": kind, "data": data})

    # What it answers.

    def answer(self, method, path, query, body, headers):
        """(status, headers, body): a value becomes JSON."""
        parts = path.strip("/").split("/")[1:]
        if self.key and headers.get("Authorization") != f"Bearer {self.key}":
            return problem(
                401,
                "unauthorized",
                "An API key is required."
                if "Authorization" not in headers
                else "The API key is not known, or has expired.",
            )
        for prefix, (status, extra, detail) in self.faults.items():
            if path.startswith(prefix):
                return problem(status, "internal", detail, extra)
        is_dry = isinstance(body, dict) and body.get("dryRun") or query.get("dryRun") == ["true"]
        scope = "read" if method == "GET" or is_dry else "write" if parts == ["messages"] else "admin"
        if method == "GET" and parts == ["keys"]:
            scope = "admin"
        if scope not in self.scopes:
            return problem(403, "forbidden", f"This key lacks the scope {scope}.")
        first = parts[0]
        rest = parts[1:]
        found = getattr(self, f"_{method.lower()}_{first}", None)
        return (
            found(rest, query, body, headers)
            if found
            else problem(404, "not-found", "There is no such path. See /openapi.yaml.")
        )

    def _get_gateway(self, rest, query, body, headers):
        return (
            200,
            {},
            {
                "version": "0.3.0",
                "instance": "19a8f6a5b3c",
                "startedAt": iso(self.started),
                "ready": self.ready,
                "reasons": [] if self.ready else ["store: the disk is full", "worker seer is stalled"],
                "notes": [self.text("the certificate expires in 6 days")]
                if self.scenario in ("troubled", "hostile")
                else [],
                "simulated": self.scenario == "fresh",
                "store": {"bytes": 2_260_992, "walBytes": 41_200, "freeBytes": 81_000_000_000},
                "commit": {"p50Ms": 1.4, "p99Ms": 12.0},
                "memoryBytes": 38_000_000,
                "key": {"name": self.text("ops-anna"), "scopes": self.scopes, "upstreams": ["*"]} if self.key else None,
            },
        )

    def _history(self, since):
        end = time.time() // 10 * 10
        steps = 360
        if since:
            steps = max(
                0,
                min(360, round((end - datetime.datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp()) / 10)),
            )
        known = steps if self.scenario != "fresh" else min(steps, 3)
        figures = {}
        for name, upstream in self.upstreams.items():
            source = random.Random(name)
            is_up = upstream["health"] in ("up", "degraded")
            accepted = [source.randrange(300, 900) if is_up and self.scenario != "fresh" else 0 for _ in range(360)]
            figures[name] = {
                series: values[len(values) - known :] if known else []
                for series, values in {
                    "accepted": accepted,
                    "delivered": [max(0, value - source.randrange(0, 40)) for value in accepted],
                    "failed": [0] * 360,
                    "queued": [upstream["queued"]] * 360,
                    "oldestSeconds": [upstream["oldestQueuedSeconds"]] * 360,
                    "requests": [9 if is_up else 1] * 360,
                    "requestsFailed": [0 if is_up else 1] * 360,
                    "requestP50Ms": [source.randrange(8, 30) if is_up else None for _ in range(360)],
                    "requestP99Ms": [source.randrange(40, 160) if is_up else None for _ in range(360)],
                    "waitP99Ms": [source.randrange(50, 400) if is_up else None for _ in range(360)],
                }.items()
            }
        return {"step": 10, "from": iso(end - 10 * known), "to": iso(end), "upstreams": figures}

    def _get_upstreams(self, rest, query, body, headers):
        with self.lock:
            if not rest:
                answer = {"upstreams": sorted(self.upstreams.values(), key=lambda upstream: upstream["name"])}
                if query.get("include") == ["history"]:
                    answer["history"] = self._history(query.get("since", [None])[0])
                return 200, {}, answer
            name = rest[0]
            if name not in self.upstreams:
                return problem(404, "unknown-upstream", f"There is no upstream {name}.")
            if len(rest) == 1:
                return 200, {}, self.upstreams[name]
            if rest[1] == "failures":
                page, pages = int(query.get("cursor", ["0"])[0]), self.failure_pages or [self._groups(name)]
                next_page = str(page + 1) if page + 1 < len(pages) else None
                return 200, {}, {"failures": pages[page], "examined": 1, "next": next_page}
            if rest[1] == "lanes":
                waits = self.upstreams[name]["health"] not in ("up", "disabled")
                lanes = [
                    {
                        "lane": str(number),
                        "key": self.text(f"visitor-{number}"),
                        "state": "backing-off",
                        "reason": "retry",
                        "since": iso(time.time() - 40),
                        "until": iso(time.time() + 43),
                        "queued": 3,
                        "isCountComplete": True,
                        "oldestAt": iso(time.time() - 60),
                    }
                    for number in range(4 if waits else 0)
                ]
                return 200, {}, {"lanes": lanes, "next": None}
            if rest[1] == "batches":
                fresh = self.scenario == "fresh"
                return (
                    200,
                    {},
                    {
                        "batches": []
                        if fresh
                        else [
                            self._attempt(
                                1000 - number, time.time() - 9 * number, "delivered" if number % 4 else "retry", 12
                            )
                            for number in range(12)
                        ],
                        "next": None,
                    },
                )
        return problem(404, "not-found", "There is no such path.")

    def _post_upstreams(self, rest, query, body, headers):
        name, action = rest
        upstream = self.upstreams[name]
        with self.lock:
            if action == "pause":
                upstream.update(
                    health="paused", pausedBy={"key": "ops-anna" if self.key else None, "at": iso(time.time())}
                )
            if action == "resume":
                upstream.update(health="up", pausedBy=None)
            if action == "probe":
                return (
                    200,
                    {},
                    {
                        "upstream": name,
                        "outcome": "unauthorized" if upstream["health"] == "unauthorized" else "ok",
                        "status": 200,
                        "durationMs": 41,
                        "detail": self.text("a token was issued; it expires at 2026-11-21T18:00:00.001Z"),
                    },
                )
        return 202, {}, {"upstream": name, "action": action, "queued": upstream["queued"]}

    def _groups(self, name):
        groups = {}
        for message in (entry["message"] for entry in self.messages):
            if message["upstream"] == name and message["state"] == "failed":
                groups.setdefault(message["lastError"]["detail"], []).append(message)
        return [
            {
                "id": group_id(detail),
                "class": "refused",
                "status": 400,
                "detail": detail,
                "count": len(all),
                "sample": all[-1]["id"],
                "firstAt": all[0]["lastError"]["at"],
                "lastAt": all[-1]["lastError"]["at"],
                "perMinute": [self.random.randrange(0, 9) for _ in range(60)],
            }
            for detail, all in groups.items()
        ]

    def _attempt(self, batch, at, outcome, messages, detail=None, step=None):
        return {
            "batch": str(batch),
            "startedAt": iso(at),
            "endedAt": iso(at + 0.038),
            "outcome": outcome,
            "status": 200 if outcome == "delivered" else 503 if outcome == "retry" else 400,
            "detail": detail if detail or outcome == "delivered" else self.text("HTTP 503"),
            "messages": messages,
            "step": step,
        }

    def _matching(self, query):
        filters = {name: values[0] for name, values in query.items()}
        before = filters.get("settledBefore")
        return [
            entry
            for entry in self.messages
            if all((name not in filters) or test(entry["message"], filters[name]) for name, test in FILTERS.items())
            and (not before or (entry["message"]["settledAt"] or "") < before)
        ]

    def _get_messages(self, rest, query, body, headers):
        with self.lock:
            if not rest:
                found = self._matching(query)
                if query.get("order") == ["newest"]:
                    found = found[::-1]
                start = int(query.get("cursor", ["newest.0"])[0].split(".")[-1])
                limit = int(query.get("limit", ["100"])[0])
                page = found[start : start + limit]
                with_payload = query.get("include") == ["payload"]
                texts = []
                for entry in page:
                    text = json.dumps(entry["message"], ensure_ascii=False)
                    texts.append(text[:-1] + ',"payload":' + entry["payload"] + "}" if with_payload else text)
                more = json.dumps(f"newest.{start + limit}" if start + limit < len(found) else None)
                return 200, {}, ('{"messages":[' + ",".join(texts) + f'],"next":{more}}}').encode("utf-8")
            entry = next((entry for entry in self.messages if entry["message"]["id"] == rest[0]), None)
            if entry is None:
                return problem(404, "not-found", "There is no message with this id.")
            message = entry["message"]
            if len(rest) == 1:
                return 200, {}, {**message, "attemptLog": entry.get("log") or self._log(message)}
            if rest[1] == "payload":
                if message["state"] == "delivered":
                    return problem(404, "not-found", "The payload of the message is no longer kept.")
                return 200, {"Content-Type": "application/json"}, entry["payload"].encode("utf-8")
            if rest[1] == "request":
                sent = '{"activities":[{"sent":1700000000,' + entry["payload"][1:] + "]}"
                return (
                    200,
                    {},
                    {
                        "dryRun": True,
                        "accepted": 1,
                        "requests": [
                            {
                                "upstream": message["upstream"],
                                "messages": 1,
                                "method": "POST",
                                "url": "https://seer.example/activities",
                                "headers": {"Authorization": "Bearer ***", "Content-Type": "application/json"},
                                "body": sent,
                            }
                        ],
                    },
                )
        return problem(404, "not-found", "There is no such path.")

    def _log(self, message):
        at = datetime.datetime.fromisoformat(message["createdAt"].replace("Z", "+00:00")).timestamp() + 4
        if message["state"] == "failed":
            return [
                self._attempt(114 + number, at + number, outcome, carried, self.text(detail))
                for number, (outcome, carried, detail) in enumerate(
                    [
                        ("split", 12, "HTTP 400: bad item"),
                        ("retry", 6, "HTTP 503"),
                        ("split", 6, "HTTP 400: bad item"),
                        ("split", 3, "HTTP 400: bad item"),
                        ("rejected", 1, "HTTP 400: bad item"),
                    ]
                )
            ]
        if message["state"] == "delivered":
            return [self._attempt(90, at, "delivered", 12)]
        return [self._attempt(200 + number, at + number, "retry", 4) for number in range(14)]

    def _post_messages(self, rest, query, body, headers):
        if rest == []:
            return self._resend(query, body)
        if len(rest) == 2:
            entry = next((entry for entry in self.messages if entry["message"]["id"] == rest[0]), None)
            self._change("retry", [entry])
            return 202, {}, {"retried": 1}
        action = rest[0]
        done = {"retry": "retried", "cancel": "cancelled", "purge": "purged"}[action]
        with self.lock:
            filters = {name: [value] for name, value in body.items() if name in FILTERS or name == "settledBefore"}
            filters.setdefault("state", ["queued" if action == "cancel" else "failed"])
            found = self._matching(filters)
            if "ids" in body:
                found = [entry for entry in found if entry["message"]["id"] in body["ids"]]
            if body.get("dryRun"):
                return 200, {}, {done: len(found), "dryRun": True}
            if headers.get("Prefer") == "respond-async":
                if self.room == 0:
                    return problem(503, "overloaded", "8 operations are in progress.", {"Retry-After": "1"})
                if self.room:
                    self.room -= 1
                operation = {
                    "id": f"op-{len(self.operations) + 1}",
                    "action": action,
                    "upstream": body.get("upstream"),
                    "by": self.text("ops-anna"),
                    "startedAt": iso(time.time()),
                    "matched": len(found),
                    "done": 0,
                    "skipped": [],
                    "skippedCount": 0,
                    "finishedAt": None,
                    "stopped": False,
                }
                self.operations[operation["id"]] = operation
                threading.Thread(target=self._carry_out, args=(operation, action, found), daemon=True).start()
                return (
                    202,
                    {"Location": f"/v1/operations/{operation['id']}"},
                    {"operation": operation["id"], "matched": len(found)},
                )
            self._change(action, found)
            return 200, {}, {done: len(found)}

    def _carry_out(self, operation, action, found):
        for start in range(0, len(found), 200):
            time.sleep(0.2)
            if operation["stopped"]:
                break
            with self.lock:
                self._change(action, found[start : start + 200])
                operation["done"] += len(found[start : start + 200])
        operation["finishedAt"] = iso(time.time())

    def _change(self, action, found):
        for entry in found:
            message = entry["message"]
            upstream = self.upstreams[message["upstream"]]
            if action == "purge":
                self.messages.remove(entry)
                upstream["kept"][message["state"]] -= 1
                continue
            state = {"retry": "queued", "cancel": "cancelled"}[action]
            upstream["counts"][message["state"]] -= 1
            upstream["counts"][state] += 1
            upstream["queued"] += 1 if state == "queued" else -1
            message.update(state=state, settledAt=None if state == "queued" else iso(time.time()), waitingFor=None)

    def _resend(self, query, text):
        start = time.time()
        if not isinstance(text, dict):
            return problem(
                400,
                "invalid-json",
                "The body is not acceptable JSON: unexpected end at byte 60.",
                members={"offset": 60},
            )
        if query.get("dryRun") == ["true"]:
            if "actor" not in text["payload"] and "fix" not in text["payload"]:
                return problem(
                    422,
                    "invalid-payload",
                    "The payload is not valid.",
                    members={"errors": [{"index": 0, "pointer": "/actor", "detail": "is required"}]},
                )
            return 200, {}, {"dryRun": True, "accepted": 1, "requests": []}
        sent = self.add(
            text["upstream"], "queued", at=start, payload=json.dumps(text["payload"]), key=text.get("key") or ""
        )
        return 202, {}, {"id": sent, "upstream": text["upstream"], "kind": text["kind"], "state": "queued"}

    def _get_stream(self, rest, query, body, headers):
        with self.lock:
            if self.scenario in ("healthy", "troubled", "hostile") and len(self.events) < 3000:
                self._event(len(self.events))
            events = self.events
            after = query.get("after", [None])[0]
            if after:
                start = int(after.rsplit("-", 1)[1])
                events = events[start:]
            types = query.get("type", [])
            if types:
                events = [event for event in events if event["type"] in types]
            events = events[-int(query.get("limit", ["100"])[0]) :]
            return (
                200,
                {},
                {"events": events, "last": self.events[-1]["id"] if self.events else "19a8f6a5b3c-0", "gap": False},
            )

    def _get_keys(self, rest, query, body, headers):
        keys = [
            {
                "name": self.text("ops-anna"),
                "scopes": ["read", "admin"],
                "upstreams": ["*"],
                "expiresAt": None,
                "lastUsedAt": iso(time.time()),
            },
            {
                "name": "backend",
                "scopes": ["write"],
                "upstreams": list(self.upstreams)[:2],
                "expiresAt": iso(time.time() + 500_000),
                "lastUsedAt": None,
            },
        ]
        return 200, {}, {"keys": keys if self.key or self.scenario in ("troubled", "hostile") else []}

    def _get_operations(self, rest, query, body, headers):
        if rest:
            return (
                (200, {}, self.operations[rest[0]])
                if rest[0] in self.operations
                else problem(404, "not-found", "There is no such operation.")
            )
        shown = list(self.operations.values())
        if self.scenario in ("troubled", "hostile"):
            shown.append(
                {
                    "id": "op-0",
                    "action": "retry",
                    "upstream": list(self.upstreams)[0],
                    "by": self.text("ops-anna"),
                    "startedAt": iso(time.time() - 900),
                    "matched": 214,
                    "done": 212,
                    "skipped": [{"id": message_id(1), "detail": self.text("it is queued already")}] * 2,
                    "skippedCount": 2,
                    "finishedAt": iso(time.time() - 890),
                    "stopped": False,
                }
            )
        return 200, {}, {"operations": shown}

    def _delete_operations(self, rest, query, body, headers):
        self.operations[rest[0]]["stopped"] = True
        return 202, {}, {}


FILTERS = {
    "state": lambda message, value: message["state"] == value,
    "upstream": lambda message, value: message["upstream"] == value,
    "kind": lambda message, value: message["kind"] == value,
    "key": lambda message, value: message["key"] == value,
    "lane": lambda message, value: message["lane"] == value,
    "waitingFor": lambda message, value: message["waitingFor"] == value,
    "createdAfter": lambda message, value: message["createdAt"] >= value,
    "createdBefore": lambda message, value: message["createdAt"] < value,
    "errorClass": lambda message, value: (message["lastError"] or {}).get("class") == value,
    "errorText": lambda message, value: value.lower() in (message["lastError"] or {"detail": ""})["detail"].lower(),
    "group": lambda message, value: (
        message["lastError"] is not None and group_id(message["lastError"]["detail"]) == value
    ),
}


def group_id(detail):
    return base64.b16encode(detail.encode("utf-8", "replace")[:8].ljust(8, b"0")).decode().lower()


def problem(status, slug, detail, headers=None, members=None):
    return (
        status,
        {"Content-Type": "application/problem+json", **(headers or {})},
        {
            "type": f"urn:postern:problem:{slug}",
            "title": slug,
            "status": status,
            "detail": detail,
            "instance": "/",
            "requestId": "ubj856aeqh6p5",
            **(members or {}),
        },
    )


def handler(stand_in):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def handle_any(self):
            address = urllib.parse.urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else b""
            while stand_in.is_mute:
                time.sleep(0.1)
            if stand_in.delay:
                time.sleep(stand_in.delay)
            stand_in.requests.append((time.time(), self.command, self.path, dict(self.headers), body))
            if address.path == "/console" or address.path.startswith("/console/"):
                return self.file(address.path)
            try:
                value = json.loads(body) if body else None
            except ValueError:
                value = body
            status, headers, answer = stand_in.answer(
                self.command,
                address.path,
                urllib.parse.parse_qs(address.query, keep_blank_values=True),
                value,
                self.headers,
            )
            data = (
                answer
                if isinstance(answer, bytes)
                else json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
            )
            self.reply(status, {"Content-Type": "application/json", "Cache-Control": "no-store", **headers}, data)

        do_GET = do_POST = do_DELETE = handle_any

        def file(self, path):
            name = path.removeprefix("/console").removeprefix("/") or "index.html"
            file = FILES / name
            if not re.fullmatch(r"[a-z]+\.[a-z]+", name) or not file.is_file():
                return self.reply(404, {}, b"")
            self.reply(
                200,
                {
                    "Content-Type": TYPES[file.suffix],
                    "Content-Encoding": "gzip",
                    "Cache-Control": "no-cache",
                    "Content-Security-Policy": POLICY,
                    "Referrer-Policy": "no-referrer",
                    "Cross-Origin-Opener-Policy": "same-origin",
                },
                gzip.compress(file.read_bytes()),
            )

        def reply(self, status, headers, data):
            self.send_response(status)
            for name, value in {
                **headers,
                "X-Content-Type-Options": "nosniff",
                "Content-Length": str(len(data)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(data)

    return Handler
