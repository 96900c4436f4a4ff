#!/usr/bin/env python3
"""Listens to the gateway by a client of Server-Sent Events: every type of event, filters, coming back, gaps, the end.

usage: scripts/event_stream.py --binary FILE

Needs the package `httpx-sse` from PyPI; `make stream` installs it below `.build`.
"""

import argparse
import contextlib
import json
import signal
import tempfile

import httpx
import httpx_sse

from harness import Failure, Gateway, Simulator, call


def check(condition, what):
    if not condition:
        raise Failure(what)
    print(f"  {what}")


@contextlib.contextmanager
def listening(gateway, last=None, **filters):
    """The events from now on, without those that carry nothing: this client passes on comments as such."""
    headers = {"Authorization": f"Bearer {gateway.key}", **({"Last-Event-ID": last} if last else {})}
    with httpx.Client(timeout=20, headers=headers) as client:
        url = f"http://127.0.0.1:{gateway.port}/v1/stream"
        with httpx_sse.connect_sse(client, "GET", url, params=filters) as source:
            yield (event for event in source.iter_sse() if event.data)


def until(events, kind):
    for event in events:
        if event.event == kind:
            return event, json.loads(event.data)
    raise Failure(f"the stream ended before {kind}")


def send(gateway, path="/v1/samsara/event", count=1):
    body = json.dumps([{"sourceId": "device", "eventName": f"event.{number}"} for number in range(count)])
    status, _, answer = call(gateway.port, "POST", path, body, {"Content-Type": "application/json"})
    if status != 202:
        raise Failure(f"{status} {answer.decode()}")
    return json.loads(answer)["ids"]


def post(gateway, path):
    status, _, answer = call(gateway.port, "POST", path)
    if status >= 300:
        raise Failure(f"{path}: {status} {answer.decode()}")


def outage(gateway, simulator):
    with listening(gateway, upstream="samsara") as events:
        simulator.play("status=503")
        ids = send(gateway)
        # Two retries within a round are one event, with the id twice.
        check(set(until(events, "message.retrying")[1]["ids"]) == set(ids), "message.retrying")
        until(events, "upstream.down")
        simulator.play("")
        post(gateway, "/v1/upstreams/samsara/flush")
        until(events, "upstream.up")
        check(until(events, "message.delivered")[1]["ids"] == ids, "upstream.down, upstream.up, and then message.delivered")
        check(until(events, "flush.finished")[1]["ids"] == [], "flush.finished")


def run(gateway, simulator):
    with listening(gateway) as events, listening(gateway, type=["message.delivered", "message.failed"]) as filtered:
        ids = send(gateway, count=3)
        first, data = until(events, "message.queued")
        check(data == {"upstream": "samsara", "ids": ids, "count": 3}, "message.queued, for all messages of a request")
        data = until(events, "batch.sent")[1]
        check(data["ids"] == ids and data["requests"] == 1, "batch.sent")
        check(until(events, "message.delivered")[1]["ids"] == ids, "message.delivered")
        event = next(filtered)
        check(event.event == "message.delivered" and json.loads(event.data)["ids"] == ids, "a filter by type")
    with listening(gateway, last=first.id) as events:
        check(until(events, "message.delivered")[1]["ids"] == ids, "Last-Event-ID resumes")
    with listening(gateway, last="1-1") as events:
        check(next(events).event == "gap", "an unknown id gets a gap")
    outage(gateway, simulator)
    with listening(gateway) as events:
        send(gateway)
        until(events, "message.delivered")
        gateway.child.send_signal(signal.SIGTERM)
        check(list(events) == [] and gateway.stop() == 0, "the stream ends in an orderly way with the gateway")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Simulator(options.binary, directory) as simulator:
        settings = {
            "upstreams": {"samsara": {"url": simulator.url()}},
            "delivery": {"retryBaseSeconds": 0.05, "retryMaxSeconds": 0.2},
        }
        with Gateway(options.binary, directory, settings) as gateway:
            run(gateway, simulator)
    print("stream: ok")


if __name__ == "__main__":
    main()
