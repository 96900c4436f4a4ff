#!/usr/bin/env python3
"""Measures what messages take on the disk and in memory: the figures of docs/operations.md#sizing.

usage: make bench-sizing
       Benchmarks/sizing.py [--binary PATH] [--quick]        --quick: a tenth of the messages

What is on the disk does not depend on the machine or on the build. Memory is VmRSS, and wants the release binary. The
upstream is dead unless its receipts are measured, and messages are events of Samsara's, posted 500 at a time by one client.
"""

import argparse
import contextlib
import http.client
import pathlib
import resource
import socket
import sqlite3
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))
from bench import compact, machine  # noqa: E402
from harness import Failure, Gateway, Simulator, binary_from, call, until  # noqa: E402

BULK = 500
CONNECTIONS = 5000


def event(number, size):
    """An event as JSON text of exactly `size` bytes."""
    fields = {"timestamp": 1479988864057 + number, "sourceId": f"device-{number:06d}", "eventName": "course.page.viewed", "note": ""}
    return compact(fields | {"note": "x" * (size - len(compact(fields)))})


class Sizing:
    def __init__(self, binary, directory, part):
        self.binary, self.directory, self.part = binary, directory, part
        self.rows = []

    def note(self, what, value, remark=""):
        self.rows.append((what, value, remark))
        print(f"{what}: {value}  {remark}", flush=True)

    def gateway(self, name, url="http://127.0.0.1:9", settings=None, port=None):
        """A gateway whose upstream is dead, unless there is a URL."""
        upstreams = {"samsara": {"url": url, "compression": "none"}}
        return Gateway(self.binary, self.directory / name, {"upstreams": upstreams} | (settings or {}), port, keys=False)

    def fill(self, gateway, count, size):
        """Seconds that it took, and the most bytes that the log had."""
        path = gateway.directory / "postern.sqlite-wal"
        bodies = ["\n".join(event(first + number, size) for number in range(BULK)) for first in range(0, 8 * BULK, BULK)]
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
        start, log = time.monotonic(), 0
        for number in range(count // BULK):
            connection.request(
                "POST", "/v1/samsara/event", bodies[number % len(bodies)], {"Content-Type": "application/x-ndjson"})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 202:
                raise Failure(f"{answer.status}: {text.decode()}")
            log = max(log, path.stat().st_size)
        connection.close()
        return time.monotonic() - start, log

    def store(self, gateway):
        """Bytes of the database, with nothing in its log; the gateway has been stopped."""
        gateway.stop()
        if (gateway.directory / "postern.sqlite-wal").exists():
            raise Failure("the gateway left a log")
        return (gateway.directory / "postern.sqlite").stat().st_size

    def tables(self, gateway, *prefixes):
        """Bytes of the pages of these tables and their indexes, and how many rows the first one has."""
        with contextlib.closing(sqlite3.connect(f"file:{gateway.directory}/postern.sqlite?mode=ro", uri=True)) as database:
            names = [name for name, in database.execute("SELECT DISTINCT name FROM dbstat")]
            pages = sum(
                database.execute("SELECT sum(pgsize) FROM dbstat WHERE name = ?", (name,)).fetchone()[0]
                for name in names if name.startswith(prefixes))
            first = next(name for name in names if name.startswith(prefixes[0]))
            return pages, database.execute(f"SELECT count(*) FROM {first}").fetchone()[0]

    # ---- What is measured

    def empty(self):
        with self.gateway("empty") as gateway:
            time.sleep(5)
            self.idle = gateway.rss_mib()
            self.note("memory, idle", f"{self.idle:.1f} MiB")
            self.base = self.store(gateway)
        self.note("an empty store", f"{self.base / 2**20:.1f} MiB", "and 8 MiB of `.reserve`")

    def queued(self, size, count):
        with self.gateway(f"queued-{size}") as gateway:
            seconds, log = self.fill(gateway, count, size)
            bytes_each = (self.store(gateway) - self.base) / count
            self.note(f"a queued message of {size} B", f"{bytes_each:.0f} B", f"{bytes_each / size:.2f} × its payload")
            if size == 600:
                self.note("write-ahead log, at most", f"{log / 2**20:.1f} MiB", f"{count / seconds:,.0f} messages/s arriving")
        if size == 600:
            self.cancelled(gateway, size)

    def cancelled(self, former, size):
        """Failed, dropped, expired, and cancelled messages are kept in the same table, with their payload."""
        with self.gateway(former.directory.name, port=former.port) as gateway:
            call(gateway.port, "POST", "/v1/upstreams/samsara/pause")
            until(lambda: self.cancel(gateway) == 0, 600, "all are cancelled", 0)
            self.store(gateway)
            pages, rows = self.tables(gateway, "ended_")
            self.note(f"a dead letter of {size} B", f"{pages / rows:.0f} B", f"{pages / rows / size:.2f} × its payload")

    @staticmethod
    def cancel(gateway):
        """How many are left."""
        status, _, body = call(
            gateway.port, "POST", "/v1/messages/cancel", '{"upstream":"samsara","state":"queued"}',
            {"Content-Type": "application/json"}, timeout=120)
        if status != 200:
            raise Failure(f"cancel: {status} {body.decode()}")
        return gateway.upstream()["queued"]

    def delivered(self, count):
        with Simulator(self.binary, self.directory, keep="counts") as simulator:
            with self.gateway("delivered", simulator.url()) as gateway:
                self.fill(gateway, count, 600)
                until(lambda: gateway.upstream()["queued"] == 0, 600, "all are delivered", 0.2)
                size = self.store(gateway)
                pages, rows = self.tables(gateway, "delivered_")
                self.note("a receipt of a delivered message", f"{pages / rows:.0f} B", "whatever its payload")
                pages, attempts = self.tables(gateway, "attempts")
                self.note("a request to an upstream", f"{pages / attempts:.0f} B", f"{rows / attempts:.0f} messages in each here")
                self.note(f"the store after {count:,} delivered", f"{size / 2**20:.1f} MiB", f"they had {count * 600 / 2**20:.0f} MiB while they were queued")

    def memory(self, count):
        with self.gateway(f"memory-{count}") as gateway:
            self.fill(gateway, count, 600)
            self.note(f"memory, {count:,} queued", f"{gateway.rss_mib():.1f} MiB", f"peak {gateway.rss_mib('VmHWM'):.1f} MiB")
            gateway.stop()
            with self.gateway(f"memory-{count}", port=gateway.port) as again:
                seconds = time.monotonic() - again.started_at
                time.sleep(5)
                self.note(f"memory, {count:,} queued, after a start", f"{again.rss_mib():.1f} MiB",
                          f"ready after {seconds:.1f} s")

    def connections(self):
        with self.gateway("connections") as gateway, contextlib.ExitStack() as opened:
            before = gateway.rss_mib()
            for _ in range(CONNECTIONS):
                connection = opened.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
                connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                connection.recv(4096)
            each = (gateway.rss_mib() - before) * 1024 / CONNECTIONS
            self.note("an open connection", f"{each:.1f} KiB", f"of {CONNECTIONS:,} that are idle, each after a request")

    def run(self):
        self.empty()
        for size in (200, 600, 4000, 4096):
            self.queued(size, 100_000 // self.part)
        self.delivered(100_000 // self.part)
        for count in (100_000, 1_000_000):
            self.memory(count // self.part)
        self.connections()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as directory:
        sizing = Sizing(binary_from(options.binary), pathlib.Path(directory), 10 if options.quick else 1)
        try:
            sizing.run()
        except Failure as failure:
            sys.exit(f"sizing: {failure}")
        print(f"\n{time.strftime('%Y-%m-%d')} · {machine(directory)}\n")
        print("| what | takes | |\n|---|---|---|")
        for row in sizing.rows:
            print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
