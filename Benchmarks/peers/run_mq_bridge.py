"""mq-bridge as a durable HTTP gateway: it inserts each request into a SQLite database, and delivers it from there.

usage: run_mq_bridge.py DATABASE PORT [URL]

Answers 202 once the row is committed. With URL, each message is posted there and deleted afterwards. Ends on SIGTERM.
"""

import contextlib
import signal
import sqlite3
import sys

from mq_bridge import Route

BATCH = 128


def main(database, port, url=None):
    # Like the gateway's store: a write-ahead log, which SQLite syncs at each commit. The default, a rollback journal, is slower.
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    table = {"url": f"sqlite://{database}", "table": "messages", "auto_create_table": True}
    inbound = {"input": {"http": {"url": f"127.0.0.1:{port}", "workers": 2}}, "output": {"sqlx": table}}
    outbound = {
        "input": {"sqlx": {**table, "delete_after_read": True, "polling_interval_ms": 10}},
        "output": {"http": {"url": url, "batch_concurrency": 16}},
    }
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    for route in [inbound, outbound] if url else [inbound]:
        Route.from_config({**route, "batch_size": BATCH}).start()
    signal.sigwait([signal.SIGTERM])


if __name__ == "__main__":
    main(*sys.argv[1:])
