#!/usr/bin/env python3
"""The worst mix of large bodies, lists that no client reads, waiting callers and endless upstream responses, all at once in a
control group of 128 MiB: the gateway must survive, answer its probes, and lose nothing.

usage: scripts/memory.py [--limit-mib 128] [--seconds 20] [--binary PATH]

Needs to be allowed to make a control group (root). Where it is not, the gateway is told the limit by
`server.maxBodyMemoryBytes` and its peak is compared with the limit afterwards.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import Failure, Gateway, binary_from, call, merged  # noqa: E402

MIB = 1 << 20
BODIES, READERS, WAITERS, HOSTILES = 24, 12, 200, 6


class ControlGroup:
    """A control group with a memory limit, of version 2 or 1; `None` from `make` where there can be none."""

    def __init__(self, folder, limit_file, peak_file):
        self.folder, self.limit_file, self.peak_file = folder, limit_file, peak_file

    @classmethod
    def make(cls, limit):
        for parent, limit_file, peak_file in [
            ("/sys/fs/cgroup", "memory.max", "memory.peak"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
        ]:
            folder = pathlib.Path(parent) / f"postern-{os.getpid()}"
            try:
                folder.mkdir()
                if not (folder / limit_file).exists():
                    folder.rmdir()
                    continue
                (folder / limit_file).write_text(str(limit))
                return cls(folder, limit_file, peak_file)
            except OSError:
                with contextlib.suppress(OSError):
                    folder.rmdir()
        return None

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def peak(self):
        with contextlib.suppress(OSError):
            return int((self.folder / self.peak_file).read_text())
        return 0

    def remove(self):
        self.folder.rmdir()


class EndlessUpstream(threading.Thread):
    """Answers every request with a body, or with trailers, without end."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.count = 0
        self.start()

    def run(self):
        while True:
            connection, _ = self.socket.accept()
            self.count += 1
            threading.Thread(target=self.answer, args=(connection, self.count % 2 == 0), daemon=True).start()

    @staticmethod
    def answer(connection, is_trailers):
        with contextlib.suppress(OSError), connection:
            connection.settimeout(20)
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\n\r\n")
            piece = b"1000\r\n" + b"[0,0,0,0," * 455 + b"0\r\n"
            if is_trailers:
                connection.sendall(b"0\r\n")
                piece = b"X-More: " + b"x" * 1000 + b"\r\n"
            for _ in range(200_000):
                connection.sendall(piece)


class Campaign:
    def __init__(self, gateway, seconds):
        self.gateway, self.ends = gateway, time.monotonic() + seconds
        self.statuses = collections.Counter()
        self.accepted = 0
        self.slowest = 0.0
        self.lock = threading.Lock()

    def is_on(self):
        return time.monotonic() < self.ends

    def note(self, kind, status, accepted=0):
        with self.lock:
            self.statuses[kind, status] += 1
            self.accepted += accepted if status in (200, 202) else 0

    # ---- What callers do

    def body(self, number):
        """4 MB that come slowly, so that all of them are there at once."""
        event = json.dumps({"timestamp": 1, "sourceId": f"s{number}", "eventName": "e", "x": "y" * 40_000})
        events = "[" + ",".join([event] * 100) + "]"
        while self.is_on():
            with contextlib.suppress(OSError, Failure), self.connection() as connection:
                head = "POST /v1/samsara/event HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                head += self.gateway.authorization + "\r\n"
                connection.sendall(f"{head}Content-Length: {len(events)}\r\n\r\n".encode())
                for start in range(0, len(events), 500_000):
                    connection.sendall(events[start:start + 500_000].encode())
                    time.sleep(0.05)
                self.note("body", self.status(connection), 100)

    def reader(self):
        """Asks for a large page and reads none of it."""
        while self.is_on():
            with contextlib.suppress(OSError), socket.socket() as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect(("127.0.0.1", self.gateway.port))
                head = "GET /v1/messages?limit=1000&include=payload HTTP/1.1\r\nHost: localhost\r\n"
                connection.sendall(f"{head}{self.gateway.authorization}\r\n\r\n".encode())
                time.sleep(min(3, max(0, self.ends - time.monotonic())))
                self.note("list", 0)

    def waiter(self, number):
        event = json.dumps({"timestamp": 1, "sourceId": f"w{number}", "eventName": "e"})
        while self.is_on():
            with contextlib.suppress(OSError):
                status, _, _ = call(
                    self.gateway.port, "POST", "/v1/samsara/event", event,
                    {"Content-Type": "application/json", "Prefer": "wait=5"}, timeout=30)
                self.note("wait", status, 1)

    def hostile(self):
        envelope = "{" + ",".join(f'"m{n}":0' for n in range(350_000)) + "}"
        while self.is_on():
            with contextlib.suppress(OSError):
                status, _, answer = call(
                    self.gateway.port, "POST", "/v1/messages", envelope, {"Content-Type": "application/json"}, timeout=30)
                self.note("hostile", status)
                if len(answer) > MIB:
                    raise Failure(f"a response of {len(answer)} bytes")

    def prober(self):
        while self.is_on():
            start = time.monotonic()
            status, _, answer = call(self.gateway.port, "GET", "/livez", timeout=10)
            if status != 200:
                raise Failure(f"/livez answered {status}: {answer.decode()}")
            self.slowest = max(self.slowest, time.monotonic() - start)
            time.sleep(0.05)

    # ----

    def connection(self):
        return socket.create_connection(("127.0.0.1", self.gateway.port), timeout=30)

    @staticmethod
    def status(connection):
        answer = connection.recv(65536)
        return int(answer.split(b" ", 2)[1]) if answer else 0

    def run(self):
        failures = []

        def guarded(task, *arguments):
            try:
                task(*arguments)
            except Exception as failure:  # reported by the main thread
                failures.append(failure)

        tasks = [(self.body, number) for number in range(BODIES)] + [(self.reader,)] * READERS
        tasks += [(self.waiter, number) for number in range(WAITERS)] + [(self.hostile,)] * HOSTILES + [(self.prober,)]
        threads = [threading.Thread(target=guarded, args=task, daemon=True) for task in tasks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self.ends - time.monotonic() + 60)
        if failures:
            raise Failure(f"{failures[0]!r}")


def run(binary, directory, limit, seconds):
    group = ControlGroup.make(limit)
    upstream = EndlessUpstream()
    settings = {
        "upstreams": {"samsara": {"url": upstream.url}},
        "delivery": {"retryBaseSeconds": 0.1, "retryMaxSeconds": 0.5, "batchMaxMessages": 10},
    }
    if group is None:
        settings["server"] = {"maxBodyMemoryBytes": limit // 4}
    arguments = {"preexec_fn": group.enter} if group else {}
    gateway = Gateway(binary, directory, merged({"log": {"level": "error"}}, settings), **arguments)
    try:
        campaign = Campaign(gateway, seconds)
        campaign.run()
        gateway.check_alive()
        resident = gateway.rss_mib("VmHWM")
        if gateway.stop() != 0:
            raise Failure(f"the gateway ended with {gateway.child.returncode}")
        audit = subprocess.run(
            [binary, "outbox", "audit", "--store", gateway.directory / "postern.sqlite", "--json"], capture_output=True)
        if audit.returncode != 0:
            raise Failure(f"the books do not balance: {audit.stdout.decode()}{audit.stderr.decode()}")
        accepted = sum(account["accepted"] for account in json.loads(audit.stdout)["upstreams"])
        if accepted < campaign.accepted:
            raise Failure(f"{campaign.accepted} messages were accepted, and {accepted} are in the books")
        charged = group.peak() / MIB if group else resident
        print(f"peak {charged:.0f} MiB of {limit // MIB} MiB, {resident:.0f} MiB resident with the program's own pages"
              + ("" if group else "; compared, not enforced"))
        print(f"slowest /livez {campaign.slowest * 1000:.0f} ms; {campaign.accepted} messages accepted; "
              f"{upstream.count} endless upstream responses")
        for (kind, status), count in sorted(campaign.statuses.items()):
            print(f"  {kind} {status}: {count}")
        if not group and resident * MIB > limit:
            raise Failure("more memory than the limit")
        if not any(status in (200, 202) for _, status in campaign.statuses):
            raise Failure("nothing was accepted")
    finally:
        gateway.kill()
        if group:
            group.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", help="gateway to test (default $POSTERN_BINARY or .build/release/postern)")
    parser.add_argument("--limit-mib", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="postern-memory-"))
    try:
        run(binary_from(options.binary), directory, options.limit_mib * MIB, options.seconds)
    except Failure as failure:
        print(f"FAILED: {failure}\nthe store and the log are in {directory}", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
