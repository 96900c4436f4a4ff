"""Starts, watches and ends the processes that the benchmarks, the torture campaign and the soak test drive.

Python's standard library only. Everything listens on loopback; every process is ended by its own handle; every wait
has a deadline.
"""

import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Failure(Exception):
    """Something did not happen in time, or not as promised; the text is for people."""


def free_port(count=1):
    """The first of `count` ports in a row that are not in use.

    They lie below the range that the kernel takes ports of outgoing connections from: a client that knocks at a port of
    that range while its server restarts may be given the very port and talk to itself.
    """
    for _ in range(1000):
        port = random.randrange(20_000, 32_000 - count)
        with contextlib.ExitStack() as stack:
            try:
                for offset in range(count):
                    probe = stack.enter_context(socket.socket())
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port + offset))
                return port
            except OSError:
                continue
    raise Failure(f"no {count} free ports in a row")


# Seconds to wait for what has to happen: it ends a run that would otherwise hang, and decides nothing.
LONGEST_WAIT = 300

# The API key of the gateway on each port, and its certificate if it serves over TLS.
KEYS, CERTIFICATES = {}, {}


def call(port, method, path, body=None, headers=None, timeout=LONGEST_WAIT):
    """One request on a connection of its own, with the key of the gateway that is there: (status, headers, body)."""
    headers = dict(headers or {})
    if port in KEYS:
        headers.setdefault("Authorization", f"Bearer {KEYS[port]}")
    if port in CERTIFICATES:
        context = ssl.create_default_context(cafile=CERTIFICATES[port])
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=context)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def until(condition, seconds, what, every=0.02):
    """Waits until `condition()` gives something true, and returns that."""
    deadline = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise Failure(f"{what}: not within {seconds} s")
        time.sleep(every)


def cpu_ticks(pid):
    """User and system time of a process, then of its children that have ended and were waited for."""
    return [int(field) for field in open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[11:15]]


class Process:
    """A child process with its output in a file; ended at the end of a `with` block."""

    def __init__(self, arguments, log, **options):
        self.log = pathlib.Path(log)
        self.arguments = [str(argument) for argument in arguments]
        with open(self.log, "ab") as output:
            self.child = subprocess.Popen(
                self.arguments, stdout=output, stderr=output, stdin=options.pop("stdin", subprocess.DEVNULL), **options
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def pid(self):
        return self.child.pid

    def check_alive(self):
        if self.child.poll() is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise Failure(f"{' '.join(self.arguments[:2])} ended with {self.child.returncode}:\n{tail}")
        return True

    def stop(self, seconds=30):
        """SIGTERM, then SIGKILL when that was not enough. Returns the exit code."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.child.returncode

    def kill(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()

    def rss_mib(self, field="VmRSS"):
        for line in open(f"/proc/{self.pid}/status"):
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
        raise Failure(f"no {field} for {self.pid}")

    def cpu_seconds(self):
        return sum(cpu_ticks(self.pid)[:2]) / os.sysconf("SC_CLK_TCK")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Simulator(Process):
    """`postern simulate`: strict stand-ins for the upstreams, which say what they received.

    Every simulator has a port of its own, one after the other.
    """

    # Simulators start in the order of the example's upstreams, which is that of the registry.
    PLACES = list(json.loads((ROOT / "config.example.json").read_text())["upstreams"])
    PORTS = len(PLACES)

    def __init__(self, binary, directory, faults="", keep="texts", seed=0):
        self.port = free_port(self.PORTS)
        super().__init__([binary, "simulate", "--port", self.port], pathlib.Path(directory) / "simulator.log")
        # They begin to listen one after the other.
        ports = range(self.port, self.port + self.PORTS)
        until(lambda: self.check_alive() and all(map(listens, ports)), LONGEST_WAIT, "simulators listen")
        self.forget(keep)
        self.play(faults, seed)

    def url(self, upstream="samsara"):
        if upstream not in self.PLACES:
            raise Failure(f"there is no simulator of {upstream}")
        return f"http://127.0.0.1:{self.port + self.PLACES.index(upstream)}"

    def control(self, upstream, settings):
        """Changes what that simulator's `/control` has."""
        self.ask("POST", "/control", json.dumps(settings), upstream=upstream)

    def ask(self, method, path, body=None, timeout=120, upstream="samsara"):
        port = self.port + self.PLACES.index(upstream)
        status, _, answer = call(port, method, path, body, timeout=timeout)
        if status >= 300:
            raise Failure(f"simulator: {method} {path}: {status} {answer.decode()}")
        return answer.decode()

    def received(self, upstream="samsara"):
        return json.loads(self.ask("GET", "/received", upstream=upstream))

    def count(self, upstream="samsara"):
        """How many messages arrived there, repeated ones included."""
        return self.received(upstream)["events"]

    def arrivals(self, field, upstream="samsara"):
        """(order key, the value of `field`) of every item, as often as it arrived, in order of arrival."""
        text = self.ask("GET", f"/received?field={field}", upstream=upstream)
        return [tuple(line.split("\t")) for line in text.splitlines()]

    def arrival_log(self, field, upstream="samsara"):
        """Each arrival in order, with the items that a request was rejected for: (order key, the value of `field`, whether
        it was accepted, the response or a fault, seconds of the monotonic clock)."""
        text = self.ask("GET", f"/received?field={field}&log=true", upstream=upstream)
        for line in text.splitlines():
            key, value, verdict, answer, nanoseconds = line.split("\t")
            yield key, value, verdict == "accepted", answer, int(nanoseconds) / 1e9

    def forget(self, keep):
        """Starts over; `keep` is texts, digests or counts."""
        for upstream in self.PLACES:
            self.ask("DELETE", f"/received?keep={keep}", upstream=upstream)

    def play(self, faults, seed=0):
        """From now on these faults; none if the text is empty."""
        self.ask("POST", f"/faults?seed={seed}", faults)


def new_key(binary):
    """A key with all scopes, and its entry in `auth.keys`."""
    command = [binary, "keys", "new", "--name", "campaign", "--scopes", "write,read,admin", "--json"]
    made = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=LONGEST_WAIT).stdout)
    return made["key"], made["entry"]


class Gateway(Process):
    """`postern serve` on a store of its own. Unless `keys` is false it requires an API key, which `call` presents: one of
    its own, or the result of `new_key`, for gateways that share a store."""

    def __init__(
        self, binary, directory, settings, port=None, wait=True, environment=None, keys=True, arguments=(), prefix=(),
        **options,
    ):
        self.binary = binary
        self.key, self.entry = keys if isinstance(keys, tuple) else new_key(binary) if keys else (None, None)
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.config = self.directory / "postern.json"
        self.config.write_text(json.dumps(merged(self.essentials(), settings), indent=2))
        certificate = settings.get("server", {}).get("tls", {}).get("certificateFile")
        for known, value in ((KEYS, self.key), (CERTIFICATES, certificate)):
            if value:
                known[self.port] = value
            else:
                known.pop(self.port, None)
        self.started_at = time.monotonic()
        if environment:
            options["env"] = {**os.environ, **environment}
        command = [*prefix, binary, "serve", "--config", self.config, *arguments]
        super().__init__(command, self.directory / "gateway.log", **options)
        if wait:
            self.wait_ready()

    def essentials(self):
        return {
            "server": {"host": "127.0.0.1", "port": self.port},
            "auth": {"keys": [self.entry] if self.entry else []},
            "outbox": {"path": str(self.directory / "postern.sqlite"), "encryptionKey": "5a" * 32},
            "log": {"level": "warning"},
        }

    @property
    def authorization(self):
        """The header line with the key, for clients that do without `call`; empty without keys."""
        return f"Authorization: Bearer {self.key}" if self.key else ""

    def is_ready(self):
        self.check_alive()
        try:
            return call(self.port, "GET", "/readyz", timeout=5)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def wait_ready(self, seconds=LONGEST_WAIT, every=0.005):
        """Seconds from the start of the process until it said that it is ready."""
        until(self.is_ready, seconds, "gateway ready", every)
        return time.monotonic() - self.started_at

    def upstream(self, name="samsara"):
        return json.loads(call(self.port, "GET", f"/v1/upstreams/{name}")[2])

    def metrics(self):
        """Name with labels → value."""
        text = call(self.port, "GET", "/metrics")[2].decode()
        lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def outbox(self, *arguments, timeout=600):
        """`postern outbox …` on this gateway's store: (exit code, its JSON or its text)."""
        command = [self.binary, "outbox", *arguments, "--config", str(self.config), "--json"]
        environment = {**os.environ, "POSTERN_KEY": self.key or ""}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, env=environment)
        try:
            return done.returncode, json.loads(done.stdout)
        except ValueError:
            return done.returncode, done.stdout + done.stderr


class Postgres(Process):
    """A PostgreSQL server in a folder of its own, with a socket there and no port, and the database `postern`.

    If this process is root's, the server is the user postgres, since it refuses to be root.

    in_memory: The folder is one in memory, if there is room: then no commit waits for a disk that others use as well.
    parent: Where the folder is otherwise.
    """

    def __init__(self, settings=(), in_memory=False, parent="/tmp"):
        servers = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        if not servers:
            raise Failure("there is no PostgreSQL server; install postgresql-15")
        self.programs = programs = servers[-1].parent
        memory = pathlib.Path("/dev/shm")
        has_room = in_memory and memory.is_dir() and shutil.disk_usage(memory).free > 1 << 30
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="postern-postgres-", dir=memory if has_room else parent))
        user = []
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
            user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        subprocess.run(
            [*user, programs / "initdb", "-D", self.folder / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8",
             "--no-locale", "--no-sync"], cwd=self.folder, check=True, capture_output=True)
        options = ["listen_addresses=", f"unix_socket_directories={self.folder}", *settings]
        self.command = [
            *user, programs / "postgres", "-D", self.folder / "data", *(part for one in options for part in ("-c", one))]
        self.start()
        psql(self.url("postgres"), "CREATE DATABASE postern")

    def start(self, environment=None):
        """Starts the server, also again after its process has ended, with more variables if they are given."""
        super().__init__(self.command, self.folder / "log", cwd=self.folder, env={**os.environ, **(environment or {})})
        pid_file = self.folder / "data/postmaster.pid"
        until(lambda: self.check_alive() and pid_file.exists() and "ready" in pid_file.read_text(), LONGEST_WAIT, "PostgreSQL")

    def children(self):
        """Its processes other than the first one."""
        return [int(pid) for pid in pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def cpu_seconds(self):
        """Of all its processes, including those that have ended. One that ends meanwhile may be missing."""
        ticks = sum(cpu_ticks(self.pid))
        for pid in self.children():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                ticks += sum(cpu_ticks(pid)[:2])
        return ticks / os.sysconf("SC_CLK_TCK")

    def sessions(self):
        """The processes of its connections."""
        titles = {pid: pathlib.Path(f"/proc/{pid}/cmdline") for pid in self.children()}
        return [pid for pid, title in titles.items() if title.exists() and b"postgres: postgres postern" in title.read_bytes()]

    def url(self, database="postern"):
        return f"postgres://postgres@/{database}?host={self.folder}"

    def stop(self, seconds=30):
        """Ends all sessions. The folder is removed."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)
        code = super().stop(seconds)
        shutil.rmtree(self.folder, ignore_errors=True)
        return code


def psql(url, text, check=True):
    """Runs statements, each in its own transaction. Returns what psql printed: rows, with `|` between columns, then errors."""
    done = subprocess.run(
        ["psql", url, "-X", "-q", "-t", "-A", *(["-v", "ON_ERROR_STOP=1"] if check else [])], input=text, text=True,
        capture_output=True, timeout=LONGEST_WAIT)
    if check and done.returncode:
        raise Failure(f"psql: {done.stderr}")
    return done.stdout + done.stderr


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def merged(base, changes):
    """`base` with `changes`, section by section."""
    result = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if nested else value
    return result


def binary_from(argument):
    """The gateway to drive: the argument, $POSTERN_BINARY, or the release build."""
    # The gateway itself would take the variable for a setting.
    named = os.environ.pop("POSTERN_BINARY", None)
    path = pathlib.Path(argument or named or ROOT / ".build/release/postern")
    if not path.is_file():
        raise Failure(f"{path} is not there; `make build` makes it")
    return str(path.resolve())
