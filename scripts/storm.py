#!/usr/bin/env python3
"""A storm over all upstream types at once: random valid work, faults, kills and operator actions.

usage: scripts/storm.py [--seconds 60] [--seed N] [--kills N]

Everything random comes from the seed: what clients write, which faults each simulator plays and when, when the gateway
is killed, and what the operator does. Then the faults are lifted, everything is resumed, and what is checked is:

  * every message becomes final within a bound: nothing is stuck;
  * every message that was answered 202 has reached its upstream, was cancelled by the operator, or is poison;
  * only poison messages fail, and all of them do;
  * order is kept: per Samsara source, Seer kind, Curio visitor and StreamOne account, and AppServices ends as its users
    wanted;
  * the strict simulators saw nothing they must never be sent;
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
from harness import Failure, Gateway, Simulator, binary_from, call, free_port, until  # noqa: E402

SHOWN = 10  # examples in a report
DRAIN_SECONDS = 90
APP_KEY = "5a" * 32

# What an upstream may do without any message being to blame. A plain 500 is doubtful for Samsara: rare enough here that
# no innocent message meets five in a row while it stands alone, or for everything at once.
WEATHER = [
    "", "", "delay=20ms:0.3", "delay=200ms:0.1", "status=503:0.3", "status=503", "status=503/1", "status=429/1:0.2",
    "status=502:0.3", "status=500:0.1", "status=500", "reset-before:0.2", "reset-after:0.15", "reset-before",
    "truncate:0.1", "garbage:0.1", "hang:0.02", "status=408:0.2",
]
# One endpoint alone is in trouble.
LOCAL_WEATHER = {
    "seer": ["status=503@/tincan", "status=404@/sinstrumentation", "status=429/2@/sactivity", "status=401:0.2",
             "status=403@/tincan"],
    "curio": ["status=404@/api/v2/event", "status=503/1@/api/v2/event", "status=503@/api/v2/offline"],
}


class Story:
    """What one actor does, one request after the other; each is repeated until it is answered."""

    upstream = None

    def __init__(self, number, dice):
        self.number, self.dice = number, dice
        self.done = 0
        self.accepted = []  # (mark, id, is poison)

    def next(self):
        """(path, body, mark, is poison); the mark names the message in what the upstream received."""
        raise NotImplementedError

    def last(self):
        """Requests that bring the story to its end, as `next` gives them."""
        return []


class SamsaraStory(Story):
    upstream = "samsara"

    def next(self):
        self.done += 1
        poison = self.dice.random() < 0.004
        name = "poison" if poison else "storm.event"
        source = f"source-{self.number}"
        body = f'{{"timestamp":{1479988864057 + self.done},"sourceId":"{source}","eventName":"{name}","seq":{self.done}}}'
        return "/v1/samsara/event", body, (source, str(self.done)), poison


class SeerStory(Story):
    upstream = "seer"
    PATHS = {"activity": "/sactivity", "tincan": "/tincan", "instrumentation": "/sinstrumentation"}

    def next(self):
        self.done += 1
        poison = self.dice.random() < 0.004
        kind = list(self.PATHS)[self.number % 3]
        verb = "poison" if poison else "did"
        if kind == "tincan":
            body = ('{"actor":{"mbox":"m"},"verb":{"id":"' + verb + '"},"object":{"id":"o","definition":{"type":"t"}},'
                    f'"context":{{"extensions":{{"appId":"a"}}}},"seq":"{self.number}/{self.done}"}}')
        else:
            body = ('{"actor":{"id":"a"},"verb":"' + verb + '","object":{"id":"o","objectType":"t"},'
                    f'"generator":{{"appId":"g"}},"seq":"{self.number}/{self.done}"}}')
        return f"/v1/seer/{kind}", body, (self.PATHS[kind], f"{self.number}/{self.done}"), poison


class CurioStory(Story):
    upstream = "curio"
    DEVICE = ('"screenWidth":750,"screenHeight":1334,"lang":"tr-TR","simOperator":"","simOpCountry":"","networkOpName":"",'
              '"connType":"wifi","brand":"Apple","model":"iPhone","osType":"iOS","osVer":"9","curioSdkVer":"1.2.4","appVer":"2"')

    def __init__(self, number, dice):
        super().__init__(number, dice)
        self.visitor = f"visitor-{number}"
        self.session = None
        self.sessions = 0

    def act(self, kind, members=""):
        common = f'"visitorCode":"{self.visitor}","sessionCode":"{self.session}","timestamp":{int(time.time() * 1000)}'
        return f"/v1/curio/{kind}", "{" + common + ("," + members if members else "") + "}"

    def next(self):
        self.done += 1
        if self.session is None:
            self.sessions += 1
            self.session = f"6d551000-a21d-11e4-8{self.sessions % 1000:03d}-{self.number + 0x100000000000:012x}"
            return *self.act("session_start", self.DEVICE), None, False
        if self.done % 40 == 0:
            path, body = self.act("session_end")
            self.session = None
            return path, body, None, False
        key = f"{self.number}/{self.done}"
        return *self.act("event", f'"eventKey":"{key}","eventValue":"1"'), (self.visitor, key), False


class AppServicesStory(Story):
    upstream = "appservices"

    def __init__(self, number, dice):
        super().__init__(number, dice)
        self.user = "ffffffff" + f"{number:024x}"
        self.device = f"c0ffee11-2233-4455-8677-{number:012x}"
        self.groups, self.preferences, self.registered = set(), None, False

    def item(self, kind, members):
        body = f'{{"userId":"{self.user}",{members},"auth":{{"token":"PiTok-{self.number}"}}}}'
        return f"/v1/appservices/{kind}", body, None, False

    def next(self):
        self.done += 1
        on = f'"deviceId":"{self.device}"'
        if not self.registered:
            self.registered = True
            return self.item("register", f'{on},"deviceToken":"{self.number:064x}"')
        if self.dice.random() < 0.5:
            self.preferences = {f"t{self.done}": []}
            return self.item("preferences", f'{on},"preferences":{{"whitelist":{{"t{self.done}":[]}}}}')
        group = f"g{self.dice.randrange(4)}"
        if group in self.groups:
            self.groups.remove(group)
            return self.item("group_remove", f'"group":"{group}"')
        self.groups.add(group)
        return self.item("group_add", f'"group":"{group}"')


class StreamOneStory(Story):
    upstream = "streamone"

    def next(self):
        self.done += 1
        poison = self.dice.random() < 0.01
        account = "unknown" if poison else f"A{self.number}"
        mark = f"{self.number}/{self.done}"
        body = json.dumps({"command": "item", "action": "edit", "account": account, "arguments": {"seq": mark}})
        return "/v1/streamone/call", body, (account, mark), poison


class WebhookStory(Story):
    upstream = "webhook"

    def next(self):
        self.done += 1
        poison = self.dice.random() < 0.004
        key, mark = f"customer-{self.number}", f"{self.number}/{self.done}"
        body = json.dumps({"key": key, "name": "poison" if poison else "storm", "seq": mark})
        return "/v1/webhook/event", body, (key, mark), poison


STORIES = [SamsaraStory, SeerStory, CurioStory, AppServicesStory, StreamOneStory, WebhookStory]
# A type without a story is left out.
UPSTREAMS = [story.upstream for story in STORIES]


class Client(threading.Thread):
    """Plays some stories in turns until told to stop."""

    def __init__(self, stories, port, pause, stopping):
        super().__init__(name="storm-client", daemon=True)
        self.stories, self.port, self.pause, self.stopping = stories, port, pause, stopping
        self.problems = []

    def run(self):
        try:
            while not self.stopping.is_set():
                for story in self.stories:
                    self.play(story, *story.next())
                time.sleep(self.pause)
        except Exception as error:  # noqa: BLE001: a client that dies silently would look like a quiet one
            self.problems.append(f"{type(error).__name__}: {error}")

    def play(self, story, path, body, mark, poison):
        deadline, latest, is_repeated = time.monotonic() + 60, "none was tried", False
        while time.monotonic() < deadline:
            try:
                status, _, answer = call(self.port, "POST", path, body, {"Content-Type": "application/json"}, timeout=30)
            except (OSError, http.client.HTTPException) as error:
                latest = f"{type(error).__name__}: {error}"
                is_repeated = True
                time.sleep(0.02)
                continue
            if status == 202:
                story.accepted.append((mark, json.loads(answer)["id"], poison))
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
        self.cancelled = set()
        self.problems = []
        self.stories = [
            kind(number, random.Random(f"{options.seed}/{kind.__name__}/{number}"))
            for kind in STORIES for number in range(options.actors)
        ]

    # The gateway and its upstreams

    def settings(self, simulator):
        return {
            # Short waits: a storm has no time for the real ones.
            "delivery": {
                "retryBaseSeconds": 0.05, "retryMaxSeconds": 1, "requestTimeoutSeconds": 3, "maxInFlight": 8,
            },
            "outbox": {"encryptionKey": APP_KEY},
            "upstreams": {
                "samsara": {"url": simulator.url("samsara")},
                "seer": {"baseURL": simulator.url("seer"), "clientId": "storm", "clientSecret": "storm-secret"},
                "curio": {
                    "serverURL": simulator.url("curio") + "/api/v2", "apiKey": "key", "trackingCode": "GW7DEM01",
                    # More than a visitor writes while Curio is paused: the SDK's own cap is not what is tried here.
                    "maxCachedActivityCount": 4000,
                },
                "appservices": {
                    "baseURL": simulator.url("appservices") + "/appservices", "organization": "acme",
                    "application": "campus", "apiKey": "KEY",
                },
                "streamone": {
                    "apiUrl": simulator.url("streamone"), "id": "9yC-4pQxT_2a", "psk": "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu",
                    "rateLimitPauseSeconds": 1, "readOnlyPauseSeconds": 1,
                },
                "webhook": {"url": simulator.url("webhook"), "batch": "array", "orderBy": "/key"},
            },
        }

    def start(self, simulator):
        return Gateway(self.binary, self.directory, self.settings(simulator), self.port)

    def calm(self, simulator):
        """Only what messages themselves deserve."""
        self.play(simulator, dict.fromkeys(UPSTREAMS, ""))

    def play(self, simulator, weather):
        poison = {"samsara": "poison=eventName:poison", "seer": "poison=verb:poison:400,poison=/verb/id:poison:400",
                  "webhook": "poison=name:poison:400"}
        for upstream, faults in weather.items():
            text = ",".join(filter(None, [faults, poison.get(upstream, "")]))
            simulator.ask("POST", f"/faults?seed={self.dice.randrange(1 << 30)}", text, upstream=upstream)

    # The storm

    def run(self):
        stopping = threading.Event()
        with Simulator(self.binary, self.directory) as simulator:
            accounts = [f"A{number}" for number in range(self.options.actors)]
            simulator.control("streamone", {"accounts": accounts, "failuresUntilRateLimited": 0})
            simulator.control("webhook", {"batch": "array"})
            self.calm(simulator)
            gateway = self.start(simulator)
            clients = [
                Client(self.stories[offset:: self.options.clients], self.port, 0.002, stopping)
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

    def rage(self, gateway, simulator):
        end = time.monotonic() + self.options.seconds
        kill_at = sorted(self.dice.uniform(0, self.options.seconds) for _ in range(self.options.kills))
        start = time.monotonic()
        while time.monotonic() < end:
            weather = {
                upstream: self.dice.choice(WEATHER + LOCAL_WEATHER.get(upstream, [])) for upstream in UPSTREAMS
            }
            self.play(simulator, weather)
            for _ in range(self.dice.randrange(3)):
                self.operate(gateway)
            time.sleep(self.dice.uniform(0.3, 2.0))
            gateway.check_alive()
            if kill_at and time.monotonic() - start > kill_at[0]:
                kill_at.pop(0)
                gateway.kill()
                gateway = self.start(simulator)
        return gateway

    def operate(self, gateway):
        """Something an operator does, to an upstream of theirs."""
        upstream = self.dice.choice(UPSTREAMS)
        action = self.dice.choice(["pause", "resume", "resume", "flush", "reload", "cancel", "retry"])
        if action == "reload":
            gateway.child.send_signal(signal.SIGHUP)
        elif action == "retry":
            self.steer("/v1/messages/retry", json.dumps({"filter": {"upstream": upstream, "state": "failed"}}))
        elif action == "cancel":
            # Only where no later item of the same actor depends on it.
            story = self.dice.choice([story for story in self.stories if story.upstream in ("samsara", "streamone")])
            if story.accepted:
                identifier = story.accepted[-1][1]
                if self.steer(f"/v1/messages/{identifier}", method="DELETE") in (200, 204):
                    self.cancelled.add(identifier)
        else:
            self.steer(f"/v1/upstreams/{upstream}/{action}")

    def steer(self, path, body=None, method="POST"):
        try:
            headers = {"Content-Type": "application/json"} if body else {}
            return call(self.port, method, path, body, headers, timeout=30)[0]
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
            if "samsara" in stuck:
                event = json.dumps({"timestamp": 1, "sourceId": "healthy", "eventName": "storm.over"})
                self.steer("/v1/samsara/event", event)
            if time.monotonic() > deadline:
                for name, state in stuck.items():
                    page = json.loads(call(self.port, "GET", f"/v1/messages?upstream={name}&state=queued&limit=5")[2])
                    self.problems.append(f"STUCK: {name}: {json.dumps(state)}: {json.dumps(page['messages'])}")
                return
            time.sleep(0.2)

    def check(self, gateway, simulator):
        self.check_states()
        self.check_arrivals(simulator)
        self.check_appservices(simulator)
        for upstream in UPSTREAMS:
            self.complain(f"{upstream} was sent what it should never be sent", simulator.received(upstream)["violations"])
        code, answer = gateway.outbox("audit")
        if code != 0:
            self.problems.append(f"`postern outbox audit` exits with {code}: {answer}")
        self.report(answer)

    def accepted(self, upstream=None):
        return [entry for story in self.stories if upstream in (None, story.upstream) for entry in story.accepted]

    def listed(self, state):
        """Ids of all messages in that state."""
        found, cursor = {}, None
        while True:
            query = f"state={state}&limit=1000" + (f"&cursor={cursor}" if cursor else "")
            page = json.loads(call(self.port, "GET", f"/v1/messages?{query}", timeout=60)[2])
            found.update((message["id"], message) for message in page["messages"])
            cursor = page["next"]
            if not cursor:
                return found

    def check_states(self):
        failed, cancelled, delivered = (self.listed(state) for state in ("failed", "cancelled", "delivered"))
        poison = {identifier for _, identifier, is_poison in self.accepted() if is_poison}
        known = {identifier for _, identifier, _ in self.accepted()}
        innocent = [
            f"{identifier} ({failed[identifier]['upstream']}: {failed[identifier]['lastError']})"
            for identifier in failed if identifier in known - poison
        ]
        self.complain("INNOCENT messages failed", innocent)
        self.complain("poison that did not fail", sorted(poison - set(failed) - set(cancelled)))
        gone = known - set(failed) - set(cancelled) - set(delivered)
        if not any(problem.startswith("STUCK") for problem in self.problems):
            self.complain("LOST: accepted, in no final state", sorted(gone))
        self.final = collections.Counter(delivered=len(delivered), failed=len(failed), cancelled=len(cancelled))
        self.cancelled |= set(cancelled)

    def check_arrivals(self, simulator):
        fields = {"samsara": "seq", "seer": "/seq", "streamone": "/arguments/seq", "curio": "/eventKey",
                  "webhook": "seq"}
        for upstream, field in fields.items():
            lines = simulator.ask("GET", f"/received?field={field}", upstream=upstream).splitlines()
            arrivals = [tuple(line.split("\t", 1)) for line in lines]
            there = set(arrivals)
            lost = [
                mark for mark, identifier, poison in self.accepted(upstream)
                if mark and not poison and identifier not in self.cancelled and mark not in there
            ]
            self.complain(f"LOST: {upstream} never received", lost)
            newest, late = {}, []
            for key, mark in dict.fromkeys(arrivals):  # First arrivals, in order.
                if not mark:
                    continue
                actor, _, number = mark.rpartition("/")
                # One actor writes in order; other messages with the same key have no order.
                place, number = (key, actor), int(number)
                if number < newest.get(place, -1):
                    late.append((key, mark, f"after {newest[place]}"))
                newest[place] = max(number, newest.get(place, -1))
            self.complain(f"OUT OF ORDER at {upstream}", late)

    def check_appservices(self, simulator):
        state = json.loads(simulator.ask("GET", "/control/state", upstream="appservices"))
        wrong = []
        for story in self.stories:
            if story.upstream != "appservices" or not story.registered:
                continue
            groups = {name for name, users in state["groups"].items() if story.user in users}
            if groups != story.groups:
                wrong.append(f"{story.user} is in {sorted(groups)} instead of {sorted(story.groups)}")
            device = state["devices"].get(story.device, {})
            lists = device.get("mobileplatform", {}).get("preferences", {}).get("whitelist")
            if story.preferences is not None and lists != story.preferences:
                wrong.append(f"{story.device} has {lists} instead of {story.preferences}")
            if state["connections"].get(story.device) != [story.user]:
                wrong.append(f"{story.device} is connected to {state['connections'].get(story.device)}")
        self.complain("AppServices did not end as its users wanted", wrong)

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
    print("ok: nothing stuck, nothing lost, only poison failed, order kept, books balance")
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
