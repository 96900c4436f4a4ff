"""What a plain table does on the server that also has the store: the baseline of postgres.py.

pgbench, which comes with the server, inserts rows like those of a queue, one in each transaction, or claims and settles
them as queues in a table usually do, with `FOR UPDATE SKIP LOCKED`.
"""

import pathlib
import subprocess

from harness import LONGEST_WAIT, Failure, Process, psql

NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

# The values are parameters, as for any client.
INSERT = """\
INSERT INTO baseline.queue (id, kind, lane, acceptedAtMs, checksum, payload)
VALUES (nextval('baseline.ids'), :kind, :lane, :acceptedAtMs, :checksum, :payload);
"""

# A claim is committed before anything is sent, so that other workers pass it, and expires. What is claimed is returned,
# the ids as the parameter of the second transaction. That one removes the rows, and leaves receipts as the gateway does.
SETTLE = f"""\
WITH next AS MATERIALIZED (
  SELECT id FROM baseline.queue WHERE claimedUntilMs IS NULL OR claimedUntilMs < {NOW}
  ORDER BY id LIMIT :batch FOR UPDATE SKIP LOCKED
), claimed AS (
  UPDATE baseline.queue SET claimedUntilMs = {NOW} + 60000 FROM next WHERE queue.id = next.id
  RETURNING queue.id, payload
)
SELECT array_agg(id) AS ids, convert_from(string_agg(payload, ''), 'UTF8') AS payloads FROM claimed \\gset
WITH gone AS (DELETE FROM baseline.queue WHERE id = ANY (:ids) RETURNING id, kind, acceptedAtMs, attempts, key)
INSERT INTO baseline.delivered (id, kind, acceptedAtMs, settledAtMs, attempts, key)
SELECT id, kind, acceptedAtMs, {NOW}, attempts + 1, key FROM gone;
"""


class Baseline:
    """Tables like those of a queue and its receipts, and the row that the gateway has stored for an event."""

    WORKERS = 4  # as many as the gateway has requests in flight

    def __init__(self, server, directory, schema, payload):
        """`schema` has the store of a gateway with one upstream, in whose queue there is one message."""
        self.server, self.url, self.directory = server, server.url(), pathlib.Path(directory)
        columns = ("kind", "lane", "acceptedAtMs", "checksum")
        row = psql(self.url, f"SELECT {', '.join(columns)} FROM {schema}.queue_1;").strip()
        if row.count("|") != len(columns) - 1 or "\n" in row:
            raise Failure(f"not one message in {schema}.queue_1: {row}")
        self.values = {**dict(zip(columns, row.split("|"))), "payload": payload}
        psql(self.url, f"""
            CREATE SCHEMA baseline;
            CREATE SEQUENCE baseline.ids;
            CREATE TABLE baseline.queue (LIKE {schema}.queue_1 INCLUDING ALL);
            ALTER TABLE baseline.queue ADD COLUMN claimedUntilMs BIGINT;
            CREATE TABLE baseline.delivered (LIKE {schema}.delivered_1 INCLUDING ALL);""")

    def clear(self):
        psql(self.url, "TRUNCATE baseline.queue, baseline.delivered; CHECKPOINT;")

    def count(self, table="queue"):
        return int(psql(self.url, f"SELECT count(*) FROM baseline.{table};"))

    def inserted(self):
        """How many rows were inserted, without looking at them."""
        return int(psql(self.url, "SELECT last_value FROM baseline.ids;"))

    def insert(self, connections, seconds):
        """pgbench that inserts rows for so long, as fast as commits come."""
        return Process(self.command(INSERT, connections, "-T", seconds, **self.values), self.directory / "pgbench.log")

    def fill(self, count):
        """Stores so many rows at once."""
        *numbers, payload = self.values.values()
        psql(self.url, f"""
            INSERT INTO baseline.queue (id, kind, lane, acceptedAtMs, checksum, payload)
            SELECT nextval('baseline.ids'), {', '.join(numbers)}, convert_to($payload${payload}$payload$, 'UTF8')
            FROM generate_series(1, {count});""")

    def settle(self, count, batch):
        """Claims and settles so many rows, in batches, with some workers."""
        turns = -(-count // batch // self.WORKERS)
        command = self.command(SETTLE, self.WORKERS, "-t", turns, batch=batch)
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_WAIT)
        if done.returncode:
            raise Failure(f"pgbench: {done.stdout}{done.stderr}")
        if (settled := self.count("delivered")) != count:
            raise Failure(f"pgbench settled {settled} of {count} rows")

    def command(self, script, connections, *options, **values):
        file = self.directory / "pgbench.sql"
        file.write_text(script)
        command = [self.server.programs / "pgbench", "--no-vacuum", "-M", "prepared", "-f", file]
        command += ["-c", connections, "-j", min(connections, 2), *options]
        for name, value in values.items():
            command += ["-D", f"{name}={value}"]
        return [str(part) for part in (*command, self.url)]
