#!/usr/bin/env python3
"""Compares the gateway with mq-bridge, the fastest peer that answers after a commit and can be installed from PyPI.

usage: make bench-peers     writes the first section of Benchmarks/PEERS.md, about ten minutes
       Benchmarks/peers.py --quick

One event of 600 bytes for each request, 64 connections, in turns with a bare libmicrohttpd server, as in bench.py. Both deliver to
such a server: the gateway as upstream of type webhook, one request for each message, so that both do the same.
"""

import contextlib
import datetime
import pathlib
import re
import shutil
import signal
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))
from bench import Bench, Failure, Subject, arguments, event, machine, shown, versus  # noqa: E402
from harness import Process, free_port, listens, until  # noqa: E402

PATH = "/v1/hook/event"


def subject(batch):
    return Subject("hook", "event", event, "url", type="webhook", kinds={"event": {"path": "/"}}, **batch)


ONE_BY_ONE, BATCHED = subject({"batch": "none"}), subject({"batch": "ndjson"})


class Peers(Bench):
    @contextlib.contextmanager
    def peer(self, url=None):
        self.stores += 1
        directory = self.directory / f"peer-{self.stores}"
        directory.mkdir()
        port = free_port()
        command = [sys.executable, HERE / "peers/run_mq_bridge.py", directory / "messages.db", port, *([url] if url else [])]
        with Process(command, directory / "log") as process:
            until(lambda: process.check_alive() and listens(port), 30, "mq-bridge listens")
            process.port = port
            yield process
        self.remove(directory)

    def figures(self):
        self.lines = ["| who | what | × floor | requests/s | p99 in ms |", "|---|---|---|---|---|"]
        self.compare("stores, without delivering", lambda: contextlib.nullcontext(), {"gateway": ONE_BY_ONE})
        self.compare(
            "stores and delivers", self.floor, {"gateway": ONE_BY_ONE, "gateway, delivering NDJSON": BATCHED})

    def compare(self, what, sink, subjects):
        """Each in turn with the floor, and all of them in each round."""

        def gateway(subject):
            with sink() as upstream:
                url = f"http://127.0.0.1:{upstream.port}" if upstream else self.dead_url()
                with self.gateway(url, subject) as gateway:
                    return measured(gateway.port)

        def peer():
            with sink() as upstream, self.peer(f"http://127.0.0.1:{upstream.port}" if upstream else None) as peer:
                return measured(peer.port)

        def measured(port):
            result = self.wrk(port, PATH, self.events)
            return result["perSecond"], result["p99Ms"]

        runs = {name: (lambda each=each: gateway(each)) for name, each in subjects.items()}
        runs["mq-bridge"] = peer
        results = {name: [] for name in runs}
        for number in range(self.rounds):
            order = list(runs)
            for name in order[number % len(order):] + order[: number % len(order)]:
                floor = self.floor_speed(self.events)
                speed, p99 = runs[name]()
                results[name].append((speed / floor, speed, floor, p99))
        for name, rows in results.items():
            ratios, speeds, floors, p99 = zip(*rows)
            self.add(f"{name}: {what}", list(ratios), "× floor", note=versus(speeds, floors))
            self.lines.append(
                f"| {name} | {what} | {spread(ratios)} | {spread(speeds)} | {spread(p99)} |")


def spread(values):
    return f"{shown(statistics.median(values))} ({shown(min(values))}–{shown(max(values))})"


METHOD = """\
The load is wrk with 64 connections; each request has one event of 600 bytes, and each response comes after a commit that is synced to the disk. The
**floor** is a bare libmicrohttpd server on the same cores, which also receives what is delivered. Each ratio is the median over rounds of *subject ÷
floor*, measured one right after the other, with an empty store each. What arrived at the upstream is not part of the figure: mq-bridge leaves messages in
its database when it receives faster than it delivers, the gateway does so as well.

* **mq-bridge** (PyPI, `peers/run_mq_bridge.py`): a route from HTTP to SQLite with a write-ahead log and `synchronous=FULL`, SQLite's default, and one from there to
  HTTP. It validates nothing, keeps no order, and has no record of what was delivered.
* **gateway**: requires an API key, checks that the payload is JSON, keeps a receipt of each delivered message.
* **Fluent Bit** is in neither Debian 12 nor PyPI, so it is not measured here. `peers/fluent-bit.yaml` is a configuration of it for the same task. It does
  not count as durable: its documentation does not say that a response waits until the record is synced, not even with `storage.sync: full`.
"""


SECTIONS = {"speed": "Speed", "losses": "Losses"}


def replace_section(page, name, text):
    """Writes one of the sections of PEERS.md, and leaves the other one as it is."""
    former = page.read_text() if page.exists() else ""
    parts = ["# Comparison with peers"]
    for each, title in SECTIONS.items():
        begin, end = f"<!-- begin of {each}, made by a benchmark -->", f"<!-- end of {each} -->"
        kept = re.search(f"{re.escape(begin)}\n(.*?)\n{re.escape(end)}", former, re.DOTALL)
        content = text.strip() if each == name else kept and kept[1]
        if content:
            parts.append(f"## {title}\n\n{begin}\n{content}\n{end}")
    page.write_text("\n\n".join(parts) + "\n")


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = datetime.datetime.now(datetime.timezone.utc)
    bench = Peers(options)
    print(machine(bench.directory), flush=True)
    bench.figures()
    lines = [
        f"{started:%Y-%m-%d %H:%M} UTC · {machine(bench.directory)} · {bench.rounds} rounds of {bench.seconds} s"
        " · `make bench-peers` writes this section.", "",
        "Medians, with the least and the greatest.", "", *bench.lines, "", METHOD,
    ]
    output = options.output or (None if options.quick else HERE / "PEERS.md")
    if output:
        replace_section(pathlib.Path(output), "speed", "\n".join(lines))
    shutil.rmtree(bench.directory, ignore_errors=True)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"peers: {failure}")
