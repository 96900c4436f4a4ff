#!/usr/bin/env python3
"""Counts the instructions that the gateway executes for each accepted message, under callgrind.

usage: make bench-check                         fails if a message, store only, costs 5 % more than in BUDGET.md
       Benchmarks/instructions.py               prints the figures

Instructions in the kernel are not counted. What is counted hardly depends on the machine or on what else it does, so a
change of a few percent is a change of the program.
"""

import argparse
import base64
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))
from bench import BULK, Bench, event, padded  # noqa: E402
from harness import Failure, Gateway, Simulator, binary_from, call, until  # noqa: E402

BUDGET = HERE / "BUDGET.md"
GROWTH = 0.05
# One after the other, so that how many messages a commit takes does not depend on the speed of the disk.
CONNECTIONS = 1


class Case:
    """So many requests with so many messages each.

    part: What its requests are: single, bulk, an array of one event, or an activity.
    """

    def __init__(self, name, part, requests, delivers, path="/v1/samsara/event"):
        self.name, self.part, self.requests, self.delivers, self.path = name, part, requests, delivers, path
        self.messages = BULK if part == "bulk" else 1

    @property
    def upstream(self):
        return "seer" if self.part == "activity" else "samsara"


CASES = [
    Case("single, store only", "single", 4000, False),
    Case("single, delivering", "single", 4000, True),
    Case("bulk, store only", "bulk", 200, False),
    Case("bulk, delivering", "bulk", 200, True),
    Case("array of one event", "array", 4000, False),
    Case("the same, Samsara's SDK", "array", 4000, False, "/sdk/samsara/v1/events"),
    Case("bulk, Samsara's SDK", "bulk", 200, False, "/sdk/samsara/v1/events"),
    Case("activity", "activity", 4000, False, "/v1/seer/activity"),
    Case("the same, Seer's SDK", "activity", 4000, False, "/sdk/seer/sactivity"),
]


def activity(number, size=600):
    return padded({
        "actor": {"id": f"learner-{number:06d}"}, "verb": "viewed", "object": {"id": f"page-{number % 40}", "objectType": "page"},
        "generator": {"appId": "bench"}, "published": "2026-11-21T05:58:26.000Z"}, "note", size)


# The same messages through the gateway's own API, of which those of an SDK may cost a tenth more.
OWN = {
    "the same, Samsara's SDK": "array of one event",
    "bulk, Samsara's SDK": "bulk, store only",
    "the same, Seer's SDK": "activity",
}


class Counter:
    """A gateway under callgrind, which counts while it is told to."""

    def __init__(self, case, binary, directory, simulator):
        self.case, self.directory, self.simulator = case, directory, simulator
        settings = {"server": {"workerThreads": 2}, "upstreams": {"samsara": {"url": simulator.url(), "compression": "none"}}}
        # Only where they are asked: without them, nothing may cost more.
        if case.path.startswith("/sdk/samsara"):
            settings["upstreams"]["samsara"]["sdk"] = {"enabled": True}
        if case.upstream == "seer":
            settings["upstreams"]["seer"] = {
                "baseURL": simulator.url("seer"), "clientId": "app", "clientSecret": "secret",
                "sdk": {"enabled": case.path.startswith("/sdk/")}}
        prefix = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/counts"]
        # Seer's SDK has a token in the place of a key.
        has_keys = not case.path.startswith("/sdk/seer")
        self.gateway = Gateway(binary, directory, settings, wait=False, prefix=prefix, keys=has_keys)

    def __enter__(self):
        try:
            self.gateway.wait_ready(120, every=0.1)
        except Failure:
            self.gateway.kill()
            raise
        if not self.case.delivers:
            call(self.gateway.port, "POST", f"/v1/upstreams/{self.case.upstream}/pause")
        return self

    def __exit__(self, *_):
        self.gateway.stop(60)

    def control(self, option):
        command = ["callgrind_control", option, str(self.gateway.pid)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise Failure(f"{' '.join(command)}: {done.stdout}{done.stderr}")

    def post(self, bodies, requests):
        """Sends so many requests and waits until their messages are where they have to be. Returns how many those are."""
        self.simulator.forget("counts")
        options = {"requests": requests, "seconds": 300}
        if self.case.messages > 1:
            options["header"] = "Prefer: return=minimal"
        if self.case.path.startswith("/sdk/seer"):
            options["header"] = f"Authorization: Bearer {self.token()}"
        command = Bench.load_command(self.gateway.port, self.case.path, bodies, CONNECTIONS, options)
        done = subprocess.run(command, capture_output=True, text=True, timeout=360, stdin=subprocess.DEVNULL)
        messages = Bench.load_result(done.stdout, done.stderr)["accepted"] * self.case.messages
        if self.case.delivers:
            until(lambda: self.simulator.count() >= messages, 300, f"all {messages} messages arrived", every=0.1)
        time.sleep(1)  # The last of them are settled.
        return messages

    def token(self):
        """One that the gateway issues to Seer's SDK."""
        headers = {
            "Authorization": "Basic " + base64.b64encode(b"app:secret").decode(),
            "Content-Type": "application/x-www-form-urlencoded"}
        _, _, body = call(self.gateway.port, "POST", "/sdk/seer/oauth/access_token", "grant_type=client_credentials", headers)
        return json.loads(body)["access_token"]

    def instructions(self, bodies):
        """The number for one message."""
        self.post(bodies, max(CONNECTIONS, self.case.requests // 10))
        self.control("--instr=on")
        messages = self.post(bodies, self.case.requests)
        self.control("--instr=off")
        self.control("--dump")
        return self.total() / messages

    def total(self):
        """The sum over all threads, from what callgrind wrote."""
        texts = [file.read_text() for file in self.directory.glob("counts*")]
        totals = [int(number) for text in texts for number in re.findall(r"^totals: (\d+)", text, re.M)]
        if not totals:
            raise Failure(f"callgrind counted nothing in {self.directory}")
        return sum(totals)


def measured(binary, names=None):
    """(name, instructions for each message) of the cases, all by default, one by one."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        # Debian's valgrind gives up on what Swift writes for debuggers.
        plain = folder / "postern"
        subprocess.run(["objcopy", "--strip-debug", binary, plain], check=True)
        events = [event(number) for number in range(1024)]
        bodies = {
            "single": events, "bulk": Bench.arrays(16, BULK), "array": [f"[{one}]" for one in events],
            "activity": [activity(number) for number in range(1024)]}
        for part, lines in bodies.items():
            (folder / f"bodies-{part}").write_text("\n".join(lines) + "\n")
        for number, case in enumerate(case for case in CASES if not names or case.name in names):
            directory = folder / str(number)
            directory.mkdir()
            with Simulator(binary, directory, keep="counts") as simulator:
                with Counter(case, plain, directory, simulator) as counter:
                    yield case.name, counter.instructions(folder / f"bodies-{case.part}")


def budget():
    """Name → instructions for each message, from the table in BUDGET.md."""
    rows = re.findall(r"^\| ([^|]+?) +\| ([\d ]+) \|", BUDGET.read_text(), re.M)
    return {name: int(number.replace(" ", "")) for name, number in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="gateway to measure (default $POSTERN_BINARY or .build/release/postern)")
    parser.add_argument("--check", action="store_true", help="fail if one of the figures without delivery grew by more than 5 %% against BUDGET.md")
    parser.add_argument("--only", action="append", choices=[case.name for case in CASES])
    options = parser.parse_args()
    limits, failed = budget() if options.check else {}, False
    # While delivering, it depends a little on the speed of the machine how many messages share a request.
    usual = [case.name for case in CASES if not (options.check and case.delivers)]
    counts = {}
    for name, count in measured(binary_from(options.binary), options.only or usual):
        counts[name] = count
        shown = f"{count:,.0f}".replace(",", " ")
        text = f"{name}: {shown} instructions for each message"
        if options.check:
            growth = count / limits[name] - 1
            failed |= growth > GROWTH
            text += f", {growth:+.1%} against BUDGET.md"
        if OWN.get(name) in counts:
            more = count / counts[OWN[name]] - 1
            text += f", {more:+.1%} against the gateway's own API"
        print(text, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"instructions: {failure}")
