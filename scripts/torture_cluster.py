#!/usr/bin/env python3
"""Several gateways share a store in PostgreSQL, while processes, network, and database fail at random.

usage: make torture-cluster FAULTS=1000        or scripts/torture_cluster.py --faults 1000 [--seed N]

Three gateways with a lease of three seconds, each with a connection to the database of its own; a fourth one joins
and leaves. The upstreams are the strict simulators, which delay, fail, and lose responses. Clients write to all types
and change the gateway with each request: half of them with an Idempotency-Key, or as CloudEvents, repeated at other
gateways until it is answered; the others give up what got no response. An operator cancels, pauses, resumes, and
retries at any gateway.

The faults, one or two at a time (`Campaign.FAULTS`): a gateway is killed, frozen for up to three leases, stopped, or
runs with a clock that is an hour off; its network is cut, refuses connections, or is a black hole in one direction or
both; the server is stopped at once, restarted, frozen, or ends all sessions; a gateway of a later version, whose
format these can use, adds a column to every table. After each one, a request of each sort has to be answered 202 again.

What clients, the operator, the simulators, and the API have seen is written to a history. At the end, after all is healed
and drained:

  * `history.py` finds nothing wrong in it: lost, repeated without a reason, out of order, blamed, never sent (or refused
    with "nothing was stored" or "nothing was changed"), or torn. Each fault counts as a kill;
  * every event whose request was answered 2xx is in the store once, with the id of the response;
  * no event arrived more often than its attempts in the store allow;
  * a repeated Idempotency-Key gives the first ids again, at each gateway;
  * AppServices ended as its users wanted, and no simulator saw anything that it must never be sent;
  * `postern outbox audit` balances, and `postern_store_lost_commits_total` is 0;
  * what happens at one gateway is in the event stream of each;
  * no gateway ended with a code other than 0, 74, or that of a kill.

Exit code 1, with what is wrong and where the logs are kept, when any of it does not hold. How long no gateway answered
202 is reported for each kind of fault.
"""

import argparse
import collections
import contextlib
import http.client
import json
import os
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
from harness import (  # noqa: E402
    ROOT, Failure, Gateway, Postgres, Simulator, binary_from, call, free_port, new_key, psql, until)
from postgres_proxy import TO_CLIENT, TO_SERVER, PostgresProxy  # noqa: E402
from recorder import Recorder  # noqa: E402
from storm_scenarios import item, load  # noqa: E402
from verdict import Verdict, Write  # noqa: E402

LEASE_SECONDS = 3
UPSTREAM_FAULTS = "delay=100ms:0.1,status=503:0.05,reset-before:0.03,reset-after:0.03"
RECOVERY_SECONDS = 90  # in which each sort of request is answered again
DRAIN_SECONDS = 60
TYPES = [kind for kind in load(Simulator.PLACES) if kind.upstream != "toy"]
UPSTREAMS = [kind.upstream for kind in TYPES]
# Those that the owner has to check against their state.
STATEFUL = {"curio", "appservices"}


class Request(Write):
    """A write with what a client has seen of it."""

    def __init__(self, upstream, path, body, events, key, headers, items):
        super().__init__(path, body, events, key)
        self.upstream, self.more = upstream, headers
        self.items = items  # of the history: the events, or one that no simulator shows
        self.is_refused = False  # by each gateway that it may have reached; nothing was stored

    @property
    def is_repeated(self):
        return bool(self.key) or "ce-id" in self.more

    @property
    def headers(self):
        return super().headers | self.more


class Client(threading.Thread):
    """Plays some scenarios, one request at a time, until told to stop. Without a home it goes to any gateway."""

    def __init__(self, name, campaign, scenarios, keyed, home=None, pause=0.1):
        super().__init__(name=name, daemon=True)
        self.campaign, self.scenarios, self.keyed, self.home, self.pause = campaign, scenarios, keyed, home, pause
        self.random = random.Random(f"{campaign.options.seed}/{name}")
        self.requests, self.problems, self.latest = [], [], "nothing was sent"

    def run(self):
        try:
            while not self.campaign.stopping.is_set():
                self.play(self.random.choice(self.scenarios))
                time.sleep(self.random.uniform(0, 2 * self.pause))
        except Exception as error:  # noqa: BLE001: a client that dies silently would look like a quiet one
            self.problems.append(f"{self.name}: {type(error).__name__}: {error}")

    def play(self, scenario):
        stateful = scenario.upstream in STATEFUL
        is_bulk = not stateful and self.random.random() < 0.15
        items = [scenario.next() for _ in range(self.random.randint(2, 8) if is_bulk else 1)]
        events = [item(scenario.upstream, *mark) for _, _, mark, _ in items if mark]
        body = "[" + ",".join(body for _, body, _, _ in items) + "]" if is_bulk else items[0][1]
        identity = f"{scenario.upstream}-{scenario.number}-{scenario.done}"
        path, key, headers = items[0][0], identity if self.keyed or stateful else None, {}
        if self.keyed and scenario.upstream == "samsara" and not is_bulk and self.random.random() < 0.3:
            path, key = "/v1/cloudevents", None
            headers = {"ce-specversion": "1.0", "ce-id": identity, "ce-source": "/torture", "ce-type": "samsara.event"}
        rejected = any(rejected for _, _, _, rejected in items)
        if not is_bulk and not rejected and self.random.random() < 0.1:
            headers["Prefer"] = "wait=1"
        names = events or [(f"{scenario.upstream}/{scenario.number}", scenario.done)]
        request = Request(scenario.upstream, path, body, events, key, headers, names)
        self.requests.append(request)
        operation = self.campaign.recorder.invoke(names, traced=bool(events))
        port = self.home.port if self.home else self.random.choice(self.campaign.ports)
        # A request with a key is repeated past the end of the campaign, too: the gateways stay up for it.
        while not self.send(request, port) and (request.is_repeated or not self.campaign.stopping.is_set()):
            time.sleep(0.05)
            port = self.random.choice(self.campaign.ports)
        self.campaign.recorder.end(operation, "ok" if request.ids else "refused" if request.is_refused else "unknown")

    def send(self, request, port):
        """Whether nothing is left to do for it."""
        try:
            status, _, body = call(
                port, "POST", request.path, request.body, request.headers | self.campaign.authorization,
                timeout=self.random.uniform(3, 8))
        except ConnectionRefusedError:
            self.latest = "refused"
            return False  # Nothing was sent.
        except (OSError, http.client.HTTPException) as error:
            self.latest = repr(error)
            request.is_unknown = True
            return not request.is_repeated
        self.latest = f"{status} {body.decode()[:200]}"
        if status in (200, 202):
            request.ids = Write.ids_in(body)
            self.campaign.answered["stateful" if request.upstream in STATEFUL else "plain"].append(time.monotonic())
            return True
        if status == 503:
            self.campaign.refusals[json.loads(body).get("detail", "")[:60]] += 1
            if b"nothing was" not in body:
                request.is_unknown = True
            elif not request.is_repeated and not request.is_unknown:
                request.is_refused = True
            return not request.is_repeated
        if status == 409 and request.is_repeated:
            return False  # The first one is still being stored.
        self.problems.append(f"{request.path} {request.events[:1]} at port {port}: {self.latest}")
        return True


class Operator(threading.Thread):
    """Steers upstreams, cancels messages, and looks for those that were just accepted, at any gateway."""

    def __init__(self, campaign):
        super().__init__(name="operator", daemon=True)
        self.campaign, self.random = campaign, random.Random(f"{campaign.options.seed}/operator")
        self.cancelled, self.problems, self.done = set(), [], collections.Counter()

    def run(self):
        while not self.campaign.stopping.is_set():
            self.random.choice([self.pause, self.retry, self.cancel, self.look, self.look])()
            time.sleep(self.random.uniform(0.3, 1))

    def ask(self, method, path, body=None, expected=(200, 202, 204)):
        """The status and the body; (None, None) if there was no response, or no gateway can do it now."""
        headers = self.campaign.authorization | ({"Content-Type": "application/json"} if body else {})
        try:
            status, _, answer = call(self.random.choice(self.campaign.ports), method, path, body, headers, timeout=8)
        except (OSError, http.client.HTTPException):
            return None, None
        if status == 503:
            return None, None
        if status not in expected:
            self.problems.append(f"{method} {path}: {status} {answer.decode()[:300]}")
        self.done[f"{method} {path.split('/')[-1] if method == 'POST' else 'message'} {status}"] += 1
        return status, answer

    def pause(self):
        upstream = self.random.choice(UPSTREAMS)
        self.ask("POST", f"/v1/upstreams/{upstream}/pause")
        time.sleep(self.random.uniform(0.1, 1))
        while self.ask("POST", f"/v1/upstreams/{upstream}/resume")[0] is None and not self.campaign.stopping.is_set():
            time.sleep(0.2)

    def retry(self):
        body = json.dumps({"upstream": self.random.choice(UPSTREAMS), "state": "failed"})
        self.ask("POST", "/v1/messages/retry", body)

    def latest(self, upstreams):
        """An id that a client has just got, and its item of the history."""
        known = [(request.ids[-1], request.items[-1]) for client in self.campaign.clients
                 for request in client.requests[-2:] if request.ids and request.upstream in upstreams]
        return self.random.choice(known) if known else (None, None)

    def cancel(self):
        identifier, name = self.latest([kind.upstream for kind in TYPES if kind.may_cancel])
        if identifier:
            self.campaign.recorder.write("cancel", item=name)
            # 409: it is settled, or being sent.
            status, _ = self.ask("DELETE", f"/v1/messages/{identifier}", expected=(200, 204, 409))
            if status in (200, 204):
                self.cancelled.add(identifier)

    def look(self):
        if identifier := self.latest(UPSTREAMS)[0]:
            self.ask("GET", f"/v1/messages/{identifier}", expected=(200,))


class Listener(threading.Thread):
    """Listens to the event stream of one gateway, and connects again whenever it ends."""

    def __init__(self, campaign, node):
        super().__init__(name=f"listener-{node.name}", daemon=True)
        self.campaign, self.node = campaign, node
        self.connected, self.seen = 0, collections.deque(maxlen=100_000)

    def run(self):
        while not self.campaign.over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self.node.port, timeout=30)
            with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
                connection.request("GET", "/v1/stream?type=message.queued", headers=self.campaign.authorization)
                answer = connection.getresponse()
                self.connected += answer.status == 200
                while answer.status == 200 and not self.campaign.over.is_set() and (line := answer.readline()):
                    if line.startswith(b"data: {"):
                        self.seen.extend(json.loads(line[6:]).get("ids", []))
            time.sleep(0.5)


class Node:
    """A gateway with its place: name, port, and network, which it keeps when it is started again."""

    def __init__(self, campaign, name):
        self.campaign, self.name, self.port = campaign, name, free_port()
        self.proxy = PostgresProxy(campaign.server.folder / ".s.PGSQL.5432")
        self.gateway = None

    def start(self, offset=0):
        environment = {"LD_PRELOAD": self.campaign.clock_shim, "CLOCK_OFFSET": str(offset)} if offset else None
        self.gateway = Gateway(
            self.campaign.binary, self.campaign.directory / self.name, self.campaign.settings(self), self.port,
            wait=False, environment=environment, keys=self.campaign.key)

    def kill(self):
        self.gateway.kill()
        self.note()

    def stop(self):
        self.gateway.stop(60)
        self.note()

    def note(self):
        code = self.gateway.child.returncode
        self.campaign.codes[code] += 1
        if code not in (0, 74, -signal.SIGKILL):
            tail = self.gateway.log.read_text(errors="replace")[-1500:]
            self.campaign.problems.append(f"{self.name} ended with {code}:\n{tail}")


class Campaign:
    # How often each kind is drawn, relative to the others.
    FAULTS = {
        "kill": 4, "freeze": 3, "stop": 2, "join": 1, "clock": 1, "cut": 2, "refuse": 2, "hole": 4,
        "server_crash": 1, "server_restart": 1, "server_freeze": 2, "server_terminate": 2, "server_upgrade": 1,
    }

    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        self.binary = binary_from(options.binary)
        self.random = random.Random(options.seed)
        self.kinds = options.kinds.split(",") if options.kinds else list(self.FAULTS)
        self.key = new_key(self.binary)
        self.authorization = {"Authorization": f"Bearer {self.key[0]}"}
        self.stopping, self.over = threading.Event(), threading.Event()
        self.recorder = Recorder(directory / "history.jsonl")
        self.problems, self.clients = [], []
        self.codes, self.refusals = collections.Counter(), collections.Counter()
        self.answered = {"plain": [], "stateful": []}
        self.rounds = []  # (names of the faults, begin)
        self.busy = set()  # nodes that a fault has, and whose end is not looked for
        self.columns = 0  # that later versions have added to each table

    def settings(self, node):
        return {
            "server": {"shutdownGraceSeconds": 5}, "log": {"level": "info"},
            "outbox": {
                "engine": "postgres", "deliveredPayloadSeconds": 86400,
                "postgres": {"url": node.proxy.url, "node": node.name, "leaseSeconds": LEASE_SECONDS},
            },
            # Short waits: a campaign has no time for the real ones.
            "delivery": {"retryBaseSeconds": 0.05, "retryMaxSeconds": 0.5, "requestTimeoutSeconds": 5},
            "upstreams": {kind.upstream: kind.settings(self.simulator) for kind in TYPES},
        }

    def run(self):
        self.clock_shim = str(self.directory / "clock.so")
        source = ROOT / "Tests/FaultShim/clock.c"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", source, "-o", self.clock_shim], check=True)
        with contextlib.ExitStack() as running:
            self.server = running.enter_context(Postgres(["max_connections=200"]))
            self.simulator = running.enter_context(Simulator(self.binary, self.directory))
            for kind in TYPES:
                if settings := kind.control(self.options.actors):
                    self.simulator.control(kind.upstream, settings)
            self.play(UPSTREAM_FAULTS)
            self.nodes = [Node(self, name) for name in ("ash", "birch", "cedar")]
            self.guest = Node(self, "guest")
            self.ports = [node.port for node in self.nodes]
            running.callback(self.end)
            for node in self.nodes:
                node.start()
            for node in self.nodes:
                node.gateway.wait_ready()
            self.start_clients()
            operator = Operator(self)
            listeners = [Listener(self, node) for node in self.nodes]
            for thread in (*self.clients, operator, *listeners):
                thread.start()
            self.await_answers("the start")
            number = printed = 0
            while number < self.options.faults:
                number += self.strike(self.options.faults - number)
                if number // 20 > printed:
                    printed = number // 20
                    requests = sum(len(client.requests) for client in self.clients)
                    print(f"{number} faults, {requests} requests", flush=True)
            self.stopping.set()
            self.settle(operator)
            verdict = self.judge(operator, listeners)
        self.report(verdict, operator, listeners)
        return not verdict.problems

    def end(self):
        self.stopping.set()
        self.over.set()
        for node in (*self.nodes, self.guest):
            if node.gateway:
                node.gateway.kill()
            node.proxy.close()

    def play(self, faults):
        for upstream in UPSTREAMS:
            self.simulator.ask("POST", f"/faults?seed={self.random.randrange(1 << 30)}", faults, upstream=upstream)

    def start_clients(self):
        numbers = iter(range(self.options.actors))

        def scenarios(kinds):
            made = []
            for kind in kinds:
                number = next(numbers)
                made.append(kind(number, random.Random(f"{self.options.seed}/{kind.__name__}/{number}")))
            return made

        by_name = {kind.upstream: kind for kind in TYPES}
        # Each gateway has clients that stay with it, so that each is asked at any time.
        for node in self.nodes:
            self.clients.append(Client(f"plain-{node.name}", self, scenarios([by_name["samsara"]]), False, node))
            self.clients.append(Client(f"stateful-{node.name}", self, scenarios([by_name["curio"]]), True, node, 0.15))
        plain = [kind for kind in TYPES if kind.upstream not in STATEFUL]
        for number in range(3):
            self.clients.append(Client(f"keyed-{number}", self, scenarios(plain), True))
            self.clients.append(Client(f"forgetful-{number}", self, scenarios(plain), False))
        self.clients.append(Client("users", self, scenarios([by_name["appservices"]] * 4), True, pause=0.15))

    # Faults

    def pick(self):
        """A gateway that no fault has; every other time it is the one that requests with a state need, if that is one."""
        free = [node for node in self.nodes if node not in self.busy]
        owner = self.owner()
        node = owner if owner in free and self.random.random() < 0.5 else self.random.choice(free)
        self.busy.add(node)
        return node, "owner" if node is owner else "other"

    def owner(self):
        question = """SELECT nodes.name FROM postern.nodes JOIN postern.queues ON owner = node
            JOIN postern.upstreams USING (number) WHERE upstreams.name = 'curio'"""
        name = psql(self.server.url(), question, check=False).strip() if self.server.child.poll() is None else ""
        return next((node for node in self.nodes if node.name == name), None)

    # Each of these begins the fault, yields what it strikes and for how many seconds, and ends it.

    def kill(self):
        node, which = self.pick()
        node.kill()
        yield which, self.random.uniform(0.1, 5)
        node.start()
        self.busy.discard(node)

    def freeze(self):
        node, which = self.pick()
        node.gateway.child.send_signal(signal.SIGSTOP)
        yield which, self.random.uniform(0.2, 3 * LEASE_SECONDS)
        node.gateway.child.send_signal(signal.SIGCONT)
        self.busy.discard(node)

    def stop(self):
        node, which = self.pick()
        node.stop()
        yield which, self.random.uniform(0, 2)
        node.start()
        self.busy.discard(node)

    def join(self):
        self.guest.start()
        self.ports.append(self.guest.port)
        yield "", self.random.uniform(0.5, 6)
        self.random.choice([self.guest.kill, self.guest.stop])()
        self.ports.remove(self.guest.port)

    def clock(self):
        node, which = self.pick()
        node.stop()
        node.start(offset=self.random.choice([-3600, 3600]))
        yield which, self.random.uniform(2, 8)
        self.random.choice([node.kill, node.stop])()
        node.start()
        self.busy.discard(node)

    def cut(self):
        node, which = self.pick()
        node.proxy.cut()
        yield which, self.random.uniform(0, 0.3)
        node.proxy.cut()
        self.busy.discard(node)

    def refuse(self):
        node, which = self.pick()
        self.busy.discard(node)  # It may end by itself.
        node.proxy.refuse()
        yield which, self.random.uniform(0.2, 2 * LEASE_SECONDS)
        node.proxy.heal()

    def hole(self):
        node, which = self.pick()
        self.busy.discard(node)
        node.proxy.stall(self.random.choice([[TO_SERVER], [TO_CLIENT], [TO_SERVER, TO_CLIENT]]))
        yield which, self.random.uniform(0.2, 3 * LEASE_SECONDS)
        # What was sent meanwhile arrives now, or never.
        if self.random.random() < 0.5:
            node.proxy.cut()
        node.proxy.heal()

    def server_end(self, number):
        self.server.child.send_signal(number)
        self.server.child.wait(60)

    def server_crash(self):
        self.server_end(signal.SIGQUIT)
        yield "", self.random.uniform(0, 4)
        self.server.start()

    def server_restart(self):
        self.server_end(signal.SIGINT)
        yield "", self.random.uniform(0, 1)
        self.server.start()

    def server_freeze(self):
        sessions = self.server.sessions()
        for pid in sessions:
            self.signal(pid, signal.SIGSTOP)
        yield "", self.random.uniform(0.2, 2 * LEASE_SECONDS)
        for pid in sessions:
            self.signal(pid, signal.SIGCONT)

    def server_terminate(self):
        for pid in self.server.sessions():
            self.signal(pid, signal.SIGTERM)
        yield "", 0

    def server_upgrade(self):
        # As a start does, in one transaction, and again if that was in the way of another one.
        url, self.columns = self.server.url(), self.columns + 1
        tables = psql(url, "SELECT relname FROM pg_class WHERE relnamespace = 'postern'::regnamespace AND relkind = 'r'")
        changes = [f'ALTER TABLE postern.{name} ADD COLUMN later{self.columns} BIGINT' for name in tables.split()]
        changes = ["SET LOCAL lock_timeout = '60s'", *changes, "UPDATE postern.store SET format = format + 1"]
        changes = ["BEGIN", *changes, "COMMIT"]
        for _ in range(5):
            with contextlib.suppress(Failure):
                psql(url, "; ".join(changes))
                break
        else:
            raise Failure("the tables could not be changed")
        yield "", 0

    @staticmethod
    def signal(pid, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def strike(self, most):
        """One fault or two at once, until all is answered again. Returns their number."""
        count = min(most, 2 if self.random.random() < 0.3 else 1, len(self.kinds))
        names = []
        while len(names) < count:
            name = self.random.choices(self.kinds, [self.FAULTS[kind] for kind in self.kinds])[0]
            # The server can fail in one way at a time.
            if name.partition("_")[0] not in [other.partition("_")[0] for other in names]:
                names.append(name)
        faults = [getattr(self, name)() for name in names]
        begin, ends, labels = time.monotonic(), [], []
        for name, fault in zip(names, faults):
            which, seconds = next(fault)
            labels.append(f"{name} ({which})" if which else name)
            ends.append((time.monotonic() + seconds, labels[-1], fault))
            self.log(f"{labels[-1]} for {seconds:.1f} s")
        for end, label, fault in sorted(ends, key=lambda entry: entry[0]):
            self.wait(end - time.monotonic())
            next(fault, None)
            self.log(f"{label} is over")
        self.rounds.append((labels, begin))
        self.await_answers(" and ".join(labels))
        self.log("answered")
        # A gateway whose lease has ended meanwhile may notice it a little later than clients get an answer from others.
        self.recorder.write("kill", begin, until=time.monotonic() + LEASE_SECONDS)
        self.wait(self.random.uniform(0, 1))
        return count

    def log(self, text):
        """For whom looks for the cause of a failure."""
        with open(self.directory / "faults.log", "a") as file:
            print(time.strftime("%H:%M:%S", time.gmtime()) + f"{time.time() % 1:.3f}"[1:], text, file=file)

    def wait(self, seconds):
        """Starts gateways again meanwhile that have ended by themselves."""
        deadline = time.monotonic() + seconds
        while True:
            for node in self.nodes:
                if node not in self.busy and node.gateway.child.poll() is not None:
                    node.note()
                    if node.gateway.child.returncode != 74:
                        self.problems.append(f"{node.name} ended by itself with {node.gateway.child.returncode}")
                    node.start()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(0.1, left))

    def await_answers(self, what):
        """A request of each sort that is answered from now on."""
        begin = time.monotonic()
        for sort, times in self.answered.items():
            while not times or times[-1] < begin:
                if time.monotonic() > begin + RECOVERY_SECONDS:
                    latest = {client.name: client.latest for client in self.clients}
                    raise Failure(f"no {sort} request was answered for {RECOVERY_SECONDS} s after {what}: {latest}")
                self.wait(0.05)

    # The end

    def settle(self, operator):
        """Everything is answered, and delivered."""
        self.play("")
        for thread in (*self.clients, operator):
            deadline = time.monotonic() + 120
            while thread.is_alive():
                self.wait(0.1)
                if time.monotonic() > deadline:
                    latest = getattr(thread, "latest", "")
                    raise Failure(f"{thread.name} got no answer for 120 s from gateways that are well: {latest}")
        for node in self.nodes:
            until(lambda node=node: self.wait(0) or node.gateway.is_ready(), 60, f"{node.name} is ready", 0.2)
        for upstream in UPSTREAMS:
            until(lambda: self.get(f"/v1/upstreams/{upstream}/resume", "POST"), 60, f"{upstream} is resumed", 0.5)

        def left():
            self.wait(0)
            # The figures of each gateway have to say so.
            return [
                (name, node) for name in UPSTREAMS for node in self.nodes
                if (self.get(f"/v1/upstreams/{name}", node=node) or {"queued": 1})["queued"]
            ]

        try:
            until(lambda: not left(), DRAIN_SECONDS, "the queues drain", 0.5)
        except Failure:
            for name, node in left():
                page = self.get(f"/v1/messages?upstream={name}&state=queued&limit=3&include=attempts", node=node)
                state = self.get(f"/v1/upstreams/{name}", node=node)
                self.problems.append(f"STUCK: {node.name}: {json.dumps(state)}: {json.dumps(page)}")

    def get(self, path, method="GET", node=None):
        """What a gateway answers; None unless that is 2xx."""
        port = (node or self.nodes[0]).port
        status, _, body = call(port, method, path, headers=self.authorization, timeout=120)
        return json.loads(body) if status // 100 == 2 else None

    def messages(self, upstream):
        """All that the store has of one upstream."""
        messages, cursor = [], ""
        while cursor is not None:
            query = f"/v1/messages?upstream={upstream}&limit=1000&include=payload,attempts"
            page = self.get(query + (f"&cursor={cursor}" if cursor else ""))
            if page is None:
                raise Failure(f"{query} is not answered")
            messages += page["messages"]
            cursor = page["next"]
        return messages

    def judge(self, operator, listeners):
        requests = [request for client in self.clients for request in client.requests]
        arrivals, messages = [], {}
        for kind in TYPES:
            messages[kind.upstream] = self.messages(kind.upstream)
            if kind.field:
                marks = self.simulator.arrivals(kind.field, kind.upstream)
                arrivals += [name for mark in marks if (name := item(kind.upstream, *mark))]
                log = self.simulator.arrival_log(kind.field, kind.upstream)
                self.recorder.arrivals(log, lambda key, text, kind=kind: item(kind.upstream, key, text))
        problems = [problem for thread in (*self.clients, operator) for problem in thread.problems]
        verdict = Outcome(requests, arrivals, problems, messages)
        verdict.check(operator.cancelled, lambda one: self.get(f"/v1/messages/{one}?include=attempts"))
        for request in verdict.acknowledged:
            for name, identifier in zip(request.items, request.ids):
                if identifier in verdict.known:
                    self.recorder.outcome(name, verdict.known[identifier])
        verdict.problems += history.check(self.recorder.close())
        if verdict.problems or self.problems:
            (self.directory / "messages.json").write_text(json.dumps(messages))
        for kind in TYPES:
            verdict.check_manners(self.simulator.received(kind.upstream))
            if kind.has_state:
                state = json.loads(self.simulator.ask("GET", "/control/state", upstream=kind.upstream))
                scenarios = [scenario for client in self.clients for scenario in client.scenarios]
                wrong = [text for one in scenarios if isinstance(one, kind) for text in one.check(state)]
                verdict.complain(f"{kind.upstream} did not end as its users wanted", wrong)
        repeated = [request for request in verdict.acknowledged if request.is_repeated]
        sample = self.random.sample(repeated, min(60, len(repeated)))
        for node in self.nodes:
            verdict.check_replays(lambda request, node=node: call(
                node.port, "POST", request.path, request.body, request.headers | self.authorization), sample)
        self.check_streams(verdict, listeners)
        for node in self.nodes:
            text = call(node.port, "GET", "/metrics", headers=self.authorization)[2].decode()
            lost = [line for line in text.splitlines() if line.startswith("postern_store_lost_commits_total")]
            verdict.complain(f"{node.name} has lost commits", [line for line in lost if float(line.split()[-1])])
        verdict.check_audit(*self.nodes[0].gateway.outbox("audit"))
        for node in self.nodes:
            node.stop()
        verdict.problems += self.problems
        self.check_availability(verdict)
        return verdict

    def check_streams(self, verdict, listeners):
        """What is accepted at each gateway is announced by each."""
        body = '{"timestamp":1,"sourceId":"stream","eventName":"torture.over"}'
        ids = set()
        for node in self.nodes:
            status, _, answer = call(node.port, "POST", "/v1/samsara/event", body, self.authorization | {
                "Content-Type": "application/json"})
            if status != 202:
                verdict.problems.append(f"the last message at {node.name}: {status} {answer.decode()}")
                return
            ids.update(Write.ids_in(answer))
        for listener in listeners:
            with contextlib.suppress(Failure):
                until(lambda: ids <= set(listener.seen), 15, "", 0.2)
            verdict.complain(f"the stream of {listener.node.name} lacks messages", sorted(ids - set(listener.seen)))

    def gaps(self):
        """For each round of faults, its labels and the longest time without an answer, by sort of request."""
        starts = [begin for _, begin in self.rounds] + [time.monotonic()]
        for (labels, begin), end in zip(self.rounds, starts[1:]):
            longest = {}
            for sort, times in self.answered.items():
                # In the order of their append, which may differ from that of the times by less than matters here.
                inside = [begin, *(moment for moment in times if begin < moment < end)]
                longest[sort] = max((after - before for before, after in zip(inside, inside[1:])), default=end - begin)
            yield labels, longest

    def check_availability(self, verdict):
        self.unavailable = collections.defaultdict(lambda: {"plain": [], "stateful": []})
        for labels, longest in self.gaps():
            label = labels[0] if len(labels) == 1 else "two at once"
            for sort, seconds in longest.items():
                self.unavailable[label][sort].append(seconds)
        # Half of them, with time to spare: the machine may be busy with other work at any moment.
        killed = self.unavailable.get("kill (owner)", {"plain": [], "stateful": []})
        for sort, limit in (("plain", 3), ("stateful", LEASE_SECONDS + 5)):
            if killed[sort] and (seconds := middle(killed[sort])) > limit:
                verdict.problems.append(f"after a kill of the owner, no {sort} request was answered for {seconds:.1f} s")

    def report(self, verdict, operator, listeners):
        verdict.print()
        print(f"operator                {dict(operator.done)}")
        print(f"event streams           {[listener.connected for listener in listeners]} connections")
        print(f"exit codes              {dict(self.codes)}")
        for detail, count in self.refusals.most_common():
            print(f"503 {count:6}  {detail}")
        print(f"{'longest time without a 202':30} {'rounds':>6}  plain p50, max   stateful p50, max")
        for label, longest in sorted(self.unavailable.items()):
            figures = "   ".join(f"{middle(times):6.1f} {max(times):6.1f} s" for times in longest.values())
            print(f"  {label:28} {len(longest['plain']):6}  {figures}")
        for problem in verdict.problems[:50]:
            print(f"FAIL {problem}")
        if not verdict.problems:
            print("ok: nothing lost, nothing stored twice, order kept, refusals true, books balance")


class Outcome(Verdict):
    """Adds what the store has: `messages` by upstream, with payloads and attempts."""

    def __init__(self, requests, arrivals, problems, messages):
        super().__init__(requests, arrivals, problems)
        self.known, self.stored = {}, collections.defaultdict(list)
        for kind in TYPES:
            for message in messages[kind.upstream]:
                self.known[message["id"]] = message
                mark = value(message.get("payload"), kind.field)
                if mark is not None:
                    # The mark of Samsara's messages is unique in their source only.
                    self.stored[item(kind.upstream, message["payload"].get("sourceId"), str(mark))].append(message)

    def check(self, cancelled, ask):
        """`cancelled` are ids whose cancellation was confirmed; `ask` returns a message with all attempts."""
        self.check_ids()
        states = {identifier: message["state"] for identifier, message in self.known.items()}
        self.complain("cancelled, and not in that state", [one for one in cancelled if states.get(one) != "cancelled"])
        several = {name: [one["id"] for one in found] for name, found in self.stored.items() if len(found) > 1}
        self.complain("STORED TWICE", list(several.items()))
        other = [
            (name, identifier) for request in self.acknowledged for name, identifier in zip(request.events, request.ids)
            if [one["id"] for one in self.stored[name]] != [identifier] and name not in several
        ]
        self.complain("in the store with another id than in the response", other)
        # A list looks at some requests for each message only, so what is missing there is asked for.
        often = [
            (name, count) for name, count in self.times.items()
            if count > sends(self.stored[name]) and count > sends([ask(one["id"]) for one in self.stored[name]])
        ]
        self.complain("arrived more often than the attempts in the store allow", often)

    def print(self):
        unanswered = [request for request in self.writes if not request.ids]
        twice = sum(count - 1 for count in self.times.values())
        upstreams = collections.Counter(request.upstream for request in self.acknowledged)
        states = collections.Counter(message["state"] for message in self.known.values())
        unclear = sum(request.is_unknown for request in self.acknowledged)
        print(f"requests answered 2xx   {len(self.acknowledged)}, {dict(upstreams)}")
        print(f"of them repeated        {unclear} after an unknown outcome")
        print(f"given up                {len(unanswered)}, of which {sum(r.is_refused for r in unanswered)} were refused")
        print(f"messages in the store   {len(self.known)}, {dict(states)}")
        print(f"events that arrived     {len(self.times)}, {twice} again ({twice / max(1, len(self.times)):.2%})")
        print(f"books                   {'balanced' if self.audit['balanced'] else json.dumps(self.audit)}")


def sends(messages):
    """How many requests carried these messages that the upstream may have accepted."""
    entries = [entry for message in messages for entry in message["attemptLog"]]
    return sum(entry["outcome"] in ("delivered", "proceed", "unknown") or entry["status"] is None for entry in entries)


def value(payload, field):
    """What a JSON Pointer, or the name of a member, finds."""
    for name in field.strip("/").split("/") if field else []:
        payload = payload.get(name) if isinstance(payload, dict) else None
    return payload if field else None


def middle(values):
    return sorted(values)[len(values) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--kinds", help=f"of {', '.join(Campaign.FAULTS)}; default: all")
    parser.add_argument("--actors", type=int, default=40, help="most actors of all types together")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="repeats a campaign's choices")
    parser.add_argument("--binary", help="default $POSTERN_BINARY or .build/release/postern")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = pathlib.Path(tempfile.mkdtemp(prefix="postern-cluster-")).resolve()
    print(f"{options.faults} faults, seed {options.seed}, logs in {directory}", flush=True)
    held = False
    campaign = Campaign(options, directory)
    try:
        held = campaign.run()
    except Failure as failure:
        print(f"FAIL {failure}")
        for problem in campaign.problems[:50]:
            print(f"FAIL {problem}")
    if not held:
        print(f"seed {options.seed}; the logs are kept in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
