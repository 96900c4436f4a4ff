#!/usr/bin/env python3
"""Kills the gateway and its peers under the same load, and cuts their power: what of the acknowledged is lost?

usage: make loss-table       writes a section of Benchmarks/PEERS.md, about an hour; as root
       Benchmarks/losses.py --only redis --kills 3 --cuts 3

Each subject has a file system of its own, ext4 on a disk that can lose power (`powercut/powercut.c`). Writers send one
event of 600 bytes at a time, and repeat it until it is acknowledged. After each fault the subject starts again on what
is left. At the end everything that it has stored is read once and compared with what was acknowledged.

Exit code 1 if the gateway lost, repeated or altered a message, or if a subject that syncs nothing lost nothing: then
the method is wrong.
"""

import argparse
import base64
import collections
import contextlib
import datetime
import http.client
import http.server
import importlib.metadata
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))
import pika  # noqa: E402
from bench import TOOLS, event, machine  # noqa: E402
from harness import LONGEST_WAIT, Failure, Gateway, Process, binary_from, free_port, new_key, until  # noqa: E402
from peers import replace_section  # noqa: E402

PEERS = HERE / "peers"
TIMEOUT = 60


class Refused(Exception):
    """The subject answered, but not that it stored the message."""


# What a client meets if the subject ends or has not started yet.
BROKEN = (OSError, http.client.HTTPException, pika.exceptions.AMQPError)


# ---- The disk


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout.strip()


class Disk:
    """ext4 on a loop device on a file of `powercut`."""

    MIB = 1024

    def __init__(self, directory, seed):
        self.host, self.folder = directory / "host", directory / "disk"
        self.host.mkdir(parents=True)
        self.folder.mkdir()
        self.file = self.host / "disk"
        self.process = Process([TOOLS / "powercut", self.MIB, self.host], directory / "powercut.log")
        until(lambda: self.process.check_alive() and self.file.exists(), TIMEOUT, "powercut")
        os.setxattr(self.file, "user.seed", str(seed).encode())
        self.attach(new=True)

    def attach(self, new=False):
        self.device = run("losetup", "--find", "--show", self.file)
        if new:
            run("mkfs.ext4", "-q", self.device)
        run("mount", self.device, self.folder)

    def detach(self):
        until(lambda: subprocess.run(["umount", self.folder], capture_output=True).returncode == 0, TIMEOUT, "umount")
        run("losetup", "--detach", self.device)
        # The device writes nothing more once its file is closed.
        used = pathlib.Path("/sys/block", pathlib.Path(self.device).name, "loop/backing_file")
        until(lambda: not used.exists(), TIMEOUT, f"{self.device} is free")

    def lose_power(self):
        os.setxattr(self.file, "user.power", b"off")

    def regain_power(self, torn):
        """Mounts what had been flushed; if `torn`, with some of the blocks that had not."""
        self.detach()
        os.setxattr(self.file, "user.power", b"torn" if torn else b"on")
        self.attach()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.detach()
        run("umount", self.host)
        self.process.stop()


def check_disk(directory):
    """A disk that keeps what was not synced, or loses what was, would make every figure worthless."""
    with Disk(directory, seed=0) as disk:
        for name in ("synced", "unsynced"):
            with open(disk.folder / name, "wb") as file:
                file.write(b"x" * 100_000)
                if name == "synced":
                    os.fsync(file.fileno())
        disk.lose_power()
        disk.regain_power(torn=False)
        if (disk.folder / "synced").read_bytes() != b"x" * 100_000 or (disk.folder / "unsynced").exists():
            raise Failure("the disk does not lose exactly what was not synced")


# ---- Clients: each has one connection, `put`, which returns once the message is acknowledged, and `close`


class HTTPClient:
    def __init__(self, port, path, headers):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        self.connection.connect()
        self.path, self.headers = path, {**headers, "Content-Type": "application/json"}

    def put(self, number, body):
        self.connection.request("POST", self.path, body, {**self.headers, "Idempotency-Key": f"event-{number}"})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 202:
            raise Refused(f"{answer.status} {text[:200]!r}")

    def close(self):
        self.connection.close()


class LineClient:
    """What text protocols have in common."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        self.reader = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)

    def line(self):
        line = self.reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection ended")
        return line[:-2].decode()

    def bytes(self, count):
        """As many bytes, and the end of the line behind them."""
        data = self.reader.read(count + 2)
        if len(data) < count + 2:
            raise ConnectionError("the connection ended")
        return data[:count]

    def close(self):
        self.reader.close()
        self.socket.close()


class BeanstalkdClient(LineClient):
    # Longer than it takes to read all: a job that is reserved is not given out again.
    RESERVED_SECONDS = 3600

    def put(self, number, body):
        self.send(b"put 0 0 %d %d\r\n%b\r\n" % (self.RESERVED_SECONDS, len(body), body))
        answer = self.line()
        if not answer.startswith("INSERTED"):
            raise Refused(answer)

    def all(self):
        while True:
            self.send(b"reserve-with-timeout 0\r\n")
            answer = self.line().split()
            if answer[0] != "RESERVED":
                return
            yield self.bytes(int(answer[2]))


class RedisClient(LineClient):
    def ask(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.send(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
        return self.reply()

    def reply(self):
        line = self.line()
        kind, rest = line[0], line[1:]
        if kind == "-":
            raise Refused(rest)
        if kind == "$":
            return self.bytes(int(rest))
        if kind == "*":
            return [self.reply() for _ in range(int(rest))]
        return rest

    def put(self, number, body):
        self.ask("XADD", "events", "*", "body", body)

    def all(self):
        start = "-"
        while page := self.ask("XRANGE", "events", start, "+", "COUNT", 500):
            for _, fields in page:
                yield fields[1]
            start = b"(" + page[-1][0]


class NATSClient(LineClient):
    STREAM = {"name": "EVENTS", "subjects": ["events"], "storage": "file"}

    def __init__(self, port):
        super().__init__(port)
        self.line()  # INFO
        self.inbox = f"_INBOX.{random.getrandbits(64):x}"
        self.requests = 0
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        self.send(f"CONNECT {json.dumps(options)}\r\nSUB {self.inbox}.> 1\r\n".encode())

    def message(self):
        """The next message for this client: (subject, status, body)."""
        while True:
            words = self.line().split()
            if words[0] == "PING":
                self.send(b"PONG\r\n")
            elif words[0] == "-ERR":
                raise Refused(" ".join(words))
            elif words[0] == "MSG":
                return words[1], "", self.bytes(int(words[-1]))
            elif words[0] == "HMSG":
                header, size = int(words[-2]), int(words[-1])
                data = self.bytes(size)
                status = data.split(b"\r\n")[0].decode().removeprefix("NATS/1.0").strip()
                return words[1], status, data[header:]

    def ask(self, subject, body, header=b""):
        """Publishes, and returns the answer."""
        self.requests += 1
        reply = f"{self.inbox}.{self.requests}"
        if header:
            header = b"NATS/1.0\r\n" + header + b"\r\n\r\n"
            head = f"HPUB {subject} {reply} {len(header)} {len(header) + len(body)}\r\n"
        else:
            head = f"PUB {subject} {reply} {len(body)}\r\n"
        self.send(head.encode() + header + body + b"\r\n")
        while True:
            name, status, answer = self.message()
            if name != reply:
                continue
            if status:
                raise Refused(status)
            answer = json.loads(answer)
            if "error" in answer:
                raise Refused(answer["error"])
            return answer

    def api(self, what, request=None):
        return self.ask(f"$JS.API.{what}", json.dumps(request).encode() if request else b"")

    def put(self, number, body):
        self.ask("events", body, f"Nats-Msg-Id: {number}".encode())

    def all(self):
        state = self.api("STREAM.INFO.EVENTS")["state"]
        for sequence in range(state["first_seq"], state["last_seq"] + 1):
            # A number without a message is refused.
            with contextlib.suppress(Refused):
                yield base64.b64decode(self.api("STREAM.MSG.GET.EVENTS", {"seq": sequence})["message"]["data"])


class RabbitMQClient:
    def __init__(self, port, queue, persistent):
        parameters = pika.ConnectionParameters(
            "127.0.0.1", port, heartbeat=0, socket_timeout=TIMEOUT, stack_timeout=TIMEOUT,
            blocked_connection_timeout=TIMEOUT)
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        self.count = self.channel.queue_declare("events", **queue).method.message_count
        self.channel.confirm_delivery()
        self.properties = pika.BasicProperties(delivery_mode=2 if persistent else 1)

    def put(self, number, body):
        try:
            self.channel.basic_publish("", "events", body, self.properties, mandatory=True)
        except (pika.exceptions.NackError, pika.exceptions.UnroutableError) as error:
            raise Refused(repr(error)) from None

    def all(self):
        for method, _, body in self.channel.consume("events", auto_ack=True, inactivity_timeout=10):
            if method is None:
                return
            yield body

    def close(self):
        with contextlib.suppress(*BROKEN):
            self.connection.close()


# ---- Subjects


class Subject:
    """A server with its settings, whose data are in one folder."""

    name = settings = ""
    # The faults that it cannot survive without a loss.
    loses = ()

    def __init__(self, directory, data):
        """`data` is lost with the power, `directory` is not."""
        self.directory, self.data = directory, data
        self.log = directory / "log"
        self.port = free_port()
        self.environment = {}

    def prepare(self):
        """Before its first start."""

    def start(self):
        self.process = Process(
            self.command(), self.log, cwd=self.directory, start_new_session=True,
            env={**os.environ, **self.environment})
        until(self.is_ready, LONGEST_WAIT, f"{self.name} is ready", every=0.05)

    def is_ready(self):
        self.process.check_alive()
        try:
            self.connect().close()
            return True
        except (*BROKEN, Refused):
            return False

    def all(self):
        """Everything that it has stored, each copy."""
        with contextlib.closing(self.connect()) as client:
            yield from client.all()

    def states(self):
        """The states of all threads of all its processes."""
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[2]) == self.process.pid:
                    for task in path.parent.glob("task/*/stat"):
                        yield task.read_text().rpartition(")")[2].split()[0]

    def freeze(self):
        """Stops it between two instructions. A thread that is in a call of the kernel (D) stops when it comes back."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        until(lambda: set(self.states()) <= set("TDZX"), TIMEOUT, f"{self.name} is frozen", every=0.001)

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.child.wait()
        until(lambda: not set(self.states()) - set("ZX"), TIMEOUT, f"{self.name} is gone")

    def stop(self):
        process = getattr(self, "process", None)
        if process and process.child.poll() is None:
            process.stop()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def close(self):
        self.stop()


class Postern(Subject):
    name, settings = "gateway", "its defaults; there is no setting that answers before the sync"
    notes = (
        "The writer's `Idempotency-Key` is the same each time it repeats an event. The upstream is unreachable"
        " until the end; then everything is delivered as NDJSON, and counted there.")

    def prepare(self):
        self.binary = binary_from(OPTIONS.binary)
        self.keys = new_key(self.binary)
        self.dead = f"http://127.0.0.1:{free_port()}"

    @classmethod
    def version(cls):
        return run(binary_from(OPTIONS.binary), "--version")

    def start(self, url=None):
        settings = {
            "outbox": {"path": str(self.data / "postern.sqlite")},
            "delivery": {"retryMaxSeconds": 2},
            "upstreams": {
                "hook": {
                    "type": "webhook", "url": url or self.dead, "kinds": {"event": {"path": "/"}}, "batch": "ndjson"}},
        }
        self.process = Gateway(
            self.binary, self.directory, settings, self.port, environment=self.environment, keys=self.keys,
            start_new_session=True, cwd=self.directory)

    def connect(self):
        return HTTPClient(self.port, "/v1/hook/event", {"Authorization": f"Bearer {self.keys[0]}"})

    def all(self):
        with sink() as (url, bodies):
            self.stop()
            self.start(url)

            def is_drained():
                upstream = self.process.upstream("hook")
                return upstream["queued"] == 0 and upstream["inFlight"] == 0

            until(is_drained, 600, "everything is delivered", every=0.2)
            for body in bodies:
                yield from body.splitlines()


class PosternWithoutSyncs(Postern):
    settings = "a control: its syncs do nothing (`Tests/FaultShim`, `lie=10000`)"
    notes, loses = "", ("cuts",)

    def prepare(self):
        super().prepare()
        library = self.directory / "faults.so"
        source = HERE.parent / "Tests/FaultShim/faults.c"
        run("cc", "-O1", "-shared", "-fPIC", source, "-o", library, "-ldl", "-lpthread")
        self.environment = {"LD_PRELOAD": str(library), "FILE_FAULTS": f"folder={self.data},lie=10000"}


@contextlib.contextmanager
def sink():
    """An HTTP server that accepts everything: its URL, and the bodies that arrived."""
    bodies = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        server.server_close()


class MQBridge(Subject):
    name, settings = "mq-bridge", "`--once`: write-ahead log, idempotent insert"
    notes = (
        "[Its documentation](https://github.com/marcomq/mq-bridge/blob/main/docs/DELIVERY.md) acknowledges a"
        " message after the output has succeeded, and recommends `ON CONFLICT … DO NOTHING` against repeats."
        " `synchronous=FULL` is SQLite's default. The rows of its table are counted. Its defaults: its own table, and"
        " a rollback journal, whose removal is the commit. [SQLite](https://www.sqlite.org/pragma.html#pragma_synchronous)"
        " syncs the folder afterwards only with `synchronous=EXTRA`, so a power cut right after the acknowledgement can"
        " roll it back.")
    option = "--once"

    @classmethod
    def version(cls):
        return importlib.metadata.version("mq-bridge")

    def command(self):
        return [sys.executable, PEERS / "run_mq_bridge.py", self.data / "messages.db", self.port, self.option]

    def connect(self):
        return HTTPClient(self.port, "/", {})

    def all(self):
        self.stop()
        with contextlib.closing(sqlite3.connect(self.data / "messages.db")) as connection:
            for row in connection.execute("SELECT * FROM messages"):
                yield self.body(row)

    def body(self, row):
        # Only these two members were stored.
        number = int(row[0].removeprefix("device-"))
        return event(number).encode() if json.loads(event(number))["note"] == row[1] else b""


class MQBridgeDefaults(MQBridge):
    settings, option, notes = "`--defaults`", "--defaults", ""

    def body(self, row):
        return row[1]


class NATS(Subject):
    name, settings = "NATS JetStream", "`peers/nats-durable.conf`: `sync_interval: always`"
    notes = (
        "A stream with one replica in files, and an acknowledgement for each message; the writer's `Nats-Msg-Id` is"
        " the same each time it repeats an event. `sync_interval: always` syncs [on every"
        " write](https://docs.nats.io/reference/config/jetstream/sync_interval.md); the default is [every two"
        " minutes](https://docs.nats.io/nats-concepts/jetstream). 2.9, Debian's, has no setting that syncs before it"
        " acknowledges. Its documentation recommends replicas on other machines, which are not measured here.")
    options = ("-c", PEERS / "nats-durable.conf")
    program = pathlib.Path(sys.executable).parent / "nats-server"

    @classmethod
    def version(cls):
        return run(cls.program, "--version").rpartition("v")[2]

    def command(self):
        return [self.program, "-a", "127.0.0.1", "-p", self.port, "-js", "-sd", self.data, *self.options]

    def connect(self):
        client = NATSClient(self.port)
        # A client creates the stream unless it is there.
        client.api("STREAM.CREATE.EVENTS", NATSClient.STREAM)
        return client


class NATSDefaults(NATS):
    settings, options, notes = "defaults", (), ""


class NATSDebian(NATSDefaults):
    program = pathlib.Path("/usr/sbin/nats-server")


class Redis(Subject):
    name, settings = "Redis streams", "`peers/redis-durable.conf`: `appendonly yes`, `appendfsync always`"
    notes = (
        "Acknowledged with the reply to `XADD`."
        " [Persistence](https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/): `appendfsync"
        " always` syncs before the reply; `everysec`, the default of an append-only file, may lose a second; without"
        " such a file there are snapshots, at the earliest after a minute. Redis cannot recognize an event that a"
        " writer repeats.")
    options = (PEERS / "redis-durable.conf",)

    @classmethod
    def version(cls):
        return re.search(r"v=(\S+)", run("redis-server", "--version"))[1]

    def command(self):
        return ["redis-server", *self.options, "--bind", "127.0.0.1", "--port", self.port, "--dir", self.data]

    def connect(self):
        client = RedisClient(self.port)
        client.ask("PING")
        return client


class RedisEverySecond(Redis):
    settings, notes = "`peers/redis-everysec.conf`: `appendonly yes`", ""
    options = (PEERS / "redis-everysec.conf",)


class RedisDefaults(Redis):
    settings, options, notes = "defaults", (), ""
    loses = ("kills", "cuts")


class RabbitMQ(Subject):
    name, settings = "RabbitMQ", "a quorum queue, publisher confirms"
    notes = (
        "Each writer waits for the confirm of each message. A persistent message in a durable queue is confirmed"
        " [after it was persisted to disk](https://www.rabbitmq.com/docs/confirms), one in a [quorum"
        " queue](https://www.rabbitmq.com/docs/quorum-queues) once a majority of replicas, here the only one, has"
        " written it. The default of a queue and of a message is transient. RabbitMQ cannot recognize an event that"
        " a writer repeats.")
    queue, persistent = {"durable": True, "arguments": {"x-queue-type": "quorum"}}, True

    @classmethod
    def version(cls):
        return run("dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server").partition("-")[0]

    def prepare(self):
        port, distribution = free_port(), free_port()
        plugins = self.directory / "enabled_plugins"
        plugins.write_text("[].\n")
        self.environment = {
            "HOME": self.directory,
            "ERL_EPMD_PORT": port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "losses@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": self.port,
            "RABBITMQ_DIST_PORT": distribution,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": self.directory / "none",
            "RABBITMQ_CONFIG_FILE": PEERS / "rabbitmq",
            "RABBITMQ_GENERATED_CONFIG_DIR": self.directory / "config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": plugins,
            "RABBITMQ_LOG_BASE": self.directory,
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_MNESIA_BASE": self.data,
            "RABBITMQ_PID_FILE": self.directory / "pid",
            # The start script replaces itself with the server.
            "RUNNING_UNDER_SYSTEMD": "true",
        }
        self.environment = {name: str(value) for name, value in self.environment.items()}
        environment = {**os.environ, **self.environment}
        self.names = Process(["epmd", "-port", port], self.directory / "epmd.log", env=environment)

    def command(self):
        return ["/usr/lib/rabbitmq/bin/rabbitmq-server"]

    def connect(self):
        return RabbitMQClient(self.port, self.queue, self.persistent)

    def close(self):
        super().close()
        self.names.stop()


class RabbitMQClassic(RabbitMQ):
    settings, notes = "a durable classic queue, persistent messages, confirms", ""
    queue = {"durable": True}


class RabbitMQDefaults(RabbitMQ):
    settings, notes = "defaults, with confirms", ""
    queue, persistent, loses = {}, False, ("kills", "cuts")


class Beanstalkd(Subject):
    name, settings = "beanstalkd", "`-b DIR -f 0`"
    notes = (
        "[beanstalkd(1)](https://manpages.debian.org/bookworm/beanstalkd/beanstalkd.1.en.html): `-b` writes a log,"
        " `-f 0` syncs it at each write; with `-b` alone it is synced every 50 ms, and without it nothing is on disk."
        " beanstalkd cannot recognize an event that a writer repeats.")
    options = ("-f", 0)
    has_log = True

    @classmethod
    def version(cls):
        return run("beanstalkd", "-v").split()[-1]

    def command(self):
        log = ("-b", self.data) if self.has_log else ()
        return ["beanstalkd", "-l", "127.0.0.1", "-p", self.port, *log, *self.options]

    def connect(self):
        return BeanstalkdClient(self.port)


class BeanstalkdLog(Beanstalkd):
    settings, options, notes = "`-b DIR`", (), ""


class BeanstalkdDefaults(Beanstalkd):
    settings, options, notes = "defaults", (), ""
    has_log, loses = False, ("kills", "cuts")


SUBJECTS = {
    "gateway": Postern,
    "gateway-control": PosternWithoutSyncs,
    "mq-bridge": MQBridge,
    "mq-bridge-defaults": MQBridgeDefaults,
    "nats": NATS,
    "nats-defaults": NATSDefaults,
    "nats-debian": NATSDebian,
    "redis": Redis,
    "redis-everysec": RedisEverySecond,
    "redis-defaults": RedisDefaults,
    "rabbitmq": RabbitMQ,
    "rabbitmq-classic": RabbitMQClassic,
    "rabbitmq-defaults": RabbitMQDefaults,
    "beanstalkd": Beanstalkd,
    "beanstalkd-log": BeanstalkdLog,
    "beanstalkd-defaults": BeanstalkdDefaults,
}


# ---- The campaign


class Load:
    """Writers that send until they are stopped, and what they were told."""

    def __init__(self, subject, writers):
        self.subject = subject
        self.stopping = threading.Event()
        self.numbers = itertools.count()
        self.faults = 0
        # Number of each acknowledged event → how many faults there had been.
        self.acknowledged = {}
        self.refusals = collections.Counter()
        self.unanswered = 0
        self.failures = []
        self.threads = [threading.Thread(target=self.write, daemon=True) for _ in range(writers)]
        for thread in self.threads:
            thread.start()

    def write(self):
        try:
            client = None
            while not self.stopping.is_set():
                client = self.deliver(client, next(self.numbers))
            if client:
                client.close()
        except Exception as error:  # A mistake of this program: the main thread reports it.
            self.failures.append(error)

    def deliver(self, client, number):
        """Sends an event until it is acknowledged; returns the connection that is left."""
        body = event(number).encode()
        while not self.stopping.is_set():
            if not client:
                try:
                    client = self.subject.connect()
                except (*BROKEN, Refused):
                    time.sleep(0.02)
                    continue
            try:
                client.put(number, body)
                self.acknowledged[number] = self.faults
                return client
            except Refused as refusal:
                self.refusals[str(refusal)] += 1
                time.sleep(0.02)
            except BROKEN:
                self.unanswered += 1
                client.close()
                client = None
        return client

    def check(self):
        if self.failures:
            raise self.failures[0]

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(2 * TIMEOUT)
            if thread.is_alive():
                raise Failure("a writer does not end")
        self.check()


def compared(load, stored):
    """What was acknowledged, compared with what there is, each as a count."""
    copies, altered = collections.Counter(), 0
    for body in stored:
        found = re.search(rb'"sourceId":"device-(\d+)"', body)
        if found and event(int(found[1])).encode() == body:
            copies[int(found[1])] += 1
        else:
            altered += 1
    lost = [number for number in load.acknowledged if not copies[number]]
    return {
        "acknowledged": len(load.acknowledged),
        "lost": len(lost),
        "repeated": sum(1 for count in copies.values() if count > 1),
        "altered": altered,
        "refused": sum(load.refusals.values()),
        "unanswered": load.unanswered,
        # To find the cause: how many faults there had been when a lost event was acknowledged.
        "lostAfterFaults": dict(sorted(collections.Counter(load.acknowledged[number] for number in lost).items())),
        "lostNumbers": sorted(lost)[:100],
        "refusals": dict(load.refusals.most_common(5)),
    }


def campaign(kind, cut, faults, directory):
    """Runs a subject through kills, or through power cuts: its result."""
    chance = random.Random(f"{OPTIONS.seed}/{kind.__name__}/{cut}")
    with Disk(directory, seed=chance.randrange(2**32)) as disk:
        data = disk.folder / "data"
        data.mkdir()
        subject = kind(directory, data)
        try:
            subject.prepare()
            subject.start()
            # The folder and the empty queue are part of the installation, which is older than the load.
            run("sync", "--file-system", data)
            load = Load(subject, OPTIONS.writers)
            for _ in range(faults):
                time.sleep(chance.uniform(0.2, 2))
                load.check()
                if cut:
                    # Frozen first: after its disk has lost power, it must not acknowledge anything.
                    subject.freeze()
                    disk.lose_power()
                subject.kill()
                load.faults += 1
                if cut:
                    disk.regain_power(torn=chance.random() < 0.5)
                try:
                    subject.start()
                except Failure as failure:
                    load.stop()
                    return {**compared(load, []), "ended": load.faults, "failure": str(failure)}
            time.sleep(1)
            load.stop()
            return compared(load, subject.all())
        finally:
            if "load" in locals():
                load.stopping.set()
            subject.close()


METHOD = """\
{writers} writers send one event of 600 bytes at a time, and repeat it until it is acknowledged: with an HTTP status
202, or with what the subject's documentation calls an acknowledgement. Each subject is one process on a file system
of its own.

* **kill -9**: {kills} kills at random times, each after 0.2 to 2 s of load; then the subject starts again.
* **power cut**: {cuts} cuts. The file system, ext4, is on a disk with a write cache (`powercut/powercut.c`: a loop
  device on a FUSE file) that loses what was not flushed: all of it, or, in half of the cuts, each block of 4 KiB with
  a chance of one half. The subject is frozen, the disk loses power, the subject is killed, ext4 recovers from its
  journal, and the subject starts again. This works for any program, and for directories and mapped files, too. Cuts
  follow so soon after each other that what is synced every few minutes is never synced: how much is lost says less
  than whether anything is.
* **Lost**: acknowledged, and not among what the subject has at the end, byte for byte.
* **Repeated**: events that are stored more than once, because a writer repeated a request that had not been answered.
  Everything is read once, after the last fault, so a repeated delivery does not count.
* **Altered**: stored, but not byte for byte what any writer sent.
* **Refused**: responses other than an acknowledgement. **Unanswered**: requests during which the connection broke.

Controls: the gateway without syncs has to lose messages by power cuts, and a queue in memory by any fault, or this
section is not written.
"""


def report(results, options, started):
    lines = [
        f"{started:%Y-%m-%d %H:%M} UTC · {machine(TOOLS).rpartition(', store on')[0]} · {options.kills} kills,"
        f" {options.cuts} power cuts, seed {options.seed} · `make loss-table` writes this section.", "",
        "| who | settings | acknowledged, kill -9 | lost | acknowledged, power cut | lost | repeated | altered"
        " | refused | unanswered |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key, (killed, cut) in results.items():
        kind = SUBJECTS[key]
        cells = [f"{kind.name} {kind.version()}", kind.settings]
        for result in (killed, cut):
            ended = f" (did not start after {result['ended']} faults)" if "ended" in result else ""
            cells += [grouped(result["acknowledged"]), grouped(result["lost"]) + ended]
        cells += [grouped(killed[name] + cut[name]) for name in ("repeated", "altered", "refused", "unanswered")]
        lines.append("| " + " | ".join(cells) + " |")
    notes = [
        textwrap.fill(
            f"* **{SUBJECTS[key].name}**: {SUBJECTS[key].notes}", 120, subsequent_indent="  ", break_long_words=False,
            break_on_hyphens=False)
        for key in results if SUBJECTS[key].notes]
    method = METHOD.format(writers=options.writers, kills=options.kills, cuts=options.cuts)
    return "\n".join([*lines, "", method, *notes])


def grouped(number):
    return f"{number:,}".replace(",", "\u00a0")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="the gateway (default $POSTERN_BINARY or .build/release/postern)")
    parser.add_argument("--only", action="append", choices=SUBJECTS, help="one of the subjects; may be repeated")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", default=HERE.parent / ".build/losses", help="for logs and what is mounted")
    parser.add_argument("--output", help="write the section into that page (default PEERS.md for all subjects)")
    return parser.parse_args()


def main(options):
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        raise Failure("root and /dev/fuse are needed, for a disk that loses power")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = datetime.datetime.now(datetime.timezone.utc)
    directory = pathlib.Path(options.directory).resolve()
    shutil.rmtree(directory, ignore_errors=True)
    check_disk(directory / "check")
    results, problems = {}, []
    for key in options.only or SUBJECTS:
        kind = SUBJECTS[key]
        results[key] = []
        for cut, faults in ((False, options.kills), (True, options.cuts)):
            what = "cuts" if cut else "kills"
            began = time.monotonic()
            result = campaign(kind, cut, faults, directory / f"{key}-{what}")
            results[key].append(result)
            counts = ", ".join(f"{name} {count}" for name, count in result.items() if name != "lostNumbers")
            print(f"{key}, {faults} {what}, {time.monotonic() - began:.0f} s: {counts}", flush=True)
            (directory / "results.json").write_text(json.dumps(results, indent=1))
            if kind is Postern and (result["lost"] or result["repeated"] or result["altered"]):
                problems.append(f"the gateway failed; see {directory}/{key}-{what}")
            if what in kind.loses and not result["lost"]:
                problems.append(f"{key} lost nothing by {what}, although it had not synced anything")
    if problems:
        raise Failure("; ".join(problems))
    output = options.output or (None if options.only else HERE / "PEERS.md")
    if output:
        replace_section(pathlib.Path(output), "losses", report(results, options, started))


if __name__ == "__main__":
    OPTIONS = arguments()
    try:
        main(OPTIONS)
    except Failure as failure:
        sys.exit(f"losses: {failure}")
