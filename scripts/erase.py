#!/usr/bin/env python3
"""Kills the gateway at random moments of an erasure, repeats it, and looks for what is left in the files of the store.

usage: make erase KILLS=200        or scripts/erase.py --kills 200 [--seed N]

In each round messages of a new person and of another one are accepted, alone and in bulk, with an Idempotency-Key and without.
Some are delivered, with callbacks that hold the payload, and some are queued. Then the person is erased, the gateway is killed
at a random moment of that, started again, and the request is repeated until it is answered 200:

  * no file of the store has the person's name, in payload, key, or response;
  * the messages of the other person are all there, with their payloads as far as those are kept;
  * `postern outbox audit` balances, and `postern outbox verify` finds nothing.

Exit code 1, with what is wrong and where the store is kept, when any of it does not hold.
"""

import argparse
import http.client
import json
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import Failure, Gateway, Simulator, binary_from, call, free_port, until  # noqa: E402

OTHER = "stays-forever"


class Campaign:
    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        self.binary = binary_from(options.binary)
        self.random = random.Random(options.seed)
        self.port = free_port()
        self.others = 0
        self.longest = 0.2  # seconds that an erasure took
        self.unanswered = 0

    def gateway(self, simulator):
        kinds = {"event": {}}
        settings = {
            "delivery": {"retryBaseSeconds": 0.05, "retryMaxSeconds": 0.5, "requestTimeoutSeconds": 5},
            "upstreams": {
                "live": {"type": "webhook", "url": simulator.url("webhook"), "kinds": kinds},
                "dead": {"type": "webhook", "url": "http://127.0.0.1:9", "kinds": kinds},
                "hook": {"type": "webhook", "url": simulator.url("webhook"), "kinds": {"settled": {}}},
            },
            "callbacks": [{"upstream": "hook", "kind": "settled", "upstreams": ["live"], "includePayload": True}],
        }
        return Gateway(self.binary, self.directory, settings, self.port)

    def post(self, upstream, names, key=None):
        def envelope(name):
            padding = "x" * self.random.choice([0, 100, 5000, 30_000])
            payload = {"user": {"id": name}, "text": padding}
            return {"upstream": upstream, "kind": "event", "key": name, "payload": payload}

        headers = {"Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = f'"{key}"'
        body = json.dumps([envelope(name) for name in names])
        status, _, answer = call(self.port, "POST", "/v1/messages", body, headers)
        if status != 202:
            raise Failure(f"{status} for messages of {names}: {answer.decode()}")
        self.others += names.count(OTHER)

    def erase(self, body):
        """The response: (status, text). None if there was none."""
        try:
            status, _, answer = call(
                self.port, "POST", "/v1/messages/erase", json.dumps(body), {"Content-Type": "application/json"})
            return status, answer.decode()
        except (OSError, http.client.HTTPException):
            return None

    def round(self, number, simulator, gateway):
        person = f"person-{self.options.seed}-{number}-x"
        # Of what is delivered no payload is kept, so a value in it does not find it.
        by_value = self.random.random() < 0.3
        if not by_value:
            self.post("live", [person])
        for upstream in ("dead",) if by_value else ("live", "dead"):
            self.post(upstream, [person, OTHER, OTHER, OTHER, OTHER], f"{person}-{upstream}")
            self.post(upstream, [OTHER, person], f"{OTHER}-{number}-{upstream}" if self.random.random() < 0.5 else None)
        body = {"pointer": "/user/id", "value": person} if by_value else {"key": person}
        if self.random.random() < 0.5:
            time.sleep(self.random.random() * 0.1)
        answers = []
        request = threading.Thread(target=lambda: answers.append(self.erase(body)))
        request.start()
        time.sleep(self.random.random() * self.longest * 1.1)
        gateway.kill()
        request.join()
        self.unanswered += answers == [None]
        gateway = self.gateway(simulator)
        started = time.monotonic()
        until(lambda: (self.erase(body) or (0,))[0] == 200, 90, f"{person} is erased")
        self.longest = max(self.longest, time.monotonic() - started)
        self.check(person)
        return gateway

    def check(self, person):
        for file in self.directory.glob("postern.sqlite*"):
            if person.encode() in file.read_bytes():
                raise Failure(f"{person} is still in {file}")
        status, _, text = call(self.port, "GET", f"/v1/messages?key={person}")
        if status != 200 or json.loads(text)["messages"]:
            raise Failure(f"{person} is still listed: {text.decode()}")

    def run(self):
        with Simulator(self.binary, self.directory) as simulator:
            gateway = self.gateway(simulator)
            try:
                for number in range(self.options.kills):
                    gateway = self.round(number, simulator, gateway)
                    print(f"\r{number + 1} kills, {self.unanswered} of them before the answer", end="", flush=True)
                print()
                self.end(gateway)
            finally:
                gateway.stop()

    def end(self, gateway):
        code, audit = gateway.outbox("audit")
        if code:
            raise Failure(f"the books do not balance: {audit}")
        count, cursor = 0, ""
        while cursor is not None:
            page = json.loads(call(self.port, "GET", f"/v1/messages?key={OTHER}&limit=1000{cursor}")[2])
            count += len(page["messages"])
            cursor = f"&cursor={page['next']}" if page["next"] else None
        if count != self.others:
            raise Failure(f"{self.others} messages of others were accepted, {count} are there")
        code, found = gateway.outbox("verify")
        if code:
            raise Failure(f"the store is damaged: {found}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="postern-erase-"))
    try:
        Campaign(options, directory).run()
    except Failure as failure:
        sys.exit(f"\n{failure}\nThe store is kept in {directory}")
    shutil.rmtree(directory)
    print("Nothing is left of those who were erased, and everything of the others.")


if __name__ == "__main__":
    main()
