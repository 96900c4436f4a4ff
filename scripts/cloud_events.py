#!/usr/bin/env python3
"""Sends events to the gateway by the Python SDK of CloudEvents, in all three modes.

usage: scripts/cloud_events.py --binary FILE

Needs the package `cloudevents` 2 from PyPI; `make cloudevents` installs it below `.build`.
"""

import argparse
import datetime
import json
import tempfile

from cloudevents.core.bindings import http
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from harness import Failure, Gateway, call, free_port

PATH = "/v1/cloudevents"


def event(number, **attributes):
    attributes = {"id": f"é {number}", "source": "https://example.com/shop", "type": "samsara.event", **attributes}
    return CloudEvent(attributes, {"sourceId": "device", "eventName": f"event.{number}"})


def send(gateway, message):
    status, headers, body = call(gateway.port, "POST", PATH, message.body, message.headers)
    if status != 202:
        raise Failure(f"{status} {body.decode()}")
    return json.loads(body), headers.get("Idempotent-Replay")


def payload(gateway, message):
    return json.loads(call(gateway.port, "GET", f"/v1/messages/{message}?include=payload")[2])["payload"]


def check(condition, what):
    if not condition:
        raise Failure(what)
    print(f"  {what}")


def run(gateway):
    now = datetime.datetime.now(datetime.timezone.utc)
    first = event(1, datacontenttype="application/json", subject="customer 17 %", time=now, extra="ignored")
    structured, _ = send(gateway, http.to_structured_event(first))
    binary, replay = send(gateway, http.to_binary_event(first))
    check(structured == binary and replay == "true", "an event in structured and in binary mode is one event")
    shown = json.loads(call(gateway.port, "GET", f"/v1/messages/{structured['id']}")[2])
    check(shown["key"] == "customer 17 %", "the subject is the key")

    bare, replay = send(gateway, http.to_binary_event(event(2)))
    check(replay is None and payload(gateway, bare["id"])["eventName"] == "event.2", "data without a type is JSON")

    # The SDK has no function for batches: a batch is an array of events in the JSON format.
    events = [JSONFormat().write(event(number)) for number in (3, 2, 4)]
    batch = http.HTTPMessage({"Content-Type": "application/cloudevents-batch+json"}, b"[" + b",".join(events) + b"]")
    ids = send(gateway, batch)[0]["ids"]
    check([payload(gateway, i)["eventName"] for i in ids] == ["event.3", "event.2", "event.4"], "a batch is taken in order")
    check(ids[1] == bare["id"], "a repeated event keeps its id in a batch")
    check(send(gateway, batch) == ({"accepted": 3, "ids": ids}, "true"), "a repeated batch gets the same response")

    queued = json.loads(call(gateway.port, "GET", "/v1/upstreams/samsara")[2])["queued"]
    check(queued == 4, "4 events are queued")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        settings = {"upstreams": {"samsara": {"url": f"http://127.0.0.1:{free_port()}"}}}
        with Gateway(options.binary, directory, settings) as gateway:
            run(gateway)
    print("cloudevents: ok")


if __name__ == "__main__":
    main()
