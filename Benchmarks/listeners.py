"""What listeners to `GET /v1/stream` cost those who write (bench.py, `--only listeners`)."""

import contextlib
import http.client
import json
import statistics
import subprocess
import threading
import time

from harness import KEYS, Failure, until

LISTENERS = 1000
# Seconds: a busy gateway serves so many listeners every 5 s, and however many every 10 s.
ROUND = 11
# What only listeners keep busy: sending to them, and looking for those that hang up.
THREADS = ("postern-streams", "postern-reaper", "postern-timer")


class Crowd:
    """Listeners that receive every event, in a process that counts and forgets what it reads."""

    def __init__(self, tools, port, count=LISTENERS):
        headers = [f"Authorization: Bearer {KEYS[port]}"] if port in KEYS else []
        self.process = subprocess.Popen(
            [str(part) for part in [tools / "listen", port, count, *headers]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            self.process.wait()
            raise Failure("the listeners did not get a stream each")
        self.began = time.monotonic()

    def end(self):
        """What they have got until now: the object that `listen` prints, and the seconds."""
        seconds = time.monotonic() - self.began
        output, _ = self.process.communicate(timeout=30)
        got = {**json.loads(output), "seconds": seconds}
        if got["ended"]:
            raise Failure(f"listeners that read at once were cut off: {got}")
        return got


class Lateness:
    """Posts to a second upstream now and then, and waits for each `message.queued` as one listener more."""

    PATH, EVERY = "/v1/samsara/event", 0.25

    def __init__(self, port, body):
        self.port, self.body = port, body
        self.headers = {"Authorization": f"Bearer {KEYS[port]}"} if port in KEYS else {}
        self.answered, self.milliseconds = {}, []
        self.isOver = threading.Event()
        self.lock = threading.Lock()
        self.stream = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.stream.request("GET", "/v1/stream?upstream=samsara&type=message.queued", headers=self.headers)
        self.response = self.stream.getresponse()
        self.threads = [threading.Thread(target=part, daemon=True) for part in (self.listen, self.post)]
        for thread in self.threads:
            thread.start()

    def post(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            while not self.isOver.wait(self.EVERY):
                # Under the lock, so that the event does not come before its time is known.
                with self.lock:
                    connection.request("POST", self.PATH, self.body, {**self.headers, "Content-Type": "application/json"})
                    answer = connection.getresponse().read()
                    self.answered[json.loads(answer)["id"]] = time.monotonic()

    def listen(self):
        with contextlib.suppress(OSError, AttributeError, ValueError, http.client.HTTPException):
            while line := self.response.readline():
                if not line.startswith(b"data:"):
                    continue
                now = time.monotonic()
                with self.lock:
                    times = [self.answered.pop(id) for id in json.loads(line[5:])["ids"] if id in self.answered]
                self.milliseconds += [max(0, now - answered) * 1000 for answered in times]

    def end(self):
        self.isOver.set()
        self.threads[1].join()
        until(lambda: not self.answered, ROUND, "the events of all messages")
        self.stream.close()
        if not self.milliseconds:
            raise Failure("no event came in all that time")
        return self.milliseconds


def measure(bench, tools, shown, versus):
    """Single ingest without listeners and with a crowd that gets everything, in turns."""

    def run(listeners, url):
        # A second upstream, for what `Lateness` posts.
        more = {"upstreams": {"samsara": {"url": bench.dead_url()}}}
        with bench.gateway(url, bench.subject, settings=more) as gateway, contextlib.ExitStack() as stack:
            crowd = Crowd(tools, gateway.port) if listeners else None
            if crowd:
                stack.callback(crowd.process.kill)
                late = Lateness(gateway.port, bench.events.read_text().splitlines()[0])
            cpu, theirs = gateway.cpu_seconds(), gateway.thread_seconds(*THREADS)
            result = bench.wrk(
                gateway.port, bench.subject.path, bench.single, seconds=max(bench.seconds, ROUND))
            used = gateway.cpu_seconds() - cpu
            costs[listeners].append(used / result["requests"])
            shares[listeners].append((gateway.thread_seconds(*THREADS) - theirs) / used * 100)
            slowest[listeners].append(result["p99Ms"])
            if crowd:
                lateness.extend(late.end())
                got.append(crowd.end())
            return result["perSecond"]

    def ratios(values):
        return [a / b for a, b in zip(values[True], values[False])]

    def crowds(url, what):
        without, speeds, speed_ratios = bench.interleaved(lambda: run(False, url), lambda: run(True, url))
        bench.add(
            f"single ingest with {LISTENERS} listeners, {what}", speed_ratios, "× without", limit=0.95, at_least=True,
            note=versus(speeds, without, "without"))
        bench.add(
            "CPU of a request, in that run", ratios(costs), "× without", limit=1.05,
            note=f"{shown(statistics.median(costs[True]) * 1e6)} µs against {shown(statistics.median(costs[False]) * 1e6)} µs")
        bench.add(
            "of it, threads that only listeners keep busy", shares[True], "%",
            note=f"{shown(statistics.median(shares[False]))} % without")
        bench.add(
            "p99 of a write, in that run", ratios(slowest), "× without",
            note=f"{shown(statistics.median(slowest[True]))} ms against {shown(statistics.median(slowest[False]))} ms")
        per_listener = [each["events"] / each["listeners"] / each["seconds"] for each in got]
        speed = statistics.median(each["bytes"] / each["listeners"] / each["seconds"] / 1000 for each in got)
        fewest = min(each["fewest"] / each["seconds"] for each in got)
        load = statistics.median(each["cpuSeconds"] / each["seconds"] * 100 for each in got)
        bench.add(
            "events for each listener", per_listener, "/s",
            note=f"fewest {shown(fewest)}/s; {shown(speed)} kB/s each; reading them: {shown(load)} % of a core")
        at_most = statistics.quantiles(lateness, n=100)[98]
        bench.add(
            "from the response to the event", [statistics.median(lateness)], "ms", note=f"p99 {shown(at_most)} ms")

    with bench.simulator() as simulator:
        for url, what in [(bench.dead_url(), "upstream dead"), (simulator.url(bench.subject.upstream), "delivery going on")]:
            costs, shares, slowest = ({True: [], False: []} for _ in range(3))
            lateness, got = [], []
            crowds(url, what)
