#!/usr/bin/env python3
"""Kills the gateway repeatedly while clients write and the upstream misbehaves; then looks for what was lost.

usage: make torture KILLS=200        or scripts/torture.py --kills 200 [--seed N] [--faults SECONDS] [--starts N]

Before that, --starts gateways are killed at a random moment within the first 300 ms of their first start; every one of
them has to start again, with books that balance.

For the last minute (--faults) the file system misbehaves too: calls that change files are delayed, fail for lack of room
or with an I/O error, write less than asked, and syncs fail, each at random (Tests/FaultShim). The disk "breaks" for one
run of the gateway at a time; whatever was answered 202 before, during and after has to be there.

Every event has a source and, within it, a sequence number. Clients of half of the sources repeat an unanswered
request with the same Idempotency-Key until it is answered; the others give it up and go on. What clients, the simulator
and the API have seen is written to a history. At the end, after the faults are lifted and everything is drained:

  * `history.py` finds nothing wrong in it: lost, repeated without a reason, out of order, blamed, never sent, or torn;
  * a repeated Idempotency-Key gives the first answer's ids again;
  * the strict simulators saw nothing they must never be sent;
  * every event that was delivered has exactly one callback in the store, which has reached its webhook, unless it was dropped
    because the disk had no room;
  * `postern outbox audit` balances.

Exit code 1, with what is wrong and where the store is kept, when any of it does not hold.
"""

import argparse
import collections
import http.client
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import history  # noqa: E402
from harness import ROOT, Failure, Gateway, Simulator, binary_from, call, free_port, until  # noqa: E402
from recorder import Recorder  # noqa: E402
from verdict import Verdict, Write  # noqa: E402

PATH = "/v1/samsara/event"
FAULTS = "delay=100ms:0.1,status=503:0.08,reset-before:0.05,reset-after:0.05,truncate:0.03"


class Client(threading.Thread):
    """Writes to its own sources, one request at a time, until told to stop."""

    def __init__(self, number, port, seed, stopping, recorder):
        super().__init__(name=f"client-{number}", daemon=True)
        self.port, self.stopping, self.recorder = port, stopping, recorder
        self.random = random.Random(f"{seed}/{number}")
        self.keyed = number % 2 == 0
        self.next = {f"source-{number}-{index}": 0 for index in range(4)}
        self.writes, self.unanswered, self.problems = [], 0, []

    def run(self):
        while not self.stopping.is_set():
            write = self.new_write()
            self.writes.append(write)
            operation = self.recorder.invoke(write.events)
            # A keyed request is repeated past the end of the campaign, too: the last gateway stays up for it.
            while not self.send(write) and (self.keyed or not self.stopping.is_set()):
                time.sleep(0.005)
            self.recorder.end(operation, "ok" if write.ids else "unknown" if write.is_unknown else "refused")
            time.sleep(0.004)

    def new_write(self):
        source = self.random.choice(list(self.next))
        count = self.random.randint(2, 20) if self.random.random() < 0.15 else 1
        first = self.next[source]
        self.next[source] += count
        texts = [
            f'{{"timestamp":{1479988864057 + number},"sourceId":"{source}","eventName":"torture.event","seq":{number},"ratio":1.50e+2}}'
            for number in range(first, first + count)
        ]
        events = [(source, number) for number in range(first, first + count)]
        body = texts[0] if count == 1 else "[" + ",".join(texts) + "]"
        return Write(PATH, body, events, f"{source}-{first}" if self.keyed else None)

    def send(self, write):
        """True if nothing is left to do for it."""
        try:
            status, _, body = call(self.port, "POST", PATH, write.body, write.headers, timeout=30)
        except ConnectionRefusedError:
            return False  # Nothing was sent.
        except (OSError, http.client.HTTPException):
            self.unanswered += 1
            write.is_unknown = True
            return not write.key
        if status == 202:
            write.ids = Write.ids_in(body)
            return True
        if status not in (409, 503, 507):
            self.problems.append(f"{status} for {write.events[0]}: {body.decode()[:300]}")
            return True
        return False


class Campaign:
    def __init__(self, options, directory):
        self.options = options
        self.directory = directory
        self.binary = binary_from(options.binary)
        self.random = random.Random(options.seed)
        self.port = free_port()
        self.ambiguous = 0.0
        directory.mkdir(parents=True, exist_ok=True)
        self.recorder = Recorder(directory / "history.jsonl")
        self.killed_at = None  # when the last gateway was

    def gateway(self, simulator, wait, environment=None):
        """Starts a gateway after the last one."""
        settings = {
            # Short waits: a campaign has no time for the real ones.
            "delivery": {"retryBaseSeconds": 0.05, "retryMaxSeconds": 0.5, "requestTimeoutSeconds": 5},
            "upstreams": {
                "samsara": {"url": simulator.url()},
                "hook": {"type": "webhook", "url": simulator.url("webhook"), "batch": "array", "kinds": {"settled": {}}},
            },
            "callbacks": [{"upstream": "hook", "kind": "settled"}],
        }
        gateway = Gateway(self.binary, self.directory, settings, self.port, wait, environment)
        if self.killed_at:
            # What the last one has sent may arrive after its end.
            self.recorder.write("kill", self.killed_at, until=gateway.started_at)
        return gateway

    def kill(self, gateway):
        self.killed_at = time.monotonic()
        gateway.kill()

    def break_the_disk(self, simulator):
        """Runs the gateway on a disk that fails at random, and kills it, until the time is over."""
        library = self.directory / "faults.so"
        source = ROOT / "Tests/FaultShim/faults.c"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", source, "-o", library, "-ldl", "-lpthread"], check=True)
        deadline, runs = time.monotonic() + self.options.faults, 0
        while time.monotonic() < deadline:
            runs += 1
            # Out of 10 000 calls. A lying sync costs nothing without a power cut, so it may be frequent.
            chances = {"enospc": 30, "eio": 10, "short": 30, "sync": 20, "lie": 2000, "delay": 2000}
            chosen = {name: self.random.randint(0, most) for name, most in chances.items() if self.random.random() < 0.4}
            settings = [f"{name}={value}" for name, value in chosen.items()]
            # What a lying sync left is not on the disk, so a failed one may take it back.
            if "lie" not in chosen and self.random.random() < 0.5:
                settings.append("lose=1")
            if self.random.random() < 0.3:
                settings.append(f"kill={self.random.randint(1, 2000)}")
            environment = {
                "LD_PRELOAD": str(library),
                "FILE_FAULTS": f"folder={self.directory}/postern.sqlite,seed={self.random.randrange(10**9)}," + ",".join(settings),
            }
            # It may end by itself: a start that fails says so with 73.
            with self.gateway(simulator, wait=False, environment=environment) as gateway:
                time.sleep(self.random.uniform(0.2, 2))
                code = gateway.child.poll()
                if code not in (None, 73, -signal.SIGKILL):
                    raise Failure(f"the gateway ended with {code} under {settings}")
                self.kill(gateway)
        print(f"{runs} runs on a disk that fails", flush=True)

    def kill_first_starts(self):
        """A kill leaves either no store or a whole one, whenever it comes."""
        for number in range(self.options.starts):
            directory = self.directory / f"start-{number}"
            settings = {"upstreams": {"samsara": {"url": f"http://127.0.0.1:{self.port}"}}}
            with Gateway(self.binary, directory, settings, wait=False) as gateway:
                time.sleep(self.random.uniform(0, 0.3))
                gateway.kill()
            # Fails unless it becomes ready.
            with Gateway(self.binary, directory, settings) as gateway:
                gateway.kill()
            code, audit = gateway.outbox("audit")
            if code or not audit["balanced"]:
                raise Failure(f"start {number}: the audit ended with {code}: {audit}")
            shutil.rmtree(directory)
            if (number + 1) % 100 == 0:
                print(f"{number + 1} first starts killed", flush=True)

    def run(self):
        self.kill_first_starts()
        stopping = threading.Event()
        clients = [
            Client(number, self.port, self.options.seed, stopping, self.recorder)
            for number in range(self.options.clients)
        ]
        with Simulator(self.binary, self.directory, FAULTS, seed=self.options.seed) as simulator:
            simulator.control("webhook", {"batch": "array"})
            for client in clients:
                client.start()
            try:
                for number in range(self.options.kills):
                    self.start_and_kill(simulator)
                    if (number + 1) % 20 == 0:
                        writes = sum(len(client.writes) for client in clients)
                        print(f"{number + 1} kills, {writes} requests", flush=True)
                self.break_the_disk(simulator)
            finally:
                stopping.set()
            simulator.play("")
            with self.gateway(simulator, wait=True) as gateway:
                for client in clients:
                    client.join(60)
                    if client.is_alive():
                        raise Failure(f"{client.name} got no answer for 60 s from a gateway that is ready")
                self.drain(gateway)
                self.note_ambiguous(gateway)
                arrivals = [(source, int(number)) for source, number in simulator.arrivals("seq")]
                messages = self.messages("samsara")
                verdict = Outcome(clients, arrivals)
                verdict.check_ids()
                verdict.problems += history.check(self.complete_history(simulator, verdict.acknowledged, messages))
                verdict.check_manners(simulator.received())
                keyed = [write for write in verdict.acknowledged if write.key]
                verdict.check_replays(
                    lambda write: call(self.port, "POST", PATH, write.body, write.headers),
                    self.random.sample(keyed, min(100, len(keyed))))
                reported = [identifier for _, identifier in simulator.arrivals("id", "webhook")]
                verdict.check_callbacks(messages, self.messages("hook"), reported, self.options.faults > 0)
                verdict.check_manners(simulator.received("webhook"))
                verdict.check_audit(*gateway.outbox("audit"))
        verdict.print(self.ambiguous)
        return not verdict.problems

    def start_and_kill(self, simulator):
        # One in five dies while it starts or recovers, the others while they work.
        early = self.random.random() < 0.2
        with self.gateway(simulator, wait=not early) as gateway:
            time.sleep(self.random.uniform(0.01, 0.8))
            gateway.check_alive()
            self.note_ambiguous(gateway)
            self.kill(gateway)

    def complete_history(self, simulator, acknowledged, messages):
        """Adds what the simulator and the API have seen. Returns the path."""
        self.recorder.arrivals(simulator.arrival_log("seq"), lambda source, number: (source, int(number)))
        states = {message["id"]: message for message in messages}
        for write in acknowledged:
            for event, identifier in zip(write.events, write.ids):
                if identifier in states:
                    self.recorder.outcome(event, states[identifier])
        return self.recorder.close()

    def note_ambiguous(self, gateway):
        """A lower bound: what happens between asking and killing is not seen."""
        try:
            metrics = gateway.metrics()
        except (OSError, http.client.HTTPException):
            return
        self.ambiguous += sum(v for name, v in metrics.items() if name.startswith("postern_ambiguous_sends_total"))

    @staticmethod
    def drain(gateway):
        def empty(name):
            gateway.check_alive()
            upstream = gateway.upstream(name)
            return upstream["queued"] == 0 and upstream["inFlight"] == 0

        for name in ("samsara", "hook"):
            until(lambda: empty(name), 300, f"the queue of {name} drains", every=0.2)

    def messages(self, upstream):
        """All that the store has of one upstream."""
        messages, cursor = [], ""
        while cursor is not None:
            query = f"/v1/messages?upstream={upstream}&limit=1000" + (f"&cursor={cursor}" if cursor else "")
            page = json.loads(call(self.port, "GET", query, timeout=60)[2])
            messages += page["messages"]
            cursor = page["next"]
        return messages


class Outcome(Verdict):
    """What the clients know, with callbacks."""

    def __init__(self, clients, arrivals):
        super().__init__(
            [write for client in clients for write in client.writes], arrivals,
            [problem for client in clients for problem in client.problems])
        self.unanswered = sum(client.unanswered for client in clients)

    def check_callbacks(self, messages, callbacks, reported, disk_failed):
        settled = {message["id"] for message in messages if message["state"] != "queued"}
        count = collections.Counter(callback["key"] for callback in callbacks)
        wrong = [(identifier, count[identifier]) for identifier in settled | set(count) if count[identifier] != 1]
        self.complain("a settled event does not have exactly one callback", wrong)
        self.complain("a callback about an event that has not settled", sorted(set(count) - settled))
        dropped = {callback["key"] for callback in callbacks if callback["state"] == "dropped"}
        self.complain("a callback never arrived", sorted(settled - dropped - set(reported)))
        if not disk_failed:
            self.complain("a callback was dropped", sorted(dropped))
        self.callbacks, self.dropped = len(callbacks), len(dropped)

    def print(self, ambiguous):
        events = sum(len(write.events) for write in self.acknowledged)
        twice = sum(count - 1 for count in self.times.values())
        print(f"requests answered 202   {len(self.acknowledged)} with {events} events")
        print(f"requests never answered {self.unanswered}")
        print(f"events that arrived     {len(self.times)}")
        print(f"callbacks               {self.callbacks}, of which a full disk dropped {self.dropped}")
        print(f"arrived again           {twice} ({twice / max(1, len(self.times)):.2%})")
        print(f"ambiguous sends, seen   at least {ambiguous:.0f}")
        print(f"audit                   {json.dumps(self.audit)}")
        for problem in self.problems[:50]:
            print(f"FAIL {problem}")
        if not self.problems:
            print("ok: nothing lost, repeated without a reason or torn, order kept, one callback each, books balance")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--faults", type=float, default=60, help="seconds on a disk that fails (0: none)")
    parser.add_argument("--starts", type=int, default=100, help="first starts that are killed")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="repeats a campaign's choices")
    parser.add_argument("--binary", help="default $POSTERN_BINARY or .build/release/postern")
    parser.add_argument("--data", help="directory for the store (default: a temporary one)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = pathlib.Path(options.data or tempfile.mkdtemp(prefix="postern-torture-")).resolve()
    print(f"{options.kills} kills, seed {options.seed}, store in {directory}", flush=True)
    held = False
    try:
        held = Campaign(options, directory).run()
    except Failure as failure:
        print(f"FAIL {failure}")
    if not held:
        print(f"seed {options.seed}; the store and the logs are kept in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
