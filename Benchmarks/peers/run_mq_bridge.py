"""mq-bridge as a durable HTTP gateway: it inserts each request into a SQLite database, and delivers it from there.

usage: run_mq_bridge.py DATABASE PORT [URL] [--defaults | --once]

Answers 202 once the row is committed. With URL, each message is posted there and deleted afterwards. Ends on SIGTERM.
"""

import argparse
import contextlib
import signal
import sqlite3

from mq_bridge import Route

BATCH = 128


def main(options):
    table = {"url": f"sqlite://{options.database}", "table": "messages", "auto_create_table": not options.once}
    with contextlib.closing(sqlite3.connect(options.database)) as connection:
        # Like the gateway's store: a write-ahead log, which SQLite syncs at each commit. The default, a rollback
        # journal, is slower.
        if not options.defaults:
            connection.execute("PRAGMA journal_mode = WAL")
        if options.once:
            connection.execute("CREATE TABLE IF NOT EXISTS messages (id TEXT PRIMARY KEY, note TEXT NOT NULL)")
            table["insert_query"] = (
                "INSERT INTO messages (id, note) VALUES (${payload:sourceId}, ${payload:note})"
                " ON CONFLICT (id) DO NOTHING")
    inbound = {
        "input": {"http": {"url": f"127.0.0.1:{options.port}", "workers": 2}},
        "output": {"sqlx": table},
    }
    outbound = {
        "input": {"sqlx": {**table, "delete_after_read": True, "polling_interval_ms": 10}},
        "output": {"http": {"url": options.url, "batch_concurrency": 16}},
    }
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    for route in [inbound, outbound] if options.url else [inbound]:
        Route.from_config({**route, "batch_size": BATCH}).start()
    signal.sigwait([signal.SIGTERM])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database")
    parser.add_argument("port", type=int)
    parser.add_argument("url", nargs="?")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--defaults", action="store_true", help="the database as SQLite creates it")
    mode.add_argument(
        "--once", action="store_true", help="one row for each `sourceId`, with the `note` of the event; without URL")
    main(parser.parse_args())
