#!/usr/bin/env python3
"""Drives the built gateway through combinations of faults that once stopped it, against stand-ins written here.

usage: make scenarios        or scripts/scenarios.py [--binary PATH] [NAME ...]

Each scenario states what it expects of the gateway from outside, with default settings unless it says otherwise. The
stand-ins are a few lines of Python, so that they share no mistake with the simulators. Exit code 1 if a scenario fails.
"""

import argparse
import collections
import gzip
import http.client
import http.server
import json
import pathlib
import random
import re
import signal
import socket
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import ROOT, Failure, Gateway, Simulator, binary_from, call, merged, new_key  # noqa: E402


# ---- Stand-ins


class StandIn:
    """An HTTP server on loopback; `decide(method, path, body)` returns (status, headers, body)."""

    def __init__(self, decide):
        stand_in, self.paths = self, []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def respond(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                stand_in.paths.append(self.path)
                status, headers, answer = decide(self.command, self.path, body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = do_DELETE = respond

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads, request_queue_size, allow_reuse_address = True, 256, True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Samsara(StandIn):
    """Accepts arrays of events for which `status(events)` is 202."""

    def __init__(self, status):
        self.status, self.order, self.arrived_at = status, [], {}
        super().__init__(self.decide)

    def decide(self, _, path, body):
        events = json.loads(body)
        status = self.status(events)
        if status == 202:
            for event in events:
                self.order.append(event["seq"])
                self.arrived_at.setdefault(event["seq"], time.monotonic())
        return status, {}, b"" if status == 202 else b'{"status":"ERROR"}'

    def settings(self, **delivery):
        return {"delivery": delivery, "upstreams": {"samsara": {"url": self.url}}}


def refuses_poison(events):
    return 500 if any(event["eventName"] == "poison" for event in events) else 202


class Seer(StandIn):
    """Issues tokens, accepts every report, and answers those to the custom endpoint with `custom`."""

    def __init__(self, custom):
        self.custom, self.tokens, self.arrived_at = custom, 0, {}
        super().__init__(self.decide)

    def decide(self, _, path, body):
        if "token" in path.lower():
            self.tokens += 1
            token = {
                "access_token": f"T{self.tokens}", "token_type": "bearer", "expires_in": 3600,
                "expiration_date": int((time.time() + 3600) * 1000),
            }
            return 200, {"Content-Type": "application/json"}, json.dumps(token).encode()
        if "custom" in path:
            return *self.custom, b""
        for number in re.findall(rb'"seq": ?(\d+)', body):
            self.arrived_at.setdefault(int(number), time.monotonic())
        return 200, {}, b"{}"

    def settings(self):
        seer = {"baseURL": self.url, "clientId": "c", "clientSecret": "s", "endpoints": {"custom": "/custom"}}
        return {"upstreams": {"seer": seer}}


# ---- The gateway from outside


class Subject(Gateway):
    def __init__(self, binary, settings, directory=None):
        super().__init__(binary, directory or tempfile.mkdtemp(prefix="postern-scenario-"), settings)

    def post(self, path, body=None):
        headers = {"Content-Type": "application/json"} if body is not None else {}
        text = None if body is None else json.dumps(body)
        status, _, answer = call(self.port, "POST", path, text, headers, timeout=70)
        if status not in (200, 202):
            raise Failure(f"POST {path}: {status} {answer.decode()[:300]}")
        return json.loads(answer)

    def get(self, path):
        return json.loads(call(self.port, "GET", path, timeout=30)[2])

    def message(self, identifier):
        return self.get(f"/v1/messages/{identifier}")

    def failed(self):
        return self.get("/v1/messages?state=failed&limit=1000")["messages"]


def event(source, number, name="page.viewed"):
    return {"timestamp": 1479988864057 + number, "sourceId": source, "eventName": name, "seq": number}


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("inf")


def wait(condition, seconds):
    """Whether it became true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def expect(holds, what):
    if not holds:
        raise Failure(what)


# ---- Scenarios


def poison_among_many_sources(binary):
    """One event that is always answered 500, sources that share its batch, and traffic that goes on: only it fails."""
    samsara = Samsara(refuses_poison)
    with Subject(binary, samsara.settings()) as gateway:
        sources = ["p"] + ["one"] * 31 + [f"s{number % 12}" for number in range(28)] + ["one"] * 4
        batch = [event(source, number, "page.viewed" if number else "poison") for number, source in enumerate(sources)]
        poison = gateway.post("/v1/samsara/event", batch)["ids"][0]
        sent = {}
        for number in range(1000, 1200):
            sent[number] = time.monotonic()
            gateway.post("/v1/samsara/event", event(f"s{random.randrange(12)}", number))
            time.sleep(0.2)
        count = len(sources) - 1 + len(sent)
        expect(wait(lambda: len(samsara.arrived_at) == count, 10), f"{len(samsara.arrived_at)} of {count} arrived")
        expect(gateway.message(poison)["state"] == "failed", f"the poison is {gateway.message(poison)['state']}")
        expect(len(gateway.failed()) == 1, "an innocent event failed")
        slow = percentile([samsara.arrived_at[number] - sent[number] for number in sent], 0.9)
        return f"{count} arrived, 90 % of the traffic within {slow:.2f} s, {len(samsara.paths)} requests"


def poison_in_a_fleet_with_a_single_source(binary):
    """Order forbids trying anything else: the poison event fails after suspectSeconds, and the rest goes on."""
    samsara = Samsara(refuses_poison)
    with Subject(binary, samsara.settings(suspectSeconds=10)) as gateway:
        batch = [event("one", number, "poison" if number == 10 else "page.viewed") for number in range(40)]
        ids = gateway.post("/v1/samsara/event", batch)["ids"]
        expect(wait(lambda: len(samsara.arrived_at) >= 10, 10), "what precedes the poison did not arrive")
        started = time.monotonic()
        expect(wait(lambda: len(samsara.arrived_at) == 39, 90), f"{len(samsara.arrived_at)} of 39 arrived")
        expect(gateway.message(ids[10])["state"] == "failed", "the poison did not fail")
        expect(samsara.order == sorted(samsara.order), "out of order")
        return f"the rest arrived after {time.monotonic() - started:.0f} s, {len(samsara.paths)} requests"


def ten_poison_events_at_once(binary):
    """Ten suspects delay no other message."""
    samsara = Samsara(refuses_poison)
    with Subject(binary, samsara.settings()) as gateway:
        for number in range(10):
            gateway.post("/v1/samsara/event", event(f"p{number}", 10_000 + number, "poison"))
        sent = {}
        for number in range(260):
            sent[number] = time.monotonic()
            gateway.post("/v1/samsara/event", event(f"h{number % 30}", number))
            time.sleep(0.05)
        expect(wait(lambda: len(samsara.arrived_at) == 260, 3), f"{len(samsara.arrived_at)} of 260 arrived")
        slow = percentile([samsara.arrived_at[number] - sent[number] for number in sent], 0.99)
        expect(slow < 0.3, f"99 % of the healthy events arrived within {slow:.2f} s")
        deadline = time.monotonic() + 60
        number = 1000
        while len(gateway.failed()) < 10 and time.monotonic() < deadline:
            number += 1
            gateway.post("/v1/samsara/event", event("h", number))
            time.sleep(0.3)
        expect(len(gateway.failed()) == 10, f"{len(gateway.failed())} of 10 poison events failed")
        return f"99 % within {slow:.3f} s"


def random_500s_after_an_outage(binary):
    """Three seconds of 500 for everything, then 10 to 30 % of them at random: no event fails."""
    slowest = 0
    for seed in range(4):
        dice = random.Random(seed)
        rate, start = 0.1 + 0.2 * dice.random(), time.monotonic()
        samsara = Samsara(lambda _: 500 if time.monotonic() - start < 3 or dice.random() < rate else 202)
        with Subject(binary, samsara.settings()) as gateway:
            start = time.monotonic()
            for number in range(400):
                gateway.post("/v1/samsara/event", event(f"s{number % 20}", number))
            began = time.monotonic()
            arrived = wait(lambda: len(samsara.arrived_at) == 400, 60)
            expect(not gateway.failed(), f"seed {seed}: {len(gateway.failed())} innocent events failed")
            expect(arrived, f"seed {seed}: {len(samsara.arrived_at)} of 400 arrived")
            slowest = max(slowest, time.monotonic() - began)
    return f"drained within {slowest:.0f} s"


def outage_that_answers_500(binary):
    """An outage that answers 500 to everything costs no attempts, and the messages go out when it ends."""
    is_down = True
    samsara = Samsara(lambda _: 500 if is_down else 202)
    with Subject(binary, samsara.settings()) as gateway:
        ids = []
        for number in range(20):
            ids.append(gateway.post("/v1/samsara/event", event(f"s{number % 5}", number))["id"])
            time.sleep(0.05)
        time.sleep(20)
        attempts = max(gateway.message(identifier)["attempts"] for identifier in ids)
        expect(attempts == 0, f"a message has {attempts} attempts during the outage")
        expect(gateway.upstream()["health"] == "down", f"health is {gateway.upstream()['health']}")
        is_down = False
        gateway.post("/v1/upstreams/samsara/resume")
        expect(wait(lambda: len(samsara.arrived_at) == 20, 30), f"{len(samsara.arrived_at)} of 20 arrived")
        return f"{len(samsara.paths)} requests"


def seer_with_a_bad_endpoint(binary, status, headers):
    seer = Seer((status, headers))
    with Subject(binary, seer.settings()) as gateway:
        sent, number, end = {}, 0, time.monotonic() + 20
        while time.monotonic() < end:
            for kind in ("tincan", "activity", "instrumentation"):
                number += 1
                sent[number] = time.monotonic()
                gateway.post(f"/v1/seer/{kind}", report(kind, number))
            if number % 30 == 0 or number == 3:
                gateway.post("/v1/seer/custom", {"x": number})
            time.sleep(0.2)
        expect(wait(lambda: len(seer.arrived_at) == number, 3), f"{len(seer.arrived_at)} of {number} arrived")
        slowest = max(seer.arrived_at[key] - sent[key] for key in sent)
        expect(slowest < 1.5, f"the slowest took {slowest:.1f} s")
        expect(gateway.get("/v1/upstreams/seer")["health"] in ("up", "degraded"), "the whole upstream is held")
        return f"slowest {slowest:.2f} s, {sum('custom' in path for path in seer.paths)} requests to the endpoint"


def report(kind, number):
    if kind == "tincan":
        target = {"id": "o", "definition": {"type": "t"}}
        context = {"extensions": {"appId": "a"}}
        return {"actor": {"mbox": "m"}, "verb": {"id": "v"}, "object": target, "context": context, "seq": number}
    target = {"id": "o", "objectType": "t"}
    return {"actor": {"id": "a"}, "verb": "v", "object": target, "generator": {"appId": "g"}, "seq": number}


def seer_endpoint_that_does_not_exist(binary):
    """404 from a custom endpoint concerns that endpoint alone."""
    return seer_with_a_bad_endpoint(binary, 404, {})


def seer_endpoint_that_is_rate_limited(binary):
    """So does a rate limit with Retry-After."""
    return seer_with_a_bad_endpoint(binary, 429, {"Retry-After": "8"})


def seer_endpoint_that_is_unavailable(binary):
    """And a 503 with Retry-After."""
    return seer_with_a_bad_endpoint(binary, 503, {"Retry-After": "8"})


def seer_endpoint_that_refuses_the_token(binary):
    """And 401 under a token that the others accept."""
    return seer_with_a_bad_endpoint(binary, 401, {})


def seer_endpoint_that_forbids(binary):
    """And 403."""
    return seer_with_a_bad_endpoint(binary, 403, {})


def steady_traffic(binary):
    """Accepted → delivered at 10 and 200 messages/s: p99 within batchMaxWaitSeconds + 50 ms."""
    samsara = Samsara(lambda _: 202)
    figures = []
    with Subject(binary, samsara.settings()) as gateway:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
        for start, rate in ((0, 10), (100_000, 200)):
            sent, began = {}, time.monotonic()
            for index in range(rate * 15):
                body = json.dumps(event(f"s{index % 50}", start + index))
                headers = {"Content-Type": "application/json", "Authorization": f"Bearer {gateway.key}"}
                connection.request("POST", "/v1/samsara/event", body, headers)
                connection.getresponse().read()
                sent[start + index] = time.monotonic()
                time.sleep(max(0, began + (index + 1) / rate - time.monotonic()))
            expect(wait(lambda: sent.keys() <= samsara.arrived_at.keys(), 6), f"at {rate}/s some did not arrive")
            slow = percentile([samsara.arrived_at[key] - sent[key] for key in sent], 0.99)
            figures.append(f"p99 {slow * 1000:.0f} ms at {rate}/s")
            expect(slow <= 0.1, figures[-1])
    return ", ".join(figures)


def expiry_while_the_upstream_is_held(binary):
    """expireAfterSeconds counts while a wrong URL holds the upstream."""
    samsara = Samsara(lambda _: 404)
    with Subject(binary, samsara.settings(expireAfterSeconds=3)) as gateway:
        ids = [gateway.post("/v1/samsara/event", event("a", number))["id"] for number in range(3)]
        began = time.monotonic()
        expired = wait(lambda: {gateway.message(one)["state"] for one in ids} == {"expired"}, 15)
        expect(expired, f"states are {[gateway.message(one)['state'] for one in ids]}")
        return f"after {time.monotonic() - began:.0f} s"


def reason_of_a_paused_message(binary):
    """A paused message waits for `pause`, and no time is promised."""
    samsara = Samsara(lambda _: 503)
    with Subject(binary, samsara.settings()) as gateway:
        identifier = gateway.post("/v1/samsara/event", event("a", 1))["id"]
        time.sleep(2)
        gateway.post("/v1/upstreams/samsara/pause")
        time.sleep(0.5)
        message = gateway.message(identifier)
        shown = (message["waitingFor"], message["nextAttemptAt"])
        expect(shown == ("pause", None), f"shows {shown}")
        return ""


def message_with_not_before(binary):
    """It takes its place in the lane when it becomes due, and delays no other message until then."""
    samsara = Samsara(lambda _: 202)
    with Subject(binary, samsara.settings()) as gateway:
        due = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3))
        gateway.post(
            "/v1/messages", {"upstream": "samsara", "kind": "event", "payload": event("a", 1), "notBefore": due})
        gateway.post("/v1/samsara/event", event("a", 2))
        expect(wait(lambda: samsara.order == [2], 1), f"arrived at first: {samsara.order}")
        expect(wait(lambda: samsara.order == [2, 1], 6), f"arrived: {samsara.order}")
        return ""


class Strangers:
    """Clients without a key that send calls with a wrong signature to the route for StreamOne's SDKs, without a pause."""

    def __init__(self, subject, clients, body):
        self.port, self.ends, self.statuses = subject.port, threading.Event(), collections.Counter()
        query = (
            "api=3&format=json&authentication_type=application"
            f"&timestamp={int(time.time())}&application=application-id&signature={'0' * 40}"
        )
        self.request = (
            f"POST /v1/streamone/api/item/edit?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        self.threads = [threading.Thread(target=self.run) for _ in range(clients)]

    def run(self):
        while not self.ends.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
                    connection.sendall(self.request)
                    answer = b"".join(iter(lambda: connection.recv(65536), b""))
                status = re.search(rb'"status": ?(\d+)', answer)
                self.statuses[int(status[1]) if status else "none"] += 1
            except OSError:
                # A refusal that was sent before the body was read may end as a reset.
                self.statuses["reset"] += 1

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()


def strangers_on_the_open_route(binary, clients, size, ask):
    """How many requests with a key one client makes in 5 s next to such strangers, as a share of those without them."""
    def decide(*_):
        return 200, {}, b'{"header":{"status":0,"statusmessage":"OK","apiversion":3,"cacheable":false},"body":null}'

    platform = {"type": "streamone", "apiUrl": StandIn(decide).url, "id": "application-id", "psk": "secret-key"}
    settings = {
        "server": {"maxBodyMemoryBytes": 64 << 20},
        "upstreams": {"streamone": platform, "other": platform, "samsara": {"url": Samsara(lambda _: 202).url}},
    }
    with Subject(binary, settings) as subject:
        def requests():
            count, end = 0, time.monotonic() + 5
            while time.monotonic() < end:
                ask(subject, count)
                count += 1
            return count

        alone, idle = requests(), subject.rss_mib()
        with Strangers(subject, clients, b"a=" + b"x" * (size - 2)) as strangers:
            time.sleep(1)
            together = requests()
        grown = subject.rss_mib("VmHWM") - idle
    expect(together > 0.05 * alone, f"{together} requests next to strangers, {alone} without them")
    expect(grown < 96, f"the memory for bodies is 64 MiB, and {grown:.0f} MiB more are in use")
    return f"{together / alone:.2f} of {alone} requests, {grown:.0f} MiB, strangers got {dict(strangers.statuses)}"


def strangers_with_large_calls_hold_up_no_call(binary):
    """40 calls of 3.7 MB at a time: a call with a key once waited for all of them."""
    def ask(subject, number):
        subject.post("/v1/other/proxy/item/edit", {"number": number})

    return strangers_on_the_open_route(binary, 40, 3_700_000, ask)


def strangers_with_small_calls_hold_up_no_message(binary):
    """8 clients with calls of 64 KB: each once kept a thread that serves all connections."""
    def ask(subject, number):
        subject.post("/v1/samsara/event", event("a", number))

    return strangers_on_the_open_route(binary, 8, 64_000, ask)


def stranger_from_another_address(binary):
    """Without a key, and not from loopback: nothing but 401, /livez and /readyz."""
    script = pathlib.Path(__file__).resolve().parent / "stranger.py"
    done = subprocess.run(
        ["unshare", "--net", "--map-root-user", script, "--binary", binary], capture_output=True, text=True, timeout=300)
    expect(done.returncode == 0, f"{done.stdout}{done.stderr}")
    return done.stdout.strip()


# ---- One message, endpoint or connection that others must not wait for


class Receiver(StandIn):
    """A webhook: accepts the items for which `status(path, items)` is below 300, and records them by their `seq`."""

    def __init__(self, status, headers=None, answer=b""):
        self.order, self.tokens, self.arrived_at, self.requests = [], 0, {}, collections.Counter()

        def decide(_, path, body):
            if path.startswith("/token"):
                self.tokens += 1
                token = {"access_token": f"T{self.tokens}", "token_type": "bearer", "expires_in": 3600}
                return 200, {"Content-Type": "application/json"}, json.dumps(token).encode()
            items = [json.loads(line) for line in body.splitlines()]
            items = [item for value in items for item in (value if isinstance(value, list) else [value])]
            answered = status(path, items)
            self.requests[answered] += 1
            if answered < 300:
                for item in items:
                    self.order.append(item["seq"])
                    self.arrived_at.setdefault(item["seq"], time.monotonic())
            return answered, headers or {}, answer

        super().__init__(decide)

    def settings(self, **upstream):
        return {"upstreams": {"hook": {"type": "webhook", "url": self.url, "verifyAtStart": False, **upstream}}}


def refuses(status):
    """Answers `status` to every request that contains poison, and accepts all others."""
    return lambda _, items: status if any(item.get("poison") for item in items) else 200


def one_message_that_is_refused(binary, status, index=0, poisons=1, **upstream):
    """49 messages, of which one gets `status` each time: the others arrive, and it alone fails in the end."""
    receiver = Receiver(refuses(status))
    if "auth" in upstream:
        upstream["auth"] = {**upstream["auth"], "tokenURL": receiver.url + "/token"}
    with Subject(binary, receiver.settings(**upstream)) as gateway:
        chosen = set(range(index, index + poisons))
        items = [{"seq": number, "who": f"w{number % 7}"} for number in range(48 + poisons)]
        for number in chosen:
            items[number].update(poison=True, who=f"p{number}")
        began = time.monotonic()
        ids = gateway.post("/v1/hook/event", items)["ids"]
        healthy = len(items) - poisons
        what = f"{status} {upstream.get('batch', 'none')}"
        expect(
            wait(lambda: len(receiver.arrived_at) == healthy, 30),
            f"{what}: {len(receiver.arrived_at)} of {healthy} others arrived, {dict(receiver.requests)}")
        took = time.monotonic() - began
        number, end = 1000, time.monotonic() + 90
        while len(gateway.failed()) < poisons and time.monotonic() < end:
            number += 1
            gateway.post("/v1/hook/event", {"seq": number, "who": "w"})
            time.sleep(0.25)
        failed = {message["id"] for message in gateway.failed()}
        expect(failed == {ids[one] for one in chosen}, f"{what}: {len(failed)} failed, {poisons} should")
        expect(
            wait(lambda: gateway.get("/v1/upstreams/hook")["health"] == "up", 10),
            f"{what}: health is {gateway.get('/v1/upstreams/hook')['health']}")
        return f"{status}: {took:.1f} s, {sum(receiver.requests.values())} requests, {receiver.tokens} tokens"


def message_refused_with_any_status(binary):
    """401, 403, 404, 405, 406, a redirect and 407 for one message hold up no other."""
    return "; ".join(one_message_that_is_refused(binary, status) for status in (401, 403, 404, 405, 406, 302, 407))


def message_refused_in_a_batch(binary):
    """The same in arrays, in NDJSON, and with lanes; in the middle, and five of them."""
    return "; ".join(
        [
            one_message_that_is_refused(binary, 403, 20, batch="array"),
            one_message_that_is_refused(binary, 404, 48, batch="ndjson"),
            one_message_that_is_refused(binary, 401, 7, batch="array", orderBy="/who"),
            one_message_that_is_refused(binary, 403, 0, poisons=5, batch="array"),
            one_message_that_is_refused(binary, 403, 0, poisons=5),
        ])


def message_refused_under_a_token(binary):
    """With OAuth 2.0 a new token is tried, and then it is known to be the message."""
    auth = {"type": "oauth2", "clientId": "c", "clientSecret": "secret-of-c"}
    return "; ".join(one_message_that_is_refused(binary, status, 3, auth=auth) for status in (401, 403))


def samsara_event_that_is_refused(binary):
    """A batch of Samsara in which one event gets 401 or 403 each time."""
    figures = []
    for status in (401, 403, 404):
        samsara = Samsara(
            lambda events, status=status: status if any(one["eventName"] == "poison" for one in events) else 202)
        with Subject(binary, samsara.settings()) as gateway:
            began = time.monotonic()
            events = [event(f"s{number}", number, "page.viewed" if number else "poison") for number in range(20)]
            ids = gateway.post("/v1/samsara/event", events)["ids"]
            expect(wait(lambda: len(samsara.arrived_at) == 19, 30), f"{status}: {len(samsara.arrived_at)} of 19 arrived")
            figures.append(f"{status}: {time.monotonic() - began:.1f} s, {len(samsara.paths)} requests")
            expect(not {one["id"] for one in gateway.failed()} - {ids[0]}, "an innocent event failed")
    return "; ".join(figures)


def credentials_that_nobody_accepts(binary):
    """Every request gets 401: nothing fails, few requests are made, and right credentials deliver everything."""
    is_right = False
    receiver = Receiver(lambda *_: 200 if is_right else 401)
    with Subject(binary, receiver.settings(auth={"type": "bearer", "token": "wrong-token"})) as gateway:
        for number in range(60):
            gateway.post("/v1/hook/event", {"seq": number})
        time.sleep(30)
        shown = gateway.get("/v1/upstreams/hook")
        expect(shown["health"] == "unauthorized", f"health is {shown['health']}")
        expect(not gateway.failed(), f"{len(gateway.failed())} failed")
        count = sum(receiver.requests.values())
        expect(count <= 20, f"{count} requests in 30 s")
        is_right = True
        settings = json.loads(gateway.config.read_text())
        settings["upstreams"]["hook"]["auth"]["token"] = "right-token"
        gateway.config.write_text(json.dumps(settings))
        gateway.child.send_signal(signal.SIGHUP)
        expect(wait(lambda: len(receiver.arrived_at) == 60, 20), f"{len(receiver.arrived_at)} of 60 arrived")
        expect(gateway.get("/v1/upstreams/hook")["health"] == "up", "still unauthorized")
        return f"{count} requests while they were wrong"


def wrong_endpoint_that_is_tried_first(binary):
    """The first request ever is to an endpoint that answers 404: the right ones do not wait for it."""
    receiver = Receiver(lambda path, _: 404 if path == "/wrong" else 200)
    kinds = {"wrong": {"path": "/wrong"}, **{f"right{number}": {"path": f"/right{number}"} for number in range(4)}}
    seer = Seer((404, {}))
    with Subject(binary, receiver.settings(kinds=kinds)) as gateway:
        first = gateway.post("/v1/hook/wrong", {"seq": -1})["id"]
        time.sleep(1)
        began = time.monotonic()
        for number in range(348):
            gateway.post(f"/v1/hook/right{number % 4}", {"seq": number})
        expect(wait(lambda: len(receiver.arrived_at) == 348, 15), f"{len(receiver.arrived_at)} of 348 arrived")
        took = time.monotonic() - began
        expect(gateway.message(first)["state"] == "queued", "the message for the wrong endpoint failed")
    with Subject(binary, seer.settings()) as gateway:
        gateway.post("/v1/seer/custom", {"x": 1})
        time.sleep(1)
        for number in range(1, 61):
            kind = ("tincan", "activity", "instrumentation")[number % 3]
            gateway.post(f"/v1/seer/{kind}", report(kind, number))
        expect(wait(lambda: len(seer.arrived_at) == 60, 15), f"Seer: {len(seer.arrived_at)} of 60 arrived")
    return f"{took:.1f} s"


def health_of_an_empty_queue(binary):
    """Everything that waited for a closed port was cancelled: a flush or resume ends `down`, and a probe says what it can."""
    receiver = Receiver(lambda *_: 200)
    port = receiver.server.server_address[1]
    receiver.server.shutdown()
    receiver.server.server_close()
    with Subject(binary, receiver.settings()) as gateway:
        ids = [gateway.post("/v1/hook/event", {"seq": number})["id"] for number in range(8)]
        expect(wait(lambda: gateway.get("/v1/upstreams/hook")["health"] == "down", 30), "never down")
        gateway.post("/v1/messages/cancel", {"ids": ids})
        expect(wait(lambda: gateway.get("/v1/upstreams/hook")["queued"] == 0, 10), "not all were cancelled")
        probed = gateway.post("/v1/upstreams/hook/probe")
        expect(probed["outcome"] == "unreachable" and probed["detail"].startswith("TCP: "), f"probe: {probed}")
        listener = socket.create_server(("127.0.0.1", port))
        probed = gateway.post("/v1/upstreams/hook/probe")
        expect(probed["outcome"] == "ok" and probed["status"] is None, f"probe after the start: {probed}")
        with listener, listener.accept()[0] as connection:
            expect(connection.recv(1) == b"", "the probe sent something")
        gateway.post("/v1/upstreams/hook/resume")
        ended = wait(lambda: gateway.get("/v1/upstreams/hook")["health"] == "up", 12)
        shown = gateway.get("/v1/upstreams/hook")
        expect(ended, f"health is {shown['health']}, circuit {shown['circuit']}")
        return f"{port}, {probed['durationMs']} ms"


class Raw:
    """Reads requests, and answers each with the bytes of `answer(number, head)`; then closes the connection."""

    def __init__(self, answer, keep=0):
        self.requests, self.at, self.heads = 0, [], []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.answer, self.keep = answer, keep
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.socket.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                line = stream.readline()
                if not line:
                    return
                head += line
            length = re.search(rb"(?i)content-length: (\d+)", head)
            stream.read(int(length[1]) if length else 0)
            self.requests += 1
            self.at.append(time.monotonic())
            self.heads.append(head)
            connection.sendall(self.answer(self.requests, head))
            time.sleep(self.keep)


def responses_that_are_cut(binary):
    """Status and header arrived, the body did not: the status counts."""
    cut = {
        "short": b"Content-Length: 40\r\n\r\nhello world",
        "chunked": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "gzip": b"Content-Encoding: gzip\r\nContent-Length: 30\r\n\r\n" + gzip.compress(b"x" * 100)[:12],
        "none": b"Content-Length: 5\r\n\r\n",
    }
    for name, rest in cut.items():
        for status, state in ((b"200 OK", "delivered"), (b"400 Bad Request", "failed")):
            raw = Raw(lambda *_, rest=rest, status=status: b"HTTP/1.1 " + status + b"\r\n" + rest)
            with Subject(binary, {"upstreams": {"hook": {"type": "webhook", "url": raw.url}}}) as gateway:
                one = gateway.post("/v1/hook/event", {"seq": 1})["id"]
                settled = wait(lambda: gateway.message(one)["state"] == state, 8)
                expect(settled, f"{name} {status}: {gateway.message(one)}, {raw.requests} requests")
                expect(raw.requests == 1, f"{name} {status}: {raw.requests} requests")
    raw = Raw(lambda *_: b"HTTP/1.1 429 Slow\r\nRetry-After: 6\r\n" + cut["short"])
    with Subject(binary, {"upstreams": {"hook": {"type": "webhook", "url": raw.url}}}) as gateway:
        gateway.post("/v1/hook/event", {"seq": 1})
        expect(wait(lambda: raw.requests >= 2, 20), "429: not sent again")
        expect(raw.at[1] - raw.at[0] >= 5.9, f"429: sent again after {raw.at[1] - raw.at[0]:.1f} s")
    raw = Raw(lambda *_: b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", keep=30)
    settings = {"delivery": {"requestTimeoutSeconds": 2}, "upstreams": {"hook": {"type": "webhook", "url": raw.url}}}
    with Subject(binary, settings) as gateway:
        one = gateway.post("/v1/hook/event", {"seq": 1})["id"]
        expect(wait(lambda: gateway.message(one)["state"] == "delivered", 10), f"silent body: {gateway.message(one)}")
        expect(raw.requests == 1, f"silent body: {raw.requests} requests")
    return ""


def receiver_that_goes_mute(binary):
    """A connection that is open but silent is not used again after a time-out: the next one works."""
    served = collections.Counter()

    def decide(_, __, body):
        name = threading.current_thread().name
        served[name] += 1
        if len(served) == 1 and served[name] > 1:
            time.sleep(60)
        return 200, {}, b""

    receiver = StandIn(decide)
    settings = {"upstreams": {"hook": {"type": "webhook", "url": receiver.url, "delivery": {"requestTimeoutSeconds": 2}}}}
    with Subject(binary, settings) as gateway:
        ids = []
        for number in range(3):
            ids.append(gateway.post("/v1/hook/event", {"seq": number})["id"])
            time.sleep(0.3)
        arrived = wait(lambda: all(gateway.message(one)["state"] == "delivered" for one in ids), 15)
        expect(arrived, f"{[gateway.message(one)['state'] for one in ids]}")
        return f"{len(served)} connections"


def redirect_says_where_it_leads(binary):
    """The error of a redirect shows host and path, but neither query nor user information."""
    receiver = Receiver(lambda *_: 301, {"Location": "https://user:hidden@other.example/new/place?sig=TOPSECRET"})
    with Subject(binary, receiver.settings(url=receiver.url + "/hook/")) as gateway:
        one = gateway.post("/v1/hook/event", {"seq": 1})["id"]
        error = lambda: gateway.message(one)["lastError"] or gateway.get("/v1/upstreams/hook")["lastError"]  # noqa: E731
        expect(wait(error, 10), "no error")
        detail = error()["detail"]
        expect("other.example/new/place" in detail, detail)
        expect("TOPSECRET" not in detail and "hidden" not in detail, detail)
        expect(receiver.paths[0] == "/hook/", receiver.paths[0])
        return detail


def receiver_that_rejects_everything(binary, seconds=6):
    """422 to everything at 2000 messages a second: few become dead letters, and all others arrive once it is repaired."""
    broken = True
    receiver = Receiver(lambda *_: 422 if broken else 200)
    settings = receiver.settings(batch="ndjson")
    with Subject(binary, settings) as gateway:
        began, number = time.monotonic(), 0
        while time.monotonic() < began + seconds:
            gateway.post("/v1/hook/event", [{"seq": number + each} for each in range(200)])
            number += 200
            time.sleep(max(0, began + number / 2000 - time.monotonic()))
        upstream = gateway.get("/v1/upstreams/hook")
        held = [endpoint["waitingFor"] for endpoint in upstream["endpoints"]]
        expect(held == ["guard"], f"the endpoint waits for {held}")
        failed, requests = upstream["counts"]["failed"], sum(receiver.requests.values())
        expect(0 < failed <= 51, f"{failed} of {number} failed")
        broken = False
        # A probe at once, rather than within half a minute.
        gateway.post("/v1/upstreams/hook/flush")
        expect(wait(lambda: len(receiver.arrived_at) == number - failed, 60), f"{len(receiver.arrived_at)} arrived")
        counts = gateway.get("/v1/upstreams/hook")["counts"]
        expect(counts["failed"] == failed, f"{counts['failed']} failed in the end")
        return f"{number} messages in {seconds} s: {failed} failed, {requests} requests"


def receiver_with_a_capacity(binary, seconds=20, capacity=200):
    """429 to all beyond so many requests in a second: an adaptive upstream gets nearly that many, and few are refused."""
    seen, answers = collections.Counter(), []

    def status(*_):
        now = time.time()
        seen[int(now)] += 1
        answers.append((now, 200 if seen[int(now)] <= capacity else 429))
        return answers[-1][1]

    receiver = Receiver(status)
    with Subject(binary, receiver.settings(delivery={"adaptive": True, "maxInFlight": 16})) as gateway:
        began, number = time.monotonic(), 0
        # It is searched for ten seconds, and measured after them.
        while time.monotonic() < began + 10 + seconds:
            if number < capacity * (time.monotonic() - began + 5):
                gateway.post("/v1/hook/event", [{"seq": number + each} for each in range(capacity)])
                number += capacity
            time.sleep(0.1)
        end = int(time.time())
        counted = collections.Counter(answer for at, answer in answers if end - seconds <= at < end)
        expect(counted[200] >= 0.95 * capacity * seconds, f"{counted[200]} of {capacity * seconds} were used")
        expect(counted[429] <= 0.01 * counted[200], f"{counted[429]} of {sum(counted.values())} were refused")
        return f"{100 * counted[200] / capacity / seconds:.1f} % of {capacity}/s used, {counted[429]} refused"


def one_caller_queues_a_million(binary, queued=1_000_000, seconds=15):
    """One caller has queued a million messages, and another sends ten in a second, each of which takes at most twice as
    long as without them (99 of 100)."""
    arrived_at = {}

    def decide(_, __, body):
        for found in re.finditer(rb'"few": ?(\d+)', body):
            arrived_at.setdefault(int(found[1]), time.monotonic())
        time.sleep(0.05)
        return 200, {}, b""

    stand_in = StandIn(decide)
    few, entry = new_key(binary)
    settings = {
        "upstreams": {"hook": {"type": "webhook", "url": stand_in.url, "batch": "array", "verifyAtStart": False}}}

    class Shared(Subject):
        def essentials(self):
            return merged(super().essentials(), {"auth": {"keys": [self.entry, {**entry, "name": "few"}]}})

    def send(gateway, first):
        """Returns how long the messages took from their acceptance to the upstream, in seconds."""
        accepted_at = {}
        for number in range(first, first + 10 * seconds):
            due = time.monotonic() + 0.1
            headers = {"Authorization": f"Bearer {few}", "Content-Type": "application/json"}
            text = json.dumps({"few": number})
            status, _, answer = call(gateway.port, "POST", "/v1/hook/event", text, headers)
            expect(status == 202, f"POST: {status} {answer.decode()[:200]}")
            accepted_at[number] = time.monotonic()
            time.sleep(max(0, due - time.monotonic()))
        expect(wait(lambda: all(number in arrived_at for number in accepted_at), 60), "some did not arrive")
        return percentile([arrived_at[number] - at for number, at in accepted_at.items()], 0.99)

    with Shared(binary, settings) as gateway:
        alone = send(gateway, 0)
        gateway.post("/v1/upstreams/hook/pause", {})
        lines = b"\n".join(b'{"many":%d}' % number for number in range(10_000))
        for _ in range(queued // 10_000):
            headers = {"Content-Type": "application/x-ndjson"}
            status, _, answer = call(gateway.port, "POST", "/v1/hook/event", lines, headers)
            expect(status == 202, f"POST: {status} {answer.decode()[:200]}")
        gateway.post("/v1/upstreams/hook/resume", {})
        shared = send(gateway, 1_000_000)
        left = gateway.get("/v1/upstreams/hook")["queued"]
        expect(left > 0, "the million was sent before the measurement ended")
        expect(shared <= 2 * alone, f"p99 {1000 * shared:.0f} ms instead of {1000 * alone:.0f} ms")
        return f"p99 {1000 * alone:.0f} ms alone, {1000 * shared:.0f} ms with {left} still queued"


def answers_do_not_reach_the_log(binary):
    """A receiver that echoes what it refuses, and secrets in a query: neither is in the log, at any level."""
    receiver = Receiver(lambda *_: 400, {}, b'{"name":"Alice","ssn":"078-05-1120"}')
    settings = receiver.settings(
        url=receiver.url + "/hook?v=1&sig=TOPSECRET1", kinds={"event": {"path": "/x?code=TOPSECRET2"}},
        query={"token": "TOPSECRET3"})
    settings["log"] = {"level": "trace"}
    with Subject(binary, settings) as gateway:
        one = gateway.post("/v1/hook/event", {"seq": 1})["id"]
        expect(wait(lambda: gateway.message(one)["state"] == "failed", 10), "did not fail")
        expect("Alice" in gateway.message(one)["lastError"]["detail"], "lastError has no answer")
        log = gateway.log.read_text()
        expect("Alice" not in log and "078" not in log, "the answer is in the log")
        shown = log + json.dumps([gateway.get(path) for path in (
            f"/v1/messages/{one}?include=attempts", "/v1/upstreams/hook", "/v1/upstreams/hook/failures")])
        shown += json.dumps(gateway.post("/v1/hook/event?dryRun=true", {"seq": 2}))
        for secret in ("TOPSECRET1", "TOPSECRET2", "TOPSECRET3"):
            expect(secret not in shown, f"{secret} is shown: …{shown[max(0, shown.find(secret) - 200):][:300]}")
        sent = receiver.paths[0]
        expect(all(f"TOPSECRET{n}" in sent for n in (1, 2, 3)), f"sent to {sent}")
        return sent


def copies_of(gateway):
    """The originals of all copies, in the order of the copies."""
    originals, cursor = [], ""
    while cursor is not None:
        page = gateway.get(f"/v1/messages?limit=1000{cursor}")
        originals += [message["replayOf"] for message in page["messages"] if "replayOf" in message]
        cursor = f"&cursor={page['next']}" if page["next"] else None
    return originals


def replay_killed_at_random_places(binary, kills=200, messages=60_000):
    """A replay goes on after each kill: all messages are queued again, each once, in their order."""
    with tempfile.TemporaryDirectory(prefix="postern-replay-") as directory:
        with Simulator(binary, directory, keep="counts") as simulator:
            settings = {
                "outbox": {"deliveredPayloadSeconds": 3600}, "upstreams": {"samsara": {"url": simulator.url()}}}
            gateway, ids = Subject(binary, settings), []
            for first in range(0, messages, 500):
                ids += gateway.post("/v1/samsara/event", [event("s", first + n) for n in range(500)])["ids"]
            expect(wait(lambda: gateway.upstream()["queued"] == 0, 120), "not all were delivered")
            body = {"upstream": "samsara", "id": "killed"}
            expect(gateway.post("/v1/messages/replay", body)["matched"] == messages, "not all match")
            struck = 0
            while struck < kills:
                time.sleep(random.random() * 0.05)
                if not gateway.get("/v1/operations/killed")["finishedAt"]:
                    struck += 1
                gateway.kill()
                gateway = Subject(binary, settings, gateway.directory)
                expect(struck == kills or not gateway.get("/v1/operations/killed")["finishedAt"],
                       f"it ended after {struck} kills; take more messages")
            expect(wait(lambda: gateway.get("/v1/operations/killed")["finishedAt"], 300), "it does not end")
            expect(wait(lambda: gateway.upstream()["queued"] == 0, 120), "not all copies were delivered")
            originals = copies_of(gateway)
            expect(originals == sorted(ids), f"{len(originals)} copies of {len(set(originals))} messages")
            gateway.stop()
            code, audit = gateway.outbox("audit")
            expect(code == 0, f"the books do not balance: {audit}")
            return f"{kills} kills while {messages} messages were replayed"


def replay_next_to_live_traffic(binary, messages=1_000_000, chosen=100_000, rate=2000):
    """A tenth of a million delivered messages is replayed while others arrive: those are answered as soon as before."""
    with tempfile.TemporaryDirectory(prefix="postern-replay-") as directory:
        with Simulator(binary, directory, keep="counts") as simulator:
            settings = {
                "outbox": {"deliveredPayloadSeconds": 3600}, "upstreams": {"samsara": {"url": simulator.url()}}}
            with Subject(binary, settings) as gateway:
                def deliver(count):
                    for first in range(0, count, 500):
                        gateway.post("/v1/samsara/event", [event("s", first + n) for n in range(500)])
                    expect(wait(lambda: gateway.upstream()["queued"] == 0, 600), "not all were delivered")
                    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 1)) + "Z"

                begin = deliver((messages - chosen) // 2)
                time.sleep(1.5)
                end = deliver(chosen)
                time.sleep(1.5)
                deliver((messages - chosen) // 2)
                bodies = pathlib.Path(directory) / "bodies"
                bodies.write_text(json.dumps(event("live", 1)))

                def live(seconds):
                    tool = [ROOT / ".build/bench/load", "--port", gateway.port, "--path", "/v1/samsara/event", "--bodies", bodies,
                            "--rate", rate, "--seconds", seconds, "--warmup", 2, "--header", gateway.authorization]
                    done = subprocess.run([str(part) for part in tool], capture_output=True, text=True, timeout=seconds + 60)
                    return json.loads(done.stdout)["p99Ms"]

                body = {"upstream": "samsara", "settledAfter": begin, "settledBefore": end}
                quiet = [live(15), live(15)]
                preview = gateway.post("/v1/messages/replay", {**body, "dryRun": True})
                expect(preview["replayed"] == chosen, f"{preview} would be replayed")
                began = time.monotonic()
                operation = gateway.post("/v1/messages/replay", {**body, "id": "live"})["operation"]
                busy = statistics.median(live(15) for _ in range(3))
                expect(wait(lambda: gateway.get(f"/v1/operations/{operation}")["finishedAt"], 600), "it does not end")
                took = time.monotonic() - began
                quiet += [live(15), live(15)]
                found = gateway.get(f"/v1/operations/{operation}")
                expect(found["done"] == chosen, f"{found}")
                before = statistics.median(quiet)
                figures = f"p99 {busy:.2f} ms while {chosen} of {messages} were replayed in {took:.0f} s, {before:.2f} ms without"
                expect(busy <= max(1.1 * before, before + 0.2), figures)
                return figures


SCENARIOS = [
    poison_among_many_sources, poison_in_a_fleet_with_a_single_source, ten_poison_events_at_once,
    random_500s_after_an_outage, outage_that_answers_500, seer_endpoint_that_does_not_exist,
    seer_endpoint_that_is_rate_limited, seer_endpoint_that_is_unavailable, seer_endpoint_that_refuses_the_token,
    seer_endpoint_that_forbids, steady_traffic, expiry_while_the_upstream_is_held, reason_of_a_paused_message,
    message_with_not_before, message_refused_with_any_status, message_refused_in_a_batch, message_refused_under_a_token,
    samsara_event_that_is_refused, credentials_that_nobody_accepts, wrong_endpoint_that_is_tried_first,
    health_of_an_empty_queue, responses_that_are_cut, receiver_that_goes_mute, redirect_says_where_it_leads,
    answers_do_not_reach_the_log, receiver_that_rejects_everything, receiver_with_a_capacity,
    one_caller_queues_a_million, strangers_with_large_calls_hold_up_no_call,
    strangers_with_small_calls_hold_up_no_message, stranger_from_another_address,
    replay_killed_at_random_places, replay_next_to_live_traffic,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="scenarios to run (default: all)")
    parser.add_argument("--binary", help="default $POSTERN_BINARY or .build/release/postern")
    options = parser.parse_args()
    binary = binary_from(options.binary)
    counts = collections.Counter()
    for scenario in SCENARIOS:
        if options.names and scenario.__name__ not in options.names:
            continue
        try:
            figures = scenario(binary)
            counts["passed"] += 1
            print(f"ok    {scenario.__name__}" + (f": {figures}" if figures else ""), flush=True)
        except (Failure, KeyError, OSError, http.client.HTTPException) as failure:
            counts["failed"] += 1
            print(f"FAIL  {scenario.__name__}: {type(failure).__name__}: {failure}", flush=True)
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
