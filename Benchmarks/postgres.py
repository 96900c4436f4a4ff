#!/usr/bin/env python3
"""Measures a store in PostgreSQL, as ratios to what pgbench does with the same rows on the same server.

usage: make bench-postgres     all figures, about an hour, writes Benchmarks/POSTGRES.md
       Benchmarks/postgres.py --quick                minutes instead; says roughly where we are
       Benchmarks/postgres.py --only ingest --rounds 7
       Benchmarks/postgres.py --only sqlite --before OTHER   whether SQLite costs what it did in another binary
"""

import argparse
import contextlib
import datetime
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))
from bench import (  # noqa: E402
    BULK, BULK_CONNECTIONS, CONNECTIONS, TOOLS, Bench, Row, compact, event, machine, padded, run, shown, table)
from harness import (  # noqa: E402
    Failure, Gateway, Postgres, Process, Simulator, binary_from, call, free_port, listens, merged, new_key, psql, until)
from instructions import activity, budget, measured  # noqa: E402
from pgbench import Baseline  # noqa: E402

# For pgbench and the gateway alike. No checkpoint begins by itself in the middle of a figure: each begins after one.
SETTINGS = ["shared_buffers=1GB", "max_wal_size=16GB", "checkpoint_timeout=1h", "max_connections=200"]
SCHEMA = "bench"
NODES = ("ash", "birch", "cedar", "dogwood")
BATCH = 50  # messages in a request, and rows in a claim
COMMIT_MS, RATE = 5, 800
BATCH_WAIT_MS = 50  # `batchMaxWaitSeconds` by default


def account_call(number, size=600):
    """A call of StreamOne, in the lane of its account."""
    call = {"command": "item", "action": "edit", "account": f"account-{number:06d}"}
    rest = size - len(compact({**call, "arguments": ""})) + 2
    return f'{compact(call)[:-1]},"arguments":{padded({"item": "vMD_9k1SmkS5"}, "title", rest)}}}'


class PostgresBench:
    def __init__(self, options, server, directory):
        self.options, self.server, self.directory = options, server, directory
        self.binary = binary_from(options.binary)
        self.rows, self.loads = [], 0
        self.seconds, self.warmup = (3, 1) if options.quick else (8, 2)
        self.rounds = options.rounds or (2 if options.quick else 5)
        self.queued = options.queued or (200_000 if options.quick else 5_000_000)
        self.key = new_key(self.binary)
        self.events = self.bodies("events", [event(number) for number in range(1024)])
        self.bulk = self.bodies("bulk", Bench.arrays(16, BULK))
        self.fill = self.bodies("fill", Bench.arrays(4, 1000))

    def bodies(self, name, lines):
        path = self.directory / f"{name}.ndjson"
        path.write_text("\n".join(lines) + "\n")
        return path

    def add(self, *arguments, **named):
        self.rows.append(row := Row(*arguments, **named))
        print("  " + " | ".join(cell for cell in row.cells() if cell), flush=True)

    # Processes

    def settings(self, name, upstreams, more=None):
        base = {
            "server": {"workerThreads": os.cpu_count(), "maxConnections": 12_000},
            "outbox": {"engine": "postgres", "postgres": {"url": self.server.url(), "schema": SCHEMA, "node": name}},
            "upstreams": upstreams,
        }
        return merged(base, more or {})

    def start(self, upstreams, name=NODES[0], more=None, **arguments):
        return Gateway(
            self.binary, self.directory / name, self.settings(name, upstreams, more), keys=self.key, **arguments)

    @contextlib.contextmanager
    def store(self):
        """An empty one. It is removed at the end, and no dirty page of it is left for what comes next."""
        psql(self.server.url(), "CHECKPOINT;")
        try:
            yield
        finally:
            psql(self.server.url(), f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CHECKPOINT;")

    @contextlib.contextmanager
    def gateways(self, upstreams, count=1, more=None):
        """So many on an empty store. The first one owns it."""
        with self.store(), contextlib.ExitStack() as running:
            nodes = []
            for name in NODES[:count]:
                nodes.append(running.enter_context(self.start(upstreams, name, more)))
                if len(nodes) == 1:
                    until(lambda: owns(nodes[0]), 30, "the first gateway owns the store")
            yield nodes

    @contextlib.contextmanager
    def receiver(self):
        """The configuration of Samsara with an upstream in C that takes everything: see bench.py."""
        port = free_port()
        with Process([TOOLS / "floor", port, 1, 100], self.directory / "floor.log") as floor:
            until(lambda: floor.check_alive() and listens(port), 10, "the receiver listens")
            yield samsara(port)

    def load(self, port, path, bodies, connections=CONNECTIONS, **options):
        self.loads += 1
        command = Bench.load_command(port, path, bodies, connections, options)
        return Process(command, self.directory / f"load-{self.loads}.log")

    def post(self, *arguments, **options):
        with self.load(*arguments, **options) as load:
            return counted(load)

    def baseline(self):
        """Made of a message that the gateway has stored."""
        psql(self.server.url(), "DROP SCHEMA IF EXISTS baseline CASCADE;")
        with self.gateways(samsara(free_port())) as [gateway]:
            self.post_one(gateway)
            return Baseline(self.server, self.directory, SCHEMA, event(1))

    @staticmethod
    def post_one(gateway):
        headers = {"Content-Type": "application/json"}
        status, _, body = call(gateway.port, "POST", "/v1/samsara/event", event(1), headers)
        if status != 202:
            raise Failure(f"{status}: {body.decode()}")

    def in_turns(self, *measures):
        """The results of each, over the rounds; every other round goes backward."""
        results = {measure: [] for measure in measures}
        for number in range(self.rounds):
            for measure in measures if number % 2 == 0 else measures[::-1]:
                results[measure].append(measure())
        return list(results.values())

    # Figures

    def ingest(self):
        """Messages a second, and the server's CPU for each, of singles and of bulk next to pgbench."""
        baseline = self.baseline()

        def watched(process, count):
            """(rows a second, microseconds of the server for each) while a load is running."""
            with process:
                time.sleep(self.warmup)
                began, cpu, first = time.monotonic(), self.server.cpu_seconds(), count()
                time.sleep(self.seconds)
                rows, cpu, seconds = count() - first, self.server.cpu_seconds() - cpu, time.monotonic() - began
                process.check_alive()
                process.child.wait(60)
            return rows / seconds, cpu * 1e6 / rows

        lasts = self.warmup + self.seconds + 1

        def plain():
            baseline.clear()
            return watched(baseline.insert(CONNECTIONS, lasts), baseline.inserted)

        def stored(bodies, connections, **options):
            with self.gateways(samsara(free_port())) as [gateway]:
                load = self.load(
                    gateway.port, "/v1/samsara/event", bodies, connections, seconds=lasts, **options)
                found = watched(load, lambda: accepted(gateway))
                counted(load)
                return found

        inserts, singles, bulk = self.in_turns(
            plain, lambda: stored(self.events, CONNECTIONS),
            lambda: stored(self.bulk, BULK_CONNECTIONS, header="Prefer: return=minimal"))
        for name, results, least, most in [("singles", singles, 2, 0.25), ("bulk", bulk, 5, None)]:
            speeds, costs = (
                [(one[part], base[part]) for one, base in zip(results, inserts)] for part in (0, 1))
            self.add(f"durable {name}, in messages", ratios(speeds), "× pgbench", limit=least, at_least=True,
                     note=against(speeds, "/s"))
            self.add(f"the server's CPU for each of them, {name}", ratios(costs), "× pgbench", limit=most,
                     note=against(costs, " µs"))

    def settle(self):
        """The server's CPU for each message from a look at the queue to its receipt."""
        baseline, count = self.baseline(), 20_000 if self.options.quick else 200_000

        def skip_locked():
            baseline.clear()
            baseline.fill(count)
            psql(self.server.url(), "ANALYZE baseline.queue; CHECKPOINT;")
            began, cpu = time.monotonic(), self.server.cpu_seconds()
            baseline.settle(count, BATCH)
            return (self.server.cpu_seconds() - cpu) * 1e6 / count, count / (time.monotonic() - began)

        def look_and_settle():
            more = {"delivery": {"batchMaxMessages": BATCH}}
            with self.receiver() as upstreams, self.gateways(upstreams, more=more) as [gateway]:
                call(gateway.port, "POST", "/v1/upstreams/samsara/pause")
                self.post(gateway.port, "/v1/samsara/event", self.fill, 4, requests=count // 1000,
                          header="Prefer: return=minimal")
                psql(self.server.url(), f"ANALYZE {SCHEMA}.queue_1; CHECKPOINT;")
                began, cpu = time.monotonic(), self.server.cpu_seconds()
                call(gateway.port, "POST", "/v1/upstreams/samsara/resume")
                until(lambda: delivered(gateway) >= count, 600, f"{count} messages are delivered", every=0.2)
                return (self.server.cpu_seconds() - cpu) * 1e6 / count, count / (time.monotonic() - began)

        plain, results = self.in_turns(skip_locked, look_and_settle)
        costs = [(one[0], base[0]) for one, base in zip(results, plain)]
        speeds = [(one[1], base[1]) for one, base in zip(results, plain)]
        self.add("the server's CPU for each message, look and settlement", ratios(costs), "× SKIP LOCKED", limit=0.7,
                 note=f"{against(costs, ' µs')}; {against(speeds, '/s')}")

    def snapshot(self):
        """What a transaction that stays open costs: the server's CPU for each message that is stored and delivered."""
        rate, lasts, last = 1000, *((10, 4) if self.options.quick else (30, 10))
        activities = self.bodies("activities", [activity(number) for number in range(1024)])

        def spent(upstreams, path, bodies, is_held):
            with self.gateways(upstreams) as [gateway], held(self.server) if is_held else contextlib.nullcontext():
                with self.load(gateway.port, path, bodies, rate=rate, seconds=lasts + 1) as load:
                    time.sleep(lasts - last)
                    cpu, first = self.server.cpu_seconds(), delivered(gateway)
                    time.sleep(last)
                    cpu, settled = self.server.cpu_seconds() - cpu, delivered(gateway) - first
                    sent = counted(load)["accepted"]
                until(lambda: delivered(gateway) >= sent, 60, "everything is delivered", every=0.2)
                if settled < 0.9 * rate * last:
                    raise Failure(f"only {settled} messages were delivered in {last} s")
                return cpu * 1e6 / settled

        with self.receiver() as upstreams, Simulator(self.binary, self.directory, keep="counts") as simulator:
            seer = {"seer": {"baseURL": simulator.url("seer"), "clientId": "bench", "clientSecret": "bench"}}
            for name, *case in [
                ("mixed lanes (Samsara)", upstreams, "/v1/samsara/event", self.events),
                ("one lane (Seer)", seer, "/v1/seer/activity", activities),
            ]:
                without, during = self.in_turns(lambda: spent(*case, False), lambda: spent(*case, True))
                costs = list(zip(during, without))
                note = f"{against(costs, ' µs')}; seconds {lasts - last} to {lasts} at {rate}/s"
                self.add(
                    f"the server's CPU for each message, {name}, a snapshot held", ratios(costs), "× none", limit=2,
                    note=note)

    def nodes(self):
        """The latency of a write at the same rate through four gateways and through one, with slow commits."""
        lasts = 5 if self.options.quick else 20

        def p50(count):
            options = {"rate": RATE / count, "seconds": lasts, "warmup": self.warmup}
            with contextlib.ExitStack() as running:
                nodes = running.enter_context(self.gateways(running.enter_context(self.receiver()), count))
                loads = [
                    self.load(node.port, "/v1/samsara/event", self.events, CONNECTIONS // count, **options)
                    for node in nodes]
                for load in loads:
                    running.enter_context(load)
                return statistics.mean(counted(load)["p50Ms"] for load in loads)

        baseline = self.baseline()
        for what, slow, limit in [("commits", self.slow_commits, 1.3), ("syncs", self.slow_syncs, None)]:
            with slow():
                first = baseline.inserted()
                with baseline.insert(1, 3) as pgbench:
                    pgbench.child.wait(60)
                bare = 3000 / (baseline.inserted() - first)
                one, four = self.in_turns(lambda: p50(1), lambda: p50(len(NODES)))
            values = list(zip(four, one))
            note = f"{against(values, ' ms')}; {RATE}/s in all, delivery going on; a bare commit {shown(bare)} ms"
            name = f"p50 of a write through four gateways, {what} of {COMMIT_MS} ms"
            self.add(name, ratios(values), "× one", limit=limit, note=note)

    @contextlib.contextmanager
    def slow_commits(self):
        """Lets each commit wait before it is written."""
        psql(self.server.url(), f"""
            ALTER SYSTEM SET commit_delay = {COMMIT_MS * 1000}; ALTER SYSTEM SET commit_siblings = 0;
            SELECT pg_reload_conf();""")
        try:
            yield
        finally:
            psql(self.server.url(), "ALTER SYSTEM RESET ALL; SELECT pg_reload_conf();")

    @contextlib.contextmanager
    def slow_syncs(self):
        """Lets each sync of the server take as long at least: see syncs.c."""
        library = shutil.copy(TOOLS / "syncs.so", self.server.folder)  # Its user can read it there.
        self.restart({"LD_PRELOAD": str(library), "SYNC_US": str(COMMIT_MS * 1000)})
        try:
            yield
        finally:
            self.restart()

    def restart(self, environment=None):
        self.server.child.send_signal(signal.SIGINT)
        self.server.child.wait(60)
        self.server.start(environment)

    def across(self):
        """From the acceptance at one gateway to the delivery by another one."""
        rate, seconds = 200, 10 if self.options.quick else 60
        with self.receiver() as upstreams, self.gateways(upstreams, 2) as [owner, other]:
            self.post(other.port, "/v1/samsara/event", self.events, rate=rate, seconds=5)
            result = self.post(other.port, "/v1/samsara/event", self.events, rate=rate, seconds=seconds)
            sent = rate * 5 + result["accepted"]
            until(lambda: delivered(owner) >= sent, 60, "everything is delivered", every=0.2)
            if delivered(other):
                raise Failure("the gateway that accepts has delivered messages itself")
            found = psql(self.server.url(), f"""
                SELECT settledAtMs - acceptedAtMs FROM {SCHEMA}.delivered_1 ORDER BY id OFFSET {rate * 5};""")
        delays = sorted(int(delay) for delay in found.split())
        p50, p99 = (delays[len(delays) * percent // 100] for percent in (50, 99))
        self.add(f"accepted by one gateway to delivered by another, p99 at {rate} messages/s", [p99], "ms",
                 limit=BATCH_WAIT_MS + 100, note=f"p50 {p50} ms, max {delays[-1]} ms, {shown(len(delays))} messages")

    def idle(self):
        seconds = 10 if self.options.quick else 60
        with self.receiver() as upstreams, self.gateways(upstreams, len(NODES)) as nodes:
            for node in nodes:
                self.post_one(node)
            time.sleep(5)
            subjects = [*nodes, self.server]
            before = [subject.cpu_seconds() for subject in subjects]
            time.sleep(seconds)
            owner, *others, server = (
                (subject.cpu_seconds() - cpu) / seconds * 100 for subject, cpu in zip(subjects, before))
        unit, note = "% of a core", f"{len(nodes)} gateways"
        self.add("CPU when idle, the gateway that owns the store", [owner], unit, limit=0.5, note=f"over {seconds} s")
        self.add("CPU when idle, another gateway", others, unit, limit=0.5)
        server /= len(nodes)
        self.add("CPU of the server when all are idle, for each gateway", [server], unit, limit=1, note=note)

    def millions(self):
        """How long a start takes with millions of messages queued, without lanes and with a row for each lane."""
        lanes, copies = self.queued // 50, 50
        calls = [account_call(number) for number in range(lanes)]
        bodies = self.bodies("calls", ["[" + ",".join(calls[at : at + 1000]) + "]" for at in range(0, lanes, 1000)])
        dead = f"http://127.0.0.1:{free_port()}"
        streamone = {"streamone": {"apiUrl": dead, "id": "9yC-4pQxT_2a", "psk": "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu"}}
        for name, upstreams, path, bodies, connections, copies, limit in [
            ("without lanes", samsara(free_port()), "/v1/samsara/event", self.fill, 8, 1, 1),
            (f"in {shown(lanes)} lanes", streamone, "/v1/streamone/call", bodies, 1, copies, 5),
        ]:
            with self.store():
                with self.start(upstreams) as gateway:
                    self.post(gateway.port, path, bodies, connections, requests=self.queued // copies // 1000,
                              seconds=3000, header="Prefer: return=minimal")
                if copies > 1:
                    self.multiply(copies)
                psql(self.server.url(), f"ANALYZE {SCHEMA}.queue_1; CHECKPOINT;")
                starts = {"SIGTERM": [], "SIGKILL": []}
                for ended in list(starts) * self.rounds:  # How the run before was ended.
                    with self.start(upstreams, wait=False) as gateway:
                        until(lambda: owns(gateway) and gateway.is_ready(), 120, f"a start {name}", every=0.005)
                        starts[ended].append(time.monotonic() - gateway.started_at)
                        [upstream] = upstreams
                        if gateway.upstream(upstream)["counts"]["queued"] < self.queued:
                            raise Failure("not all messages are queued")
                        if ended == "SIGTERM":
                            gateway.kill()
            note = "until it is ready and owns the store"
            self.add(f"start with {shown(self.queued)} queued {name}", starts["SIGTERM"], "s", limit=limit, note=note)
            note = "the lease of 10 s included"
            self.add(f"the same after SIGKILL, {name}", starts["SIGKILL"], "s", note=note)

    def multiply(self, copies):
        """Copies each queued message to earlier ids of the same lane, and counts them."""
        columns = "kind, lane, acceptedAtMs, checksum, payload, laneName, laneGroup"
        counts = ", ".join(f"{name} = {name} * {copies}" for name in ("accepted", "queued", "queuedBytes"))
        psql(self.server.url(), f"""
            SET search_path = {SCHEMA};
            CREATE TEMP TABLE spans AS SELECT max(id) - min(id) + 256 AS span FROM queue_1;
            INSERT INTO queue_1 (id, {columns})
              SELECT id - copy * span, {columns} FROM queue_1, spans, generate_series(1, {copies - 1}) AS copy;
            UPDATE upstreams SET {counts};""")

    def sqlite(self):
        """Whether a store in a file still costs what it did."""
        names = ["single, store only", "bulk, store only"]
        before = dict(measured(self.options.before, names)) if self.options.before else budget()
        against = "the other binary" if self.options.before else "BUDGET.md"
        for name, count in measured(self.binary, names):
            self.add(f"SQLite: instructions for each message, {name}", [count / before[name]], "× before", limit=1.01,
                     note=f"{shown(count)} against {shown(before[name])} ({against})")


def samsara(port):
    """The configuration of an upstream on that port; nothing may listen there."""
    return {"samsara": {"url": f"http://127.0.0.1:{port}", "compression": "none"}}


def counted(load):
    """What the load generator has counted, once it has ended. A request that was refused is a failure."""
    load.child.wait(3600)
    return Bench.load_result(load.log.read_text(), "")


def owns(gateway):
    """Whether this gateway works on the queues. While it opens the store as their owner, it answers as any other."""
    try:
        return total(gateway, "postern_queue_moves_total") > 0
    except OSError:
        return False


def accepted(gateway):
    """How many messages this process has accepted."""
    return total(gateway, "postern_messages_accepted_total")


def delivered(gateway):
    return total(gateway, "postern_messages_settled_total", 'state="delivered"')


def total(gateway, metric, label=""):
    return sum(value for name, value in gateway.metrics().items() if name.startswith(metric) and label in name)


@contextlib.contextmanager
def held(server):
    """A transaction with a snapshot stays open, as that of a report or a dump."""
    command = ["psql", server.url(), "-X", "-q"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as session:
        session.stdin.write("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;\n")
        session.stdin.flush()
        question = """
            SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND backend_xmin IS NOT NULL;"""
        until(lambda: psql(server.url(), question).strip() == "1", 10, "the snapshot is held")
        try:
            yield
        finally:
            session.stdin.close()


def ratios(pairs):
    return [one / base for one, base in pairs]


def against(pairs, unit):
    one, base = (shown(statistics.median(values)) for values in zip(*pairs))
    return f"{one}{unit} against {base}{unit}"


FIGURES = {
    "ingest": PostgresBench.ingest,
    "settle": PostgresBench.settle,
    "snapshot": PostgresBench.snapshot,
    "nodes": PostgresBench.nodes,
    "across": PostgresBench.across,
    "idle": PostgresBench.idle,
    "millions": PostgresBench.millions,
    "sqlite": PostgresBench.sqlite,
}


# ---- Report

METHOD = f"""\
Load generators, pgbench, gateways, and server share the cores of one machine, so only ratios mean something elsewhere.
Each ratio is the median over rounds of both, measured one right after the other; every other round goes backward. A
gateway begins on an empty schema, after a checkpoint, and requires an API key. **CPU of the server** is user and system
time of all its processes. A run with one refused or broken request does not count: it fails.

* **pgbench** inserts the row that the gateway stores for the same event of 600 bytes, into a table with the columns and
  indexes of its queue: a prepared statement with parameters, in a transaction of its own, on {CONNECTIONS} connections
  and 2 threads.
* **Singles, bulk**: `load/load.c`, {CONNECTIONS} connections with an event for each request, {BULK_CONNECTIONS} with
  {BULK}. Each sends its next request when it has the response to the last one; nothing listens at the upstream. Rows
  and CPU are counted over the steady time, by the metrics of the gateway and by the sequence of pgbench's table.
* **Look and settlement**: the events are stored while the upstream is paused; then a receiver in C takes them, {BATCH}
  in a request. Counted is all that the server does from the resumption until all have receipts. **SKIP LOCKED**:
  {Baseline.WORKERS} connections of pgbench each claim {BATCH} rows at a time by an `UPDATE` that says until when, which
  returns ids and payloads; a second transaction removes the rows and inserts the receipts. It keeps no order of lanes,
  no attempts, and no books.
* **A snapshot held**: a transaction that has read something stays open from before the first message, while messages
  are stored and delivered; next to the same without it. What it costs grows with the time.
* **Four gateways**: the same rate in all, through one or evenly through four, delivery going on; p50 is the mean of
  that of each. One gateway owns all queues and delivers. Commits of {COMMIT_MS} ms: with `commit_delay` and
  `commit_siblings = 0`, a commit waits before it is written, together with those that arrive meanwhile. Syncs of
  {COMMIT_MS} ms: `syncs/syncs.c`, preloaded into the server, as a slow disk, which does one sync after the other.
* **Accepted by one, delivered by another**: `load/load.c` at a fixed rate to the gateway that does not own the store,
  default delivery settings. The times are those of the receipts.
* **Idle**: {len(NODES)} gateways with the same upstream, 5 s after the last message. What the server does by itself is
  part of its CPU.
* **Start**: from creating the process until the gateway works on all queues and `/readyz` is 200, asked every 5 ms; the
  upstreams refuse connections. The store was filled through the API; of those in lanes (calls of StreamOne), one for
  each lane was, and a statement has copied them.
* **SQLite**: instructions for each message under callgrind, see [BUDGET.md](BUDGET.md).
"""


def report(bench, started):
    version = psql(bench.server.url(), "SHOW server_version;").strip()
    rows = sorted(bench.rows, key=lambda row: not row.unit.startswith("×"))
    return f"""\
# A store in PostgreSQL: benchmark results

{started:%Y-%m-%d %H:%M} UTC · {machine(bench.server.folder)} · {bench.rounds} rounds of {bench.seconds} s ·
`make bench-postgres` writes this page.

PostgreSQL {version}, {", ".join(f"`{setting}`" for setting in SETTINGS)}, the rest by default: `fsync`,
`synchronous_commit`, `full_page_writes`, and autovacuum are on. pgbench and the gateways use the same server in turns,
by its socket.

{table(rows)}

## Method

{METHOD}"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="gateway to measure (default $POSTERN_BINARY or .build/release/postern)")
    parser.add_argument("--before", help="for sqlite: the binary to compare with (default: the figures of BUDGET.md)")
    parser.add_argument("--data", default="/var/tmp", help="where the server's folder goes: a real disk")
    parser.add_argument("--only", action="append", choices=FIGURES, help="one of the figures; may be repeated")
    parser.add_argument("--quick", action="store_true", help="short runs, a small backlog")
    parser.add_argument("--rounds", type=int, help="default 5, quick 2")
    parser.add_argument("--queued", type=int, help="messages in the full store (default 5 million, quick 200 000)")
    parser.add_argument("--output", help="write the report there (default POSTGRES.md for a full run)")
    return parser.parse_args()


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that `with` blocks end what they started.
    started = datetime.datetime.now(datetime.timezone.utc)
    with Postgres(SETTINGS, parent=options.data) as server, tempfile.TemporaryDirectory() as directory:
        bench = PostgresBench(options, server, pathlib.Path(directory))
        failures = run(bench, FIGURES, server.folder)
        output = options.output or (HERE / "POSTGRES.md" if not (options.only or options.quick) else None)
        if output and bench.rows:
            pathlib.Path(output).write_text(report(bench, started))
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"bench-postgres: {failure}")
