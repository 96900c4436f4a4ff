#!/usr/bin/env python3
"""Measures what docs/design.md, section 9, promises, as ratios to a bare libmicrohttpd server on the same cores.

usage: make bench            all figures, about 45 minutes, writes Benchmarks/RESULTS.md
       Benchmarks/bench.py --quick                minutes instead; says roughly where we are
       Benchmarks/bench.py --only ingest --rounds 7
       Benchmarks/bench.py --only keys --rounds 9   what an API key costs

The gateway requires an API key, and the load has it, unless --without-keys.
"""

import argparse
import collections
import contextlib
import datetime
import hashlib
import hmac
import json
import os
import pathlib
import platform
import re
import resource
import shutil
import signal
import socket
import sqlite3
import statistics
import struct
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))
from harness import KEYS, Failure, Gateway, Process, Simulator, binary_from, call, free_port, listens, merged, until  # noqa: E402

TOOLS = HERE.parent / ".build/bench"
CONNECTIONS, BULK_CONNECTIONS, BULK = 64, 32, 100
# Requests a second whose messages one receiver takes without a backlog that grows.
BULK_RATE = 900


# ---- Payloads


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def padded(value, member, size):
    """`value` as JSON text of exactly `size` bytes, its string `member` filled up with words."""
    words = "the quick brown fox jumps over the lazy dog " * 20
    return compact({**value, member: words[: size - len(compact({**value, member: ""}))]})


def event(number, size=600):
    fields = {
        "timestamp": 1479988864057 + number,
        "sourceId": f"device-{number:06d}",
        "eventName": "course.page.viewed",
        "appVersion": "4.2.1",
        "platform": "ios",
        "screen": {"name": "chapter", "index": number % 40, "orientation": "portrait"},
        "score": 0.95,
        "tags": ["offline", "beta", None, True],
    }
    return padded(fields, "note", size)


def statement(number, size=600):
    fields = {
        "id": f"b2f8d3c0-0000-4000-8000-{number:012d}",
        "actor": {"objectType": "Agent", "mbox": f"mailto:learner-{number:06d}@example.com"},
        "verb": {"id": "http://adlnet.gov/expapi/verbs/interacted"},
        "object": {
            "id": f"http://example.com/course/interactive/{number % 40}",
            "definition": {"type": "http://example.com/course/interactivetype/"},
        },
        "result": {"score": {"scaled": 0.95}},
        "context": {"extensions": {"appId": "bench"}},
        "timestamp": "2026-11-21T05:58:26.000Z",
    }
    return padded(fields, "note", size)


class Visits:
    """Sessions of Curio, one per visitor. Each visitor has a lane with rows of its own, and each session goes to a lane once."""

    DEVICE = {
        "screenWidth": 750, "screenHeight": 1334, "lang": "en-US", "simOperator": "", "simOpCountry": "", "networkOpName": "",
        "connType": "wifi", "brand": "Apple", "model": "iPhone", "osType": "iOS", "osVer": "9", "curioSdkVer": "1.2.4",
        "appVer": "2",
    }
    EVENTS = 18

    @classmethod
    def settings(cls, url):
        return {"upstreams": {"curio": {"serverURL": url + "/api/v2", "apiKey": "key", "trackingCode": "GW7DEM01"}}}

    @classmethod
    def session(cls, number, size=600):
        """The session of a visitor as one request, and how many messages that is."""
        common = {
            "visitorCode": f"visitor-{number:06d}", "sessionCode": f"6d551000-a21d-11e4-8123-{number + 0x100000000000:012x}",
            "timestamp": int(time.time() * 1000),
        }
        actions = [("session_start", compact({**common, **cls.DEVICE}))]
        for event in range(cls.EVENTS):
            actions.append(("event", padded({**common, "eventKey": f"{number}/{event}"}, "eventValue", size)))
        actions.append(("session_end", compact(common)))
        parts = [f'{{"upstream":"curio","kind":"{kind}","payload":{payload}}}' for kind, payload in actions]
        return "[" + ",".join(parts) + "]", len(parts)


class Platform:
    """StreamOne as its simulator has it, and a read asked of it directly and through the gateway."""

    ID, PSK = "9yC-4pQxT_2a", "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu"  # the simulator's own
    ARGUMENTS = {"itemtype": "video", "limit": 25, "offset": 0}
    PATH = "/v1/streamone/proxy/item/view"

    @classmethod
    def settings(cls, url, cache_seconds):
        return {"upstreams": {"streamone": {
            "apiUrl": url, "id": cls.ID, "psk": cls.PSK, "requestCacheSeconds": cache_seconds}}}

    @classmethod
    def signed(cls, url):
        """URL and body of a call as the SDKs make it; good for some minutes."""
        body = "&".join(f"{name}={value}" for name, value in cls.ARGUMENTS.items())
        query = f"api=3&format=json&authentication_type=application&timestamp={int(time.time())}&application={cls.ID}"
        text = f"/api/item/view?{query}&{body}"
        signature = hmac.new(cls.PSK.encode(), text.encode(), hashlib.sha1).hexdigest()
        return f"{url}/api/item/view?{query}&signature={signature}", body


class Subject:
    """What is posted where, and how the upstream that gets it is configured."""

    def __init__(self, upstream, kind, payload, location, **essentials):
        self.upstream, self.kind, self.payload, self.location = upstream, kind, payload, location
        self.path = f"/v1/{upstream}/{kind}"
        self.essentials = essentials

    def settings(self, url):
        return {"upstreams": {self.upstream: {self.location: url, **self.essentials}}}


SUBJECTS = {
    "tincan": Subject("seer", "tincan", statement, "baseURL", clientId="bench", clientSecret="bench"),
    "event": Subject("samsara", "event", event, "url"),
}


# ---- Results


class Row:
    """One line of the table. `limit` is a number to stay over (`at_least`) or under."""

    def __init__(self, what, values, unit, limit=None, at_least=False, note=""):
        self.what, self.values, self.unit, self.note = what, values, unit, note
        self.limit, self.at_least = limit, at_least

    @property
    def middle(self):
        return statistics.median(self.values)

    @property
    def verdict(self):
        if self.limit is None:
            return ""
        met = self.middle >= self.limit if self.at_least else self.middle <= self.limit
        return "yes" if met else "NO"

    def cells(self):
        measured = f"{shown(self.middle)} {self.unit}"
        if len(self.values) > 1:
            measured += f" ({shown(min(self.values))}–{shown(max(self.values))})"
        target = "" if self.limit is None else f"{'≥' if self.at_least else '≤'} {shown(self.limit)} {self.unit}"
        return [self.what, measured, target, self.verdict, self.note]


def shown(number):
    if number >= 1000:
        return f"{number:,.0f}".replace(",", " ")
    return f"{number:.3g}" if number < 100 else f"{number:.0f}"


HEADINGS = ["figure", "measured: median (min–max)", "target", "met", "with"]


def table(rows):
    lines = [HEADINGS] + [row.cells() for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    text = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


# ---- The disk


class Disk:
    """Waits until the file system has freed what was deleted.

    Until then commits stall, for up to a second after a large store, and a case would pay for the one before it. That `unlink` has
    returned does not show the end: a journal frees blocks after a later commit of its own, XFS and btrfs do so in the
    background, and the device may still discard them. Nothing reports it, so that two signs have to agree for a while: the free
    room no longer grows, and small commits in the same folder take as long as usual. The first alone misses what the
    device still does, the second alone a pause between two parts of a deletion.
    """

    COMMITS, CALM_LOOKS, LONGEST_WAIT = 20, 5, 120

    def __init__(self, directory):
        self.directory = directory
        self.times = collections.deque(maxlen=100)
        for _ in range(20):
            self.look()

    def look(self):
        """(bytes that are free, milliseconds of a slow one of a few commits). The file grows, so that a journal is written, too."""
        times = []
        with open(self.directory / "probe", "wb", buffering=0) as file:
            for _ in range(self.COMMITS):
                began = time.perf_counter()
                file.write(bytes(8192))
                os.fdatasync(file)
                times.append((time.perf_counter() - began) * 1000)
        # The slowest two may be due to something else.
        slow = sorted(times)[-3]
        self.times.append(slow)
        state = os.statvfs(self.directory)
        return state.f_bfree * state.f_frsize, slow

    def settles(self):
        """Whether both signs agreed in time. Usual is the median of the latest looks, most of which were at a calm disk."""
        deadline, calm, (free, _) = time.monotonic() + self.LONGEST_WAIT, 0, self.look()
        while calm < self.CALM_LOOKS and time.monotonic() < deadline:
            time.sleep(0.1)
            before, (free, slow) = free, self.look()
            grew = free - before > 16 << 20  # Others delete something, too.
            calm = 0 if grew or slow > 3 * statistics.median(self.times) else calm + 1
        return calm == self.CALM_LOOKS


# ---- Load


class Bench:
    def __init__(self, options):
        self.options = options
        self.binary = binary_from(options.binary)
        self.directory = pathlib.Path(options.data).resolve()
        self.threads = os.cpu_count()
        self.rows = []
        self.seconds = 3 if options.quick else 8
        self.warmup = 1 if options.quick else 2
        self.rounds = options.rounds or (2 if options.quick else 5)
        self.queued = options.queued or (200_000 if options.quick else 5_000_000)
        self.subject = SUBJECTS[options.payload]
        self.stores = 0
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.disk = Disk(self.directory)
        self.settle()
        self.single = self.bodies("single", [self.subject.payload(n) for n in range(1024)])
        self.events = self.bodies("events", [event(n) for n in range(1024)])
        self.bulk = self.bodies("bulk", self.arrays(16, BULK))
        self.fill = self.bodies("fill", self.arrays(4, 1000))
        self.answer_bytes = self.size_of_an_answer()

    def bodies(self, name, lines):
        path = self.directory / f"{name}.ndjson"
        path.write_text("\n".join(lines) + "\n")
        return path

    @staticmethod
    def arrays(count, size):
        return ["[" + ",".join(event(n * size + m) for m in range(size)) + "]" for n in range(count)]

    def say(self, text):
        print(text, flush=True)

    def add(self, *arguments, **named):
        row = Row(*arguments, **named)
        self.rows.append(row)
        self.say("  " + " | ".join(cell for cell in row.cells() if cell))

    def remove(self, directory):
        """Deletes a store, and waits until that cannot slow down what comes next."""
        shutil.rmtree(directory, ignore_errors=True)
        self.settle()

    def settle(self):
        if not self.disk.settles():
            self.say(f"  the disk is still busy after {Disk.LONGEST_WAIT} s; what follows may have stalls that are not its own")

    # Processes

    @contextlib.contextmanager
    def floor(self, threads=None, certificate=()):
        port = free_port()
        command = [TOOLS / "floor", port, threads or self.threads, self.answer_bytes, *certificate]
        with Process(command, self.directory / "floor.log") as floor:
            until(lambda: floor.check_alive() and listens(port), 10, "floor listens")
            floor.port = port
            yield floor

    @contextlib.contextmanager
    def receiver(self):
        """The URL of an upstream in C: the floor on one thread, which takes everything and costs little next to a simulator."""
        with self.floor(threads=1) as floor:
            yield f"http://127.0.0.1:{floor.port}"

    @contextlib.contextmanager
    def simulator(self):
        with Simulator(self.binary, self.directory, keep="counts") as simulator:
            yield simulator

    @contextlib.contextmanager
    def gateway(self, url, subject=SUBJECTS["event"], settings=None, keys=None, environment=None):
        """On an empty store, which is removed at the end. `keys`: whether it requires one, by default as the options say."""
        self.stores += 1
        directory = self.directory / f"store-{self.stores}"
        with self.start(directory, self.settings(url, subject, settings), keys=keys, environment=environment) as gateway:
            yield gateway
        self.remove(directory)

    def start(self, directory, settings, keys=None, **arguments):
        keys = not self.options.without_keys if keys is None else keys
        return Gateway(self.binary, directory, settings, keys=keys, **arguments)

    def settings(self, url, subject=SUBJECTS["event"], more=None):
        base = {
            # As many threads as the floor; room for 10 000 connections and those that ask at the same time.
            "server": {"workerThreads": self.threads, "maxConnections": 12_000},
        }
        return merged(merged(base, subject.settings(url)), more or {})

    @staticmethod
    def dead_url():
        """Nothing listens there."""
        return f"http://127.0.0.1:{free_port()}"

    # Generators

    def wrk(self, port, path, bodies, connections=CONNECTIONS, headers=(), seconds=None, process=None, scheme="http"):
        """What post.lua prints, and the CPU seconds that `process` took meanwhile, if there is one."""

        def run(seconds):
            command = ["wrk", "-t2", f"-c{connections}", f"-d{seconds}s", "--timeout", "20s", "--latency"]
            command += ["-s", HERE / "post.lua", f"{scheme}://127.0.0.1:{port}{path}", "--", bodies, *headers, *key_headers(port)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            if not lines:
                raise Failure(f"wrk: {done.stdout}{done.stderr}")
            return json.loads(lines[-1])

        run(self.warmup)
        before = process.cpu_seconds() if process else 0
        result = run(seconds or self.seconds)
        result["cpuSeconds"] = process.cpu_seconds() - before if process else 0
        if result["refused"] or result["broken"]:
            raise Failure(f"{result['refused']} requests refused, {result['broken']} broken: {result}")
        return result

    def load(self, port, path, bodies, connections=CONNECTIONS, **options):
        command = self.load_command(port, path, bodies, connections, options)
        patience = options.get("seconds", 600) + options.get("warmup", 0) + 60
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, stdin=subprocess.DEVNULL)
        return self.load_result(done.stdout, done.stderr)

    @staticmethod
    def load_command(port, path, bodies, connections, options):
        command = [TOOLS / "load", "--port", port, "--path", path, "--bodies", bodies, "--connections", connections]
        lines = [options["header"]] if "header" in options else []
        options = {**options, "header": "\r\n".join(lines + key_headers(port))}
        for name, value in options.items():
            command += [f"--{name}"] if value is True else [f"--{name}", value]
        return [str(part) for part in command]

    @staticmethod
    def load_result(output, errors):
        try:
            result = json.loads(output)
        except ValueError:
            raise Failure(f"load: {output}{errors}") from None
        if result["refused"] or result["broken"] or result["unanswered"]:
            raise Failure(f"not every request was accepted: {result}")
        return result

    def size_of_an_answer(self):
        with self.gateway(self.dead_url(), self.subject) as gateway:
            body = self.single.read_text().splitlines()[0]
            status, _, answer = call(
                gateway.port, "POST", self.subject.path, body, {"Content-Type": "application/json"})
            if status != 202:
                raise Failure(f"the gateway answered {status} to the first request: {answer.decode()}")
            return len(answer)

    # Figures

    def floor_speed(self, bodies=None):
        with self.floor() as floor:
            return self.wrk(floor.port, self.subject.path, bodies or self.single)["perSecond"]

    def interleaved(self, reference, subject):
        """Both, `rounds` times, taking turns at going first: (reference values, subject values, ratios)."""
        pairs = []
        for number in range(self.rounds):
            if number % 2 == 0:
                first = reference()
                pairs.append((first, subject()))
            else:
                second = subject()
                pairs.append((reference(), second))
        return [a for a, _ in pairs], [b for _, b in pairs], [b / a for a, b in pairs]

    def bare_commits(self, size):
        """How long the disk takes for commits of so many bytes, with nothing else going on: see commit.c."""
        command = [TOOLS / "commit", self.directory / "commit.log", size, self.seconds]
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, timeout=self.seconds + 60)
        if done.returncode:
            raise Failure(done.stderr)
        return {**json.loads(done.stdout), "bytes": size}

    def ingest(self):
        def run(url):
            with self.gateway(url, self.subject) as gateway:
                result = self.wrk(gateway.port, self.subject.path, self.single)
                size = bytes_of_a_commit(gateway)
            results.append(result)
            bare.append(self.bare_commits(size))
            return result["perSecond"]

        def add(what, floors, speeds, ratios):
            self.add(what, ratios, "× floor", limit=0.45, at_least=True, note=versus(speeds, floors))
            self.add("p99 of a write in that run", [each["p99Ms"] for each in results], "ms", limit=6)
            size, p50, p99, p999 = (
                shown(statistics.median(each[name] for each in bare)) for name in ("bytes", "p50Ms", "p99Ms", "p999Ms"))
            self.add(
                "the same, over the p99 of a bare commit", [each["p99Ms"] / one["p99Ms"] for each, one in zip(results, bare)],
                "× bare", limit=1.5, note=f"{size} bytes: p50 {p50} ms, p99 {p99} ms, p99.9 {p999} ms")

        what = f"durable single ingest ({self.options.payload})"
        with self.simulator() as simulator:
            results, bare = [], []
            add(f"{what}, delivery going on", *self.interleaved(self.floor_speed, lambda: run(simulator.url(self.subject.upstream))))
        results, bare = [], []
        add(f"{what}, upstream dead", *self.interleaved(self.floor_speed, lambda: run(self.dead_url())))

    def keys(self):
        """What the check of a key costs single ingest, in turns with the same without keys."""
        url = self.dead_url()

        def run(keys):
            with self.gateway(url, self.subject, keys=keys) as gateway:
                cpu = gateway.cpu_seconds()
                result = self.wrk(gateway.port, self.subject.path, self.single)
                costs[keys].append((gateway.cpu_seconds() - cpu) / result["requests"])
                return result["perSecond"]

        costs = {True: [], False: []}
        without, speeds, ratios = self.interleaved(lambda: run(False), lambda: run(True))
        note = versus(speeds, without, "without keys")
        self.add("single ingest with a key", ratios, "× without keys", limit=0.97, at_least=True, note=note)
        more = [(a - b) / b * 100 for a, b in zip(costs[True], costs[False])]
        self.add("CPU of a request with a key, warm-up included", more, "% more")

    def bulk_ingest(self):
        def run(url):
            with self.gateway(url) as gateway, Backlog(gateway) as backlog:
                result = self.wrk(
                    gateway.port, "/v1/samsara/event", self.bulk, BULK_CONNECTIONS, ["Prefer:return=minimal"])
            backlogs.append(backlog)
            return result["perSecond"] * BULK

        with self.receiver() as url:
            backlogs = []
            floors, speeds, ratios = self.interleaved(self.floor_speed, lambda: run(url))
            note = f"{versus(speeds, floors)}; {growth(backlogs)}"
            self.add("bulk ingest, in messages, delivery going on", ratios, "× floor", limit=2, at_least=True, note=note)
        floors, speeds, ratios = self.interleaved(self.floor_speed, lambda: run(self.dead_url()))
        what = "bulk ingest, in messages, upstream dead"
        self.add(what, ratios, "× floor", limit=3, at_least=True, note=versus(speeds, floors))

    def through(self, simulator, bodies, connections, messages, window, compression):
        """Messages a second that reach the upstream while at most `window` of them are under way."""
        simulator.forget("counts")
        settings = {"upstreams": {"samsara": {"compression": compression}}}
        with self.gateway(simulator.url(), settings=settings) as gateway:
            # Ended by its standard input; the 300 s are only a bound.
            options = {"window": True, "messages": messages, "seconds": 300, "header": "Prefer: return=minimal"}
            command = self.load_command(gateway.port, "/v1/samsara/event", bodies, connections, options)
            load = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            samples = []
            try:
                started = time.monotonic()
                while (now := time.monotonic()) < started + self.warmup + 2 * self.seconds:
                    if load.poll() is not None:
                        raise Failure(f"load ended: {load.stderr.read()}")
                    count = simulator.count()
                    samples.append((now, count))
                    load.stdin.write(f"{count + window}\n")
                    load.stdin.flush()
                    time.sleep(0.05)
                output, errors = load.communicate(timeout=60)
            finally:
                if load.poll() is None:
                    load.kill()
                    load.wait()
            accepted = self.load_result(output, errors)["accepted"] * messages
            until(lambda: simulator.count() >= accepted, 60, f"all {accepted} messages arrived", every=0.1)
            steady = [sample for sample in samples if sample[0] >= started + self.warmup]
            (began, before), (ended, after) = steady[0], steady[-1]
            return (after - before) / (ended - began)

    def end_to_end(self):
        def floor():
            with self.floor() as floor:
                options = {"seconds": self.seconds, "warmup": self.warmup}
                return self.load(floor.port, "/v1/samsara/event", self.events, **options)["perSecond"]

        with self.simulator() as simulator:
            for what, bodies, connections, messages, window, limit in [
                ("end to end, singles", self.events, CONNECTIONS, 1, 20_000, 0.30),
                ("end to end, bulk", self.bulk, BULK_CONNECTIONS, BULK, 100_000, 0.6),
            ]:
                for compression, target in [("none", limit), ("gzip", None)]:
                    floors, speeds, ratios = self.interleaved(
                        floor, lambda: self.through(simulator, bodies, connections, messages, window, compression))
                    name = f"{what}, in messages, {compression}"
                    self.add(name, ratios, "× floor", limit=target, at_least=True, note=versus(speeds, floors))

    def lanes(self):
        """Messages a second to an upstream whose lanes have rows of their own: a thousand visitors and more at the same time."""
        visitors = 500 if self.options.quick else 5000
        sessions = [Visits.session(number) for number in range(visitors)]
        total = sum(count for _, count in sessions)
        bodies = self.directory / "sessions"
        bodies.write_text("".join(body + "\n" for body, _ in sessions))

        def run():
            simulator.forget("counts")
            with self.gateway(simulator.url("curio"), settings=Visits.settings(simulator.url("curio"))) as gateway:
                began, cpu = time.monotonic(), gateway.cpu_seconds()
                options = {"header": "Prefer: return=minimal"}
                self.load(gateway.port, "/v1/messages", bodies, BULK_CONNECTIONS, requests=visitors, **options)
                delivered = 'postern_messages_settled_total{upstream="curio",state="delivered"}'
                until(lambda: gateway.metrics()[delivered] >= total, 600, f"all {total} messages delivered", every=0.1)
                costs.append((gateway.cpu_seconds() - cpu) * 1e6 / total)
                return total / (time.monotonic() - began)

        costs = []
        with self.simulator() as simulator:
            floors, speeds, ratios = self.interleaved(self.floor_speed, run)
            name = f"separate lanes ({visitors} visitors of Curio), in messages"
            self.add(name, ratios, "× floor", note=versus(speeds, floors))
            self.add("CPU for each message, separate lanes", costs, "µs")

    def cost(self):
        """CPU of the gateway for each message, over that of the floor for each request. Hardly depends on what else runs."""
        share = 10 if self.options.quick else 1

        def spent(process, bodies, connections, requests, messages, delivers=False):
            """Microseconds of user and system time for each message, until all have arrived."""
            options = {"header": "Prefer: return=minimal"} if messages > 1 else {}

            def post(requests):
                # As fast as answers come, a bulk is stored faster than one receiver takes it, and the backlog would be measured.
                paced = {"rate": BULK_RATE, "seconds": requests / BULK_RATE, "warmup": 0} if delivers and messages > 1 else {}
                self.load(process.port, "/v1/samsara/event", bodies, connections, requests=requests, **options, **paced)

            post(requests // 10)
            before = process.cpu_seconds()
            with Backlog(process) if delivers else contextlib.nullcontext() as backlog:
                post(requests)
            if delivers:
                backlogs.append(backlog)
                total = (requests + requests // 10) * messages
                until(lambda: process.upstream()["counts"]["delivered"] >= total, 120, f"all {total} messages arrived", every=0.1)
            return (process.cpu_seconds() - before) * 1e6 / (requests * messages)

        def floor():
            with self.floor() as floor:
                return spent(floor, self.events, CONNECTIONS, 200_000 // share, 1)

        def gateway(url, *arguments):
            with self.gateway(url or self.dead_url(), settings={"upstreams": {"samsara": {"compression": "none"}}}) as gateway:
                return spent(gateway, *arguments, delivers=bool(url))

        with self.simulator() as simulator, self.receiver() as receiver:
            for what, bodies, connections, requests, messages, targets in [
                ("single", self.events, CONNECTIONS, 100_000 // share, 1, [("", 3.2), (simulator.url(), 4.2)]),
                ("bulk", self.bulk, BULK_CONNECTIONS, 5000 // share, BULK, [("", 0.3), (receiver, 0.7)]),
            ]:
                for url, limit in targets:
                    backlogs = []
                    floors, costs, ratios = self.interleaved(
                        floor, lambda: gateway(url, bodies, connections, requests, messages))
                    note = f"{shown(statistics.median(costs))} µs against {shown(statistics.median(floors))} µs (floor)"
                    note += f"; {growth(backlogs)}" if url else ""
                    name = f"CPU for each message, {what}, {'delivering' if url else 'upstream dead'}"
                    self.add(name, ratios, "× floor", limit=limit, note=note)

    def next_to_floor(self, what, gateway, floor, scheme="http"):
        """Throughput of single and bulk ingest and CPU for each message, as ratios to the floor, and the p99 of a write.

        `gateway` and `floor` start one.
        """

        def run(start, results, bodies, connections, messages, headers=()):
            with start() as process:
                result = self.wrk(
                    process.port, "/v1/samsara/event", bodies, connections, headers, process=process, scheme=scheme)
            results.append(result)
            result["cost"] = result["cpuSeconds"] * 1e6 / (result["requests"] * messages)
            return result["perSecond"] * messages

        for name, bodies, connections, messages, headers in [
            ("single", self.events, CONNECTIONS, 1, []),
            ("bulk", self.bulk, BULK_CONNECTIONS, BULK, ["Prefer:return=minimal"]),
        ]:
            of_floor, of_gateway = [], []
            floors, speeds, ratios = self.interleaved(
                lambda: run(floor, of_floor, self.events, CONNECTIONS, 1),
                lambda: run(gateway, of_gateway, bodies, connections, messages, headers))
            self.add(f"{name} ingest, in messages, {what}", ratios, "× floor", note=versus(speeds, floors))
            base, costs = ([each["cost"] for each in results] for results in (of_floor, of_gateway))
            note = f"{shown(statistics.median(costs))} µs against {shown(statistics.median(base))} µs (floor)"
            self.add(f"CPU for each message, {name}, {what}", [b / a for a, b in zip(base, costs)], "× floor", note=note)
            self.add(f"p99 of a write, {name}, {what}", [each["p99Ms"] for each in of_gateway], "ms")

    def syncs(self):
        """Store only on a slower disk: each sync takes 1 or 5 ms at least. See syncs.c."""
        library = TOOLS / "syncs.so"
        if not library.is_file():
            raise Failure(f"{library} is not there, which the loader would ignore; `make bench-tools` makes it")
        for milliseconds in (1, 5):
            environment = {"LD_PRELOAD": str(library), "SYNC_US": str(milliseconds * 1000)}
            self.next_to_floor(
                f"upstream dead, syncs of {milliseconds} ms",
                lambda: self.gateway(self.dead_url(), environment=environment), self.floor)

    def tls(self):
        """Store only with TLS on the gateway's listener, and on the floor's."""
        files = certificate, key = self.directory / "certificate.pem", self.directory / "key.pem"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "30", "-keyout", key, "-out", certificate]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        settings = {"server": {"tls": {"certificateFile": str(certificate), "keyFile": str(key)}}}
        self.next_to_floor(
            "upstream dead, over TLS", lambda: self.gateway(self.dead_url(), settings=settings),
            lambda: self.floor(certificate=files), scheme="https")

    def instructions(self):
        """See instructions.py, which BUDGET.md is about."""
        from instructions import measured

        for name, count in measured(self.binary):
            self.add(f"instructions for each message, {name}", [count / 1000], "thousand")

    def paced(self):
        """The tail far from saturation, next to that of the floor: what the machine itself does is in both."""

        def run(process):
            options = {"rate": 2000, "seconds": 5 if self.options.quick else 30, "warmup": self.warmup}
            return self.load(process.port, self.subject.path, self.single, **options)

        def floor():
            with self.floor() as floor:
                return run(floor)["p999Ms"]

        def gateway():
            with self.gateway(simulator.url(self.subject.upstream), self.subject) as gateway:
                result = run(gateway)
            p99.append(result["p99Ms"])
            return result["p999Ms"]

        p99 = []
        with self.simulator() as simulator:
            floors, values, _ = self.interleaved(floor, gateway)
        note = f"floor {shown(statistics.median(floors))} ms; p99 {shown(statistics.median(p99))} ms; delivery going on"
        limit = max(10, 3 * statistics.median(floors))
        self.add("p99.9 at 2000 requests/s", values, "ms", limit=limit, note=note)

    def latency(self):
        """How long an accepted message takes to be delivered to a healthy upstream, at rates far from saturation."""
        limit = 50 + 50  # batchMaxWaitSeconds and what design.md allows on top.
        with self.simulator() as simulator:
            for rate in (10, 200, 2000):
                with self.gateway(simulator.url()) as gateway:
                    options = {"rate": rate, "seconds": 20 if self.options.quick else 60}
                    result = self.load(gateway.port, "/v1/samsara/event", self.events, **options)
                    delays = self.delays(gateway, result["accepted"])
                p50, p99 = (delays[len(delays) * percent // 100] for percent in (50, 99))
                note = f"p50 {p50} ms, max {delays[-1]} ms, {shown(len(delays))} messages"
                self.add(f"accepted to delivered, p99 at {rate} messages/s", [p99], "ms", limit=limit, note=note)

    @staticmethod
    def delays(gateway, accepted):
        """Milliseconds from acceptance to delivery, ascending, from the receipts in the store."""
        with contextlib.closing(sqlite3.connect(f"file:{gateway.directory / 'postern.sqlite'}?mode=ro", uri=True)) as store:

            def delivered():
                return store.execute(
                    "SELECT (SELECT count(*) FROM delivered_1) + (SELECT coalesce(sum(count), 0) FROM receipts_1)").fetchone()[0]

            until(lambda: delivered() >= accepted, 30, f"all {accepted} messages are delivered")
            # Of messages that share a receipt, it has the time at which the first one was accepted.
            return [delay for delay, count in store.execute(
                "SELECT settledAtMs - acceptedAtMs AS delay, 1 FROM delivered_1 "
                "UNION ALL SELECT settledAtMs - acceptedAtMs, count FROM receipts_1 ORDER BY delay") for _ in range(count)]

    def proxy(self):
        """StreamOne: what a call costs on its way through, and how many answers a second the cache gives."""
        count, spacing_us = (500, 2000) if self.options.quick else (2000, 5000)
        overheads, medians, tails = [], [], []
        with self.simulator() as simulator:
            url = simulator.url("streamone")
            simulator.control("streamone", {"answers": {"item/view": [{"id": f"item-{n}"} for n in range(25)]}})
            for _ in range(self.rounds):
                with self.gateway(url, settings=Platform.settings(url, cache_seconds=0)) as gateway:
                    through = f"http://127.0.0.1:{gateway.port}{Platform.PATH}"
                    command = [TOOLS / "latency", count, spacing_us]
                    direct, body = Platform.signed(url)
                    command += [direct, "application/x-www-form-urlencoded", body]
                    command += [through, "application/json", compact(Platform.ARGUMENTS), *key_headers(gateway.port)]
                    done = subprocess.run(
                        [str(part) for part in command], capture_output=True, text=True, timeout=120)
                    if done.returncode:
                        raise Failure(done.stderr)
                    result = json.loads(done.stdout)
                    overheads.append(result["throughP50Ms"] - result["directP50Ms"])
                    medians.append(result["directP50Ms"])
                    tails.append(result["throughP99Ms"] - result["directP99Ms"])
            note = f"direct {shown(statistics.median(medians))} ms; at the p99 {shown(statistics.median(tails))} ms more"
            self.add("proxied call, over a direct libcurl call, median", overheads, "ms", limit=1, note=note)

            bodies = self.bodies("read", [compact(Platform.ARGUMENTS)])

            def hits():
                with self.gateway(url, settings=Platform.settings(url, cache_seconds=600)) as gateway:
                    speed = self.wrk(gateway.port, Platform.PATH, bodies)["perSecond"]
                    status, headers, _ = call(
                        gateway.port, "POST", Platform.PATH, compact(Platform.ARGUMENTS),
                        {"Content-Type": "application/json"})
                    if status != 200 or headers["X-Cache"] != "hit":
                        raise Failure(f"no hit but {status}, X-Cache: {headers['X-Cache']}")
                    return speed

            floors, speeds, _ = self.interleaved(lambda: self.floor_speed(bodies), hits)
            self.add("proxied reads from the cache", speeds, "/s", limit=10_000, at_least=True,
                     note=f"floor {shown(statistics.median(floors))}/s")

    def idle(self):
        with self.simulator() as simulator, self.gateway(simulator.url()) as gateway:
            self.post_one(gateway)
            time.sleep(5)
            self.add("memory, idle", [gateway.rss_mib()], "MiB", limit=40)
            seconds = 10 if self.options.quick else 30
            before = gateway.cpu_seconds()
            time.sleep(seconds)
            used = (gateway.cpu_seconds() - before) / seconds * 100
            self.add("CPU when idle", [used], "% of a core", limit=0.5, note=f"over {seconds} s")

    def post_one(self, gateway):
        status, _, body = call(
            gateway.port, "POST", "/v1/samsara/event", event(1), {"Content-Type": "application/json"})
        if status != 202:
            raise Failure(f"{status}: {body.decode()}")

    def connections(self):
        wanted = 10_000
        with self.gateway(self.dead_url()) as gateway, contextlib.ExitStack() as stack:
            sockets = []
            for _ in range(wanted):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), 10))
                sockets.append(connection)
                ask_alive(connection)
            self.add(f"memory, {shown(wanted)} open connections", [gateway.rss_mib()], "MiB", limit=150)
            for connection in sockets[:: wanted // 100]:
                ask_alive(connection)  # All of them are really still open.

    def millions(self):
        """Everything about a store with millions of messages queued for a dead upstream."""
        directory, url = self.directory / "millions", self.dead_url()
        settings = self.settings(url)
        what = f"{shown(self.queued)} queued"
        with self.start(directory, settings) as full:
            started = time.monotonic()
            options = {"requests": self.queued // 1000, "header": "Prefer: return=minimal", "seconds": 1800}
            self.load(full.port, "/v1/samsara/event", self.fill, 8, **options)
            speed = self.queued / (time.monotonic() - started)
            self.say(f"  filled with {what}, {shown(speed)} messages/s")

            def empty_speed():
                with self.gateway(url) as empty:
                    return self.wrk(empty.port, "/v1/samsara/event", self.events)["perSecond"]

            def full_speed():
                return self.wrk(full.port, "/v1/samsara/event", self.events)["perSecond"]

            empties, speeds, ratios = self.interleaved(empty_speed, full_speed)
            note = versus(speeds, empties, "empty")
            self.add(f"ingest with {what}", ratios, "× empty store", limit=0.9, at_least=True, note=note)
            peak = f"peak {shown(full.rss_mib('VmHWM'))} MiB, filling included"
            self.add(f"memory, {what}, under load", [full.rss_mib()], "MiB", limit=100, note=peak)

        starts, memory = {"SIGTERM": [], "SIGKILL": []}, []
        for ended in list(starts) * min(self.rounds, 5):  # How the run before was ended.
            with self.start(directory, settings, wait=False) as gateway:
                starts[ended].append(gateway.wait_ready())
                self.post_one(gateway)
                time.sleep(1)
                memory.append(gateway.rss_mib())
                if ended == "SIGTERM":
                    self.load(gateway.port, "/v1/samsara/event", self.events, seconds=2)
                    gateway.kill()  # Leaves a write-ahead log behind.
        for ended, values in starts.items():
            self.add(f"start with {what}, after {ended}", values, "s", limit=1, note="until /readyz is 200")
        self.add(f"memory, {what}, after a start", memory, "MiB", limit=100)
        self.remove(directory)

    def purge(self):
        """CPU that retention takes to remove the receipts of a million delivered messages, without what a start and idling take."""
        count, directory = (100_000 if self.options.quick else 1_000_000), self.directory / "receipts"

        def kept(gateway):
            return gateway.upstream()["kept"]["delivered"]

        def has_shrunk():
            """Whether the room that the messages took has been given back, which is not part of the purge."""
            before = (directory / "postern.sqlite").stat().st_size
            time.sleep(5)
            return (directory / "postern.sqlite").stat().st_size == before

        with self.receiver() as url:
            settings = self.settings(url)
            with self.start(directory, settings) as gateway:
                options = {"requests": count // 1000, "header": "Prefer: return=minimal", "seconds": 600}
                self.load(gateway.port, "/v1/samsara/event", self.fill, 8, **options)
                until(lambda: kept(gateway) >= count, 600, f"all {count} messages are delivered", every=0.5)
                until(has_shrunk, 600, "the store shrinks no further")
            with self.start(directory, settings) as gateway:
                start, seconds = gateway.cpu_seconds(), 10
                time.sleep(seconds)
                idle = (gateway.cpu_seconds() - start) / seconds
            settings = merged(settings, {"outbox": {"deliveredRetentionSeconds": 1}})
            with self.start(directory, settings) as gateway:
                began = time.monotonic()
                until(lambda: not kept(gateway), 600, f"all {count} receipts are purged", every=0.5)
                seconds = time.monotonic() - began
                spent = gateway.cpu_seconds() - start - idle * seconds
        note = f"in {shown(seconds)} s; {shown(start)} s for the start and {shown(idle * 1000)} ms a second when idle are not in it"
        self.add(f"CPU of the purge of {shown(count)} receipts", [spent], "s", limit=count / 1_000_000, note=note)
        self.remove(directory)

    def consoles(self):
        """What open consoles cost: single ingest next to 50 of them, and one poll with an empty and a full store."""
        url = self.dead_url()

        def speed(count):
            with self.gateway(url, self.subject) as gateway, polling(gateway.port, count):
                return self.wrk(gateway.port, self.subject.path, self.single)["perSecond"]

        without, speeds, ratios = self.interleaved(lambda: speed(0), lambda: speed(50))
        note = versus(speeds, without, "none")
        self.add("single ingest next to 50 consoles", ratios, "× none", limit=0.97, at_least=True, note=note)

        def poll(gateway):
            """(milliseconds until the answer, milliseconds of the gateway's CPU) of a poll, of 500 in a row."""
            console, times, cpu = Console(gateway.port), [], gateway.cpu_seconds()
            for _ in range(500):
                began = time.perf_counter()
                console.ask(Console.POLL)
                times.append((time.perf_counter() - began) * 1000)
            return statistics.median(times), (gateway.cpu_seconds() - cpu) / len(times) * 1000

        with self.gateway(url) as empty, self.gateway(url) as full:
            options = {"requests": self.queued // 1000, "header": "Prefer: return=minimal", "seconds": 1800}
            self.load(full.port, "/v1/samsara/event", self.fill, 8, **options)
            pairs = [(poll(empty), poll(full)) for _ in range(self.rounds)]
        self.add("CPU of a console's poll", [none[1] for none, _ in pairs], "ms", limit=1)
        what = f"a console's poll with {shown(self.queued)} queued"
        self.add(f"CPU of {what}", [many[1] for _, many in pairs], "ms", limit=1)
        note = f"{shown(statistics.median(none[0] for none, _ in pairs))} ms with none"
        self.add(f"time of {what}", [many[0] for _, many in pairs], "ms", note=note)

    def operations(self):
        """The slowest write to one upstream while all messages of another are retried, cancelled, and removed in steps."""
        count, url, worst = (20_000 if self.options.quick else 100_000), self.dead_url(), {}
        # Room for what is being sent, which is not dropped, and for the requests of one commit.
        full = {"url": url, "queue": {"maxMessages": 10_000, "whenFull": "dropOldest"}}

        def during(gateway, action, state):
            """The slowest write while `action` goes on, in milliseconds. Nil action: while nothing does."""
            if action:
                request = json.dumps({"upstream": "samsara", "state": state})
                headers = {"Content-Type": "application/json", "Prefer": "respond-async"}
                began = time.monotonic()
                status, _, answer = call(gateway.port, "POST", f"/v1/messages/{action}", request, headers)
                if status != 202:
                    raise Failure(f"{action}: {status} {answer.decode()}")
                path = f"/v1/operations/{json.loads(answer)['operation']}"
            slowest = 0
            while True:
                options = {"rate": 500, "seconds": 1}
                slowest = max(slowest, self.load(gateway.port, self.subject.path, self.single, 16, **options)["maxMs"])
                if not action:
                    return slowest
                operation = json.loads(call(gateway.port, "GET", path)[2])
                if operation["finishedAt"]:
                    if operation["done"] < count:
                        raise Failure(f"not all {count} messages: {operation}")
                    self.say(f"  {action}: {operation['done']} messages in {time.monotonic() - began:.1f} s")
                    return slowest

        for _ in range(self.rounds):
            with self.gateway(url, self.subject, {"upstreams": {"samsara": full}}) as gateway:
                options = {"requests": count // 1000 + 12, "header": "Prefer: return=minimal"}
                self.load(gateway.port, "/v1/samsara/event", self.fill, 4, **options)
                for action, state in [("", ""), ("retry", "dropped"), ("cancel", "queued"), ("purge", "cancelled")]:
                    worst.setdefault(action, []).append(during(gateway, action, state))
        idle = f"{shown(statistics.median(worst.pop('')))} ms while nothing is"
        for action, values in worst.items():
            name = f"slowest write at 500/s while {shown(count)} messages of another upstream are in `{action}`"
            self.add(name, values, "ms", limit=25, note=idle)


class Backlog:
    """How many messages are queued while a `with` block lasts: whether deliveries keep up with what comes in."""

    # What all connections of bulk ingest have in flight: a difference that needs no other reason.
    IN_FLIGHT = BULK * BULK_CONNECTIONS

    def __init__(self, gateway):
        self.gateway, self.queued, self.failures = gateway, [], []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        if self.failures:
            raise Failure(f"the gateway did not say how many messages are queued: {self.failures[0]!r}")

    def watch(self):
        try:
            while not self.ended.wait(0.1):
                self.queued.append(self.gateway.upstream()["counts"]["queued"])
        except Exception as error:
            self.failures.append(error)

    def around(self, share):
        """The median over a fifth of the time, which begins after `share` of it."""
        first = int(len(self.queued) * share)
        return statistics.median(self.queued[first : first + len(self.queued) // 5 + 1] or [0])

    @property
    def middle(self):
        return self.around(0.4)

    @property
    def end(self):
        return self.around(0.8)


def growth(backlogs):
    """For the note of a row: whether more was queued at the end of a round than in its middle."""
    growing = [each for each in backlogs if each.end > each.middle + Backlog.IN_FLIGHT]
    if not growing:
        return "no backlog grew"
    worst = max(growing, key=lambda each: each.end - each.middle)
    return f"backlog grew in {len(growing)} of {len(backlogs)} rounds, e.g. from {shown(worst.middle)} to {shown(worst.end)}"


class Console:
    """An open console, as the gateway sees it: the same requests on one connection."""

    POLL = "/v1/upstreams?include=history&since="

    def __init__(self, port):
        self.port = port
        self.connection = socket.create_connection(("127.0.0.1", port))
        self.since = ""

    def ask(self, path):
        if path is self.POLL:
            path += self.since or "2026-01-01T00:00:00.000Z"
        lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Accept: application/json", *key_headers(self.port)]
        self.connection.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while (end := answer.find(b"\r\n\r\n")) < 0:
            answer += self.connection.recv(1 << 16)
        rest = end + 4 + int(re.search(rb"(?i)content-length: (\d+)", answer)[1]) - len(answer)
        while rest > 0:
            rest -= len(part := self.connection.recv(1 << 16))
            answer += part
        if not answer.startswith(b"HTTP/1.1 200"):
            raise Failure(f"{path}: {answer[:200]}")
        if found := re.search(rb'"to":"([^"]+)"', answer):
            self.since = found[1].decode()


@contextlib.contextmanager
def polling(port, count):
    """`count` consoles with the overview open: a poll every 2 s, and what is rarer every 10 s."""
    # What a console asks in ten seconds.
    turn = [Console.POLL, "/v1/gateway", Console.POLL, "/v1/stream?limit=50", *[Console.POLL] * 3]
    consoles, stopping, failures = [Console(port) for _ in range(count)], threading.Event(), []

    def run():
        number, began = 0, time.monotonic()
        try:
            while consoles and not stopping.wait(max(0, began + number * 10 / len(turn) / count - time.monotonic())):
                consoles[number % count].ask(turn[number // count % len(turn)])
                number += 1
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
    if failures:
        raise failures[0]


def bytes_of_a_commit(gateway):
    """How many bytes SQLite's log got for each of its latest commits, on average: pages, each with a head.

    The log is overwritten after each checkpoint, so it has commits from its beginning to its end; what was never written is zero.
    See https://sqlite.org/fileformat2.html#the_write_ahead_log.
    """
    log = (gateway.directory / "postern.sqlite-wal").read_bytes()
    frame = 24 + int.from_bytes(log[8:12], "big")
    heads = [struct.unpack_from(">II", log, start) for start in range(32, len(log) - frame + 1, frame)]
    frames = sum(page > 0 for page, _ in heads)
    # The last page of a commit has the size of the database.
    commits = sum(page > 0 and pages > 0 for page, pages in heads)
    if not commits:
        raise Failure("there are no commits in the log")
    return frames * frame // commits


def key_headers(port):
    """The header line with the key of the gateway on that port, if it requires one."""
    return [f"Authorization: Bearer {KEYS[port]}"] if port in KEYS else []


def versus(speeds, floors, against="floor"):
    return f"{shown(statistics.median(speeds))}/s against {shown(statistics.median(floors))}/s ({against})"


def ask_alive(connection):
    connection.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    answer = connection.recv(4096)
    if not answer.startswith(b"HTTP/1.1 200"):
        raise Failure(f"/livez: {answer[:100]}")


FIGURES = {
    "ingest": Bench.ingest,
    "keys": Bench.keys,
    "bulk": Bench.bulk_ingest,
    "e2e": Bench.end_to_end,
    "lanes": Bench.lanes,
    "cost": Bench.cost,
    "tls": Bench.tls,
    "syncs": Bench.syncs,
    "instructions": Bench.instructions,
    "millions": Bench.millions,
    "paced": Bench.paced,
    "latency": Bench.latency,
    "proxy": Bench.proxy,
    "connections": Bench.connections,
    "idle": Bench.idle,
    "operations": Bench.operations,
    "consoles": Bench.consoles,
    "purge": Bench.purge,
}


# ---- Report


def machine(directory):
    model = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = int(re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) / 1024**2
    kind = subprocess.run(["stat", "-f", "-c", "%T", directory], capture_output=True, text=True).stdout.strip()
    return (
        f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"Linux {platform.release()}, store on {kind}"
    )


METHOD = """\
Everything runs on one machine over loopback: load generator, gateway, simulator and floor share its cores, so only
ratios mean something elsewhere. The **floor** is a bare libmicrohttpd server (`floor/floor.c`) with the gateway's number of
threads that reads the body and answers 202 with as many bytes as the gateway does; it is always counted in
requests of one 600-byte message. Each ratio is the median over rounds of *gateway ÷ floor*, measured one right after the other and
taking turns at going first; a round starts the gateway on an empty store and warms it up. After each deleted store the bench
waits until the file system has freed it (`Disk`). A run with one refused or broken request does not count: it fails. The
gateway requires an API key of every request, except where a figure says otherwise.

* **Ingest**: wrk, 2 threads, 64 connections (bulk: 32, 100 events each), bodies of 1024 different events in turn. Every answer is a
  202 after an fsync. "Delivery going on": the simulator takes everything in its own process at the same time; for bulk, a receiver
  in C does, which is the floor on one thread, and the row says if more was queued at the end of a round than in its middle (medians over a
  fifth of it). Percentiles are wrk's, which corrects for coordinated omission by what it expected between requests.
* **Bare commit**: right after each round of single ingest, `commit/commit.c` overwrites a zeroed log with as many bytes for each commit as
  the gateway's log has on average, and syncs each, for as long.
* **Keys**: single ingest for a dead upstream with a key and without any, in turns.
* **End to end**: `load/load.c` sends as fast as answers come, but never more than a window of messages (singles 20 000, bulk 100 000) beyond
  what the simulator says it received, asked every 50 ms; so the backlog cannot grow. Counted is what arrives at the
  simulator over the steady time. Afterwards everything accepted must have arrived. The floor here is measured with the
  same generator, without a window.
* **CPU for each message**: user and system time of the process, from `/proc`, over a fixed number of messages, until the last has arrived; the
  floor's for each of its requests, in turns. Singles go to the simulator, bulk to the receiver in C, 900 requests/s, so that no backlog
  grows. **Instructions**:
  `instructions.py`, under callgrind, without the kernel's.
* **Over TLS**: wrk as for ingest, events of 600 bytes; the floor has TLS, too, with the same certificate (P-256), versions, and ciphers.
  CPU is that of the time that is measured, over what was answered in it. **Syncs of 1 and 5 ms**: the same without TLS, with
  `syncs/syncs.c` preloaded into the gateway, which lets each fsync and fdatasync take that long at least.
* **2000 requests/s**: `load/load.c`, open loop: request k is due at k/2000 s whatever happened before, and latency counts
  from then (no coordinated omission); 64 connections, delivery going on. The floor gets the same rate in turns, and the target is
  10 ms or three times the floor's p99.9, whichever is more.
* **Accepted to delivered**: `load/load.c`, open loop, 60 s at each rate, default delivery settings. The times are those of the receipts in the
  store: from the arrival of the request to the upstream's answer.
* **Proxied calls**: `latency/latency.c` asks the simulator directly and through the gateway in turns, each on one kept-alive connection,
  with pauses between; the figure is the difference of the medians. The gateway parses, signs it again, and keeps nothing. The
  cache: wrk as for ingest, one call whose answer of 25 items is kept.
* **Consoles**: the requests of `Console` on connections of their own, from one thread of the generator: 0.7 a second each.
* **Millions queued**: filled through the bulk API for an upstream that refuses connections; the empty store has the same dead upstream.
* **Purge**: a million messages are delivered in bulk to the receiver in C; then the gateway starts again with a retention of a second.
  Counted is its CPU until the books keep no receipt, less that of a start with a long retention and of idling for as long.
* **Memory** is VmRSS; **start** is from creating the process to the first 200 of `/readyz`, asked every 5 ms, the page cache warm;
  **CPU** is user + system time of the process.
"""


def report(bench, started):
    lines = [
        "# Benchmark results",
        "",
        f"{started:%Y-%m-%d %H:%M} UTC · {machine(bench.directory)} · {bench.rounds} rounds of {bench.seconds} s"
        f" · `make bench` writes this page.",
        "",
        table(bench.rows),
        "",
        "## Method",
        "",
        METHOD,
    ]
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="gateway to measure (default $POSTERN_BINARY or .build/release/postern)")
    parser.add_argument("--data", default=HERE.parent / ".build/bench/data", help="where the stores go: a real disk")
    parser.add_argument("--only", action="append", choices=FIGURES, help="one of the figures; may be repeated")
    parser.add_argument("--without-keys", action="store_true", help="callers need no API key")
    parser.add_argument("--quick", action="store_true", help="short runs, a small backlog")
    parser.add_argument("--rounds", type=int, help="default 5, quick 2")
    parser.add_argument("--queued", type=int, help="messages in the full store (default 5 million, quick 200 000)")
    parser.add_argument("--payload", choices=SUBJECTS, default="tincan", help="what single ingest posts")
    parser.add_argument("--output", help="write the report there (default RESULTS.md for a full run)")
    return parser.parse_args()


def run(bench, figures, directory):
    """Measures the figures that are asked for, and prints them. Returns the names of those that failed."""
    failures = []
    print(machine(directory), f"· load average {os.getloadavg()[0]:.1f}", flush=True)
    for name in bench.options.only or figures:
        print(f"{name}:", flush=True)
        try:
            figures[name](bench)
        except (Failure, OSError, subprocess.TimeoutExpired) as failure:
            failures.append(name)
            print(f"  FAILED: {failure}", flush=True)
    print("\n" + table(bench.rows))
    return failures


def main():
    options = arguments()
    # Thousands of connections at both ends.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that `with` blocks end what they started.
    started = datetime.datetime.now(datetime.timezone.utc)
    bench = Bench(options)
    failures = run(bench, FIGURES, bench.directory)
    output = options.output or (HERE / "RESULTS.md" if not (options.only or options.quick) else None)
    if output and bench.rows:
        pathlib.Path(output).write_text(report(bench, started))
    shutil.rmtree(bench.directory, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"bench: {failure}")
