#!/usr/bin/env python3
"""A storm over all upstream types at once: random valid work, faults, kills and operator actions.

usage: scripts/storm.py [--seconds 60] [--seed N] [--kills N]

Everything random comes from the seed: what clients write, which faults each simulator plays and when, when the gateway
is killed, and what the operator does. What clients, the operator, the simulators, and the API have seen is written to a
history. Then the faults are lifted, everything is resumed, and what is checked is:

  * every message becomes final within a bound: nothing is stuck;
  * `history.py` finds nothing wrong in the history: lost, repeated without a reason, out of order (in a Samsara source,
    Seer kind, Curio visitor, or StreamOne account), blamed, or never sent;
  * AppServices ends as its users wanted;
  * the strict simulators saw nothing they must never be sent;
  * before the storm, with a first message for an endpoint that does not exist: all others arrive meanwhile;
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
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import history  # noqa: E402
from harness import Failure, Gateway, Simulator, binary_from, call, free_port, until  # noqa: E402
from recorder import Recorder  # noqa: E402
from storm_scenarios import item, load  # noqa: E402

SHOWN = 10  # examples in a report
DRAIN_SECONDS = 90

# What an upstream may do without any message being to blame. A plain 500 is doubtful for Samsara: rare enough here that
# no innocent message meets five in a row while it stands alone, or for everything at once.
WEATHER = [
    "", "", "delay=20ms:0.3", "delay=200ms:0.1", "status=503:0.3", "status=503", "status=503/1", "status=429/1:0.2",
    "status=502:0.3", "status=500:0.1", "status=500", "reset-before:0.2", "reset-after:0.15", "reset-before",
    "truncate:0.1", "truncate", "garbage:0.1", "hang:0.02", "status=408:0.2",
    "cut=429/1:0.3", "cut=503/1", "cut=503:0.2",
    # The connections that are open go mute, and new ones work.
    "mute", "mute,status=503:0.2",
]
WRONG_ENDPOINT_SECONDS = 20
TYPES = load(Simulator.PLACES)
UPSTREAMS = [scenario.upstream for scenario in TYPES]


class Client(threading.Thread):
    """Plays some scenarios in turns until told to stop."""

    def __init__(self, scenarios, port, pause, stopping, recorder):
        super().__init__(name="storm-client", daemon=True)
        self.scenarios, self.port, self.pause, self.stopping = scenarios, port, pause, stopping
        self.recorder = recorder
        self.problems = []

    def run(self):
        try:
            while not self.stopping.is_set():
                for scenario in self.scenarios:
                    self.play(scenario, *scenario.next())
                time.sleep(self.pause)
        except Exception as error:  # noqa: BLE001: a client that dies silently would look like a quiet one
            self.problems.append(f"{type(error).__name__}: {error}")

    def play(self, scenario, path, body, mark, poison):
        deadline, latest, is_repeated = time.monotonic() + 60, "none was tried", False
        name = item(scenario.upstream, *mark) if mark else (f"{scenario.upstream}/{scenario.number}", scenario.done)
        while time.monotonic() < deadline:
            # Without an idempotency key, each try is a request of its own.
            operation = self.recorder.invoke([name], traced=bool(mark))
            try:
                status, _, answer = call(self.port, "POST", path, body, {"Content-Type": "application/json"}, timeout=30)
            except (OSError, http.client.HTTPException) as error:
                self.recorder.end(operation, "unknown")
                latest = f"{type(error).__name__}: {error}"
                is_repeated = True
                time.sleep(0.02)
                continue
            self.recorder.end(operation, "ok" if status == 202 else "refused")
            if status == 202:
                scenario.accepted.append((mark, json.loads(answer)["id"], poison, name))
                return
            if status == 409 and is_repeated:
                return  # What got no response was stored: the session has ended.
            latest = f"{status}: {answer.decode()[:300]}"
            if status != 503:
                self.problems.append(f"{path} answered {latest}")
                return
            time.sleep(0.05)
        self.problems.append(f"{path}: not accepted for 60 s; the latest try: {latest}")


class Storm:
    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        self.binary = binary_from(options.binary)
        self.dice = random.Random(options.seed)
        self.port = free_port()
        self.recorder = Recorder(directory / "history.jsonl")
        self.problems = []
        self.scenarios = [
            kind(number, random.Random(f"{options.seed}/{kind.__name__}/{number}"))
            for kind in TYPES for number in range(options.actors)
        ]

    # The gateway and its upstreams

    def settings(self, simulator):
        return {
            # Short waits: a storm has no time for the real ones.
            "delivery": {
                "retryBaseSeconds": 0.05, "retryMaxSeconds": 1, "requestTimeoutSeconds": 3, "maxInFlight": 8,
            },
            "upstreams": {scenario.upstream: scenario.settings(simulator) for scenario in TYPES},
        }

    def start(self, simulator):
        return Gateway(self.binary, self.directory, self.settings(simulator), self.port)

    def calm(self, simulator):
        """Only what messages themselves deserve."""
        self.play(simulator, dict.fromkeys(UPSTREAMS, ""))

    def play(self, simulator, weather):
        for scenario in TYPES:
            text = ",".join(filter(None, [weather[scenario.upstream], scenario.poison]))
            simulator.ask("POST", f"/faults?seed={self.dice.randrange(1 << 30)}", text, upstream=scenario.upstream)

    # The storm

    def run(self):
        stopping = threading.Event()
        with Simulator(self.binary, self.directory) as simulator:
            for scenario in TYPES:
                if settings := scenario.control(self.options.actors):
                    simulator.control(scenario.upstream, settings)
            self.calm(simulator)
            gateway = self.start(simulator)
            for upstream in UPSTREAMS:
                self.begin_wrong(upstream, simulator)
            clients = [
                Client(self.scenarios[offset:: self.options.clients], self.port, 0.002, stopping, self.recorder)
                for offset in range(self.options.clients)
            ]
            try:
                for client in clients:
                    client.start()
                gateway = self.rage(gateway, simulator)
                stopping.set()
                self.calm(simulator)
                for client in clients:
                    client.join(90)
                    self.problems += client.problems
                for upstream in UPSTREAMS:
                    self.steer(f"/v1/upstreams/{upstream}/resume")
                self.drain(gateway)
                self.check(gateway, simulator)
            finally:
                stopping.set()
                gateway.stop()
        return not self.problems

    def begin_wrong(self, upstream, simulator):
        """The first message is for an endpoint that does not exist, and nothing has shown yet that the others do."""
        scenarios = [scenario for scenario in self.scenarios if scenario.upstream == upstream and scenario.endpoint]
        if len({scenario.endpoint for scenario in scenarios}) < 2:
            return
        first = self.dice.choice(scenarios)
        fault = f"status={self.dice.choice([404, 405, 406])}@{first.endpoint}"
        self.play(simulator, {**dict.fromkeys(UPSTREAMS, ""), upstream: fault})
        client = Client([], self.port, 0, None, self.recorder)
        client.play(first, *first.next())
        for _ in range(10):
            for scenario in scenarios:
                if scenario.endpoint != first.endpoint:
                    client.play(scenario, *scenario.next())
        self.problems += client.problems
        expected = {
            mark for scenario in scenarios if scenario is not first
            for mark, _, poison, _ in scenario.accepted if not poison
        }
        try:
            until(lambda: expected <= set(simulator.arrivals(first.field, upstream)), WRONG_ENDPOINT_SECONDS, fault)
        except Failure:
            missing = expected - set(simulator.arrivals(first.field, upstream))
            self.complain(f"HELD UP by {fault} of {upstream}", sorted(missing))
        self.calm(simulator)

    def rage(self, gateway, simulator):
        end = time.monotonic() + self.options.seconds
        kill_at = sorted(self.dice.uniform(0, self.options.seconds) for _ in range(self.options.kills))
        start = time.monotonic()
        while time.monotonic() < end:
            weather = {scenario.upstream: self.dice.choice(WEATHER + scenario.weather) for scenario in TYPES}
            self.play(simulator, weather)
            for _ in range(self.dice.randrange(3)):
                self.operate(gateway)
            time.sleep(self.dice.uniform(0.3, 2.0))
            gateway.check_alive()
            if kill_at and time.monotonic() - start > kill_at[0]:
                kill_at.pop(0)
                killed_at = time.monotonic()
                gateway.kill()
                gateway = self.start(simulator)
                # What the last one has sent may arrive after its end.
                self.recorder.write("kill", killed_at, until=gateway.started_at)
        return gateway

    def operate(self, gateway):
        """Something an operator does, to an upstream of theirs."""
        upstream = self.dice.choice(UPSTREAMS)
        action = self.dice.choice(["pause", "resume", "resume", "flush", "reload", "cancel", "retry"])
        if action == "reload":
            gateway.child.send_signal(signal.SIGHUP)
        elif action == "retry":
            self.steer("/v1/messages/retry", json.dumps({"upstream": upstream, "state": "failed"}))
        elif action == "cancel":
            # Only where no later item of the same actor depends on it.
            scenario = self.dice.choice([scenario for scenario in self.scenarios if scenario.may_cancel])
            if scenario.accepted:
                _, identifier, _, name = scenario.accepted[-1]
                self.recorder.write("cancel", item=name)
                self.steer(f"/v1/messages/{identifier}", method="DELETE")
        else:
            self.steer(f"/v1/upstreams/{upstream}/{action}")

    def steer(self, path, body=None, method="POST"):
        try:
            headers = {"Content-Type": "application/json"} if body else {}
            status, _, text = call(self.port, method, path, body, headers, timeout=30)
            if status in (400, 422):
                self.problems.append(f"INVALID: {method} {path} {body}: {text}")
            return status
        except (OSError, http.client.HTTPException):
            return None

    # What has to hold

    def drain(self, gateway):
        def left():
            gateway.check_alive()
            states = {upstream: gateway.upstream(upstream) for upstream in UPSTREAMS}
            return {name: state for name, state in states.items() if state["queued"] or state["inFlight"]}

        deadline = time.monotonic() + DRAIN_SECONDS
        while stuck := left():
            # A doubtful answer counts against a message only once something else was delivered after it. If every source
            # that is left is headed by a poison message, only the traffic of another one can show that the upstream works.
            for scenario in TYPES:
                if scenario.upstream in stuck and scenario.filler():
                    self.steer(*scenario.filler())
            if time.monotonic() > deadline:
                for name, state in stuck.items():
                    page = json.loads(call(self.port, "GET", f"/v1/messages?upstream={name}&state=queued&limit=5")[2])
                    self.problems.append(f"STUCK: {name}: {json.dumps(state)}: {json.dumps(page['messages'])}")
                return
            time.sleep(0.2)

    def check(self, gateway, simulator):
        self.problems += history.check(self.complete_history(simulator))
        self.check_ends(simulator)
        for upstream in UPSTREAMS:
            self.complain(f"{upstream} was sent what it should never be sent", simulator.received(upstream)["violations"])
        code, answer = gateway.outbox("audit")
        if code != 0:
            self.problems.append(f"`postern outbox audit` exits with {code}: {answer}")
        self.report(answer)

    def accepted(self, upstream=None):
        return [entry for scenario in self.scenarios if upstream in (None, scenario.upstream) for entry in scenario.accepted]

    def messages(self):
        """All messages, by id."""
        found, cursor = {}, None
        while True:
            query = "limit=1000" + (f"&cursor={cursor}" if cursor else "")
            page = json.loads(call(self.port, "GET", f"/v1/messages?{query}", timeout=60)[2])
            found.update((message["id"], message) for message in page["messages"])
            cursor = page["next"]
            if not cursor:
                return found

    def complete_history(self, simulator):
        """Adds what the simulators and the API have seen. Returns the path."""
        for scenario in TYPES:
            if scenario.field:
                log = simulator.arrival_log(scenario.field, scenario.upstream)
                self.recorder.arrivals(log, lambda key, mark, scenario=scenario: item(scenario.upstream, key, mark))
        messages = self.messages()
        for _, identifier, _, name in self.accepted():
            if identifier in messages:
                self.recorder.outcome(name, messages[identifier])
        self.final = collections.Counter(message["state"] for message in messages.values())
        return self.recorder.close()

    def check_ends(self, simulator):
        for upstream in [scenario.upstream for scenario in TYPES if scenario.has_state]:
            state = json.loads(simulator.ask("GET", "/control/state", upstream=upstream))
            wrong = [text for scenario in self.scenarios if scenario.upstream == upstream for text in scenario.check(state)]
            self.complain(f"{upstream} did not end as its users wanted", wrong)

    def complain(self, what, examples):
        if examples:
            listed = ", ".join(str(example) for example in examples[:SHOWN])
            self.problems.append(f"{what}: {len(examples)}, e.g. {listed}")

    def report(self, audit):
        print(f"accepted   {len(self.accepted())}")
        for upstream in UPSTREAMS:
            print(f"  {upstream:12} {len(self.accepted(upstream))}")
        print(f"final      {dict(self.final)}")
        print(f"audit      {json.dumps(audit)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--actors", type=int, default=12, help="actors of each upstream type")
    parser.add_argument("--clients", type=int, default=8, help="threads that play them")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="repeats a storm's choices")
    parser.add_argument("--binary", help="default $POSTERN_BINARY or .build/release/postern")
    parser.add_argument("--data", help="directory for the store (default: a temporary one)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = pathlib.Path(options.data or tempfile.mkdtemp(prefix="postern-storm-")).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    print(f"{options.seconds:.0f} s, {options.kills} kills, seed {options.seed}, store in {directory}", flush=True)
    storm = Storm(options, directory)
    try:
        storm.run()
    except Failure as failure:
        storm.problems.append(str(failure))
    for problem in storm.problems[:50]:
        print(f"FAIL {problem}")
    if storm.problems:
        print(f"seed {options.seed}; the store and the logs are kept in {directory}")
        return 1
    print("ok: nothing stuck, lost or repeated without a reason, only poison failed, order kept, books balance")
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
