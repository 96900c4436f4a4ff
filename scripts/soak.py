#!/usr/bin/env python3
"""Steady load for a long time against an upstream that fails now and then: does anything grow that should not?

usage: make test-soak SECONDS=900        or scripts/soak.py --seconds 900 [--rate 1500]

Looks at memory, open descriptors and the backlog every five seconds, and lets delivered messages expire after half a
minute, so that the store has to shrink again. At the end everything is drained and `postern outbox audit` must balance.
"""

import argparse
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import ROOT, Failure, Gateway, Simulator, binary_from, until  # noqa: E402

FAULTS = "delay=50ms:0.02,status=503:0.01,reset-before:0.005,reset-after:0.005"
EVERY = 5


def bodies(directory):
    path = directory / "events.ndjson"
    note = "soak " * 80
    lines = (
        f'{{"timestamp":{1479988864057 + n},"sourceId":"soak-{n}","eventName":"soak.event","seq":{n},"note":"{note}"}}'
        for n in range(1000)
    )
    path.write_text("\n".join(lines) + "\n")
    return path


def store_mib(directory):
    return sum(file.stat().st_size for file in directory.glob("postern.sqlite*")) / 1024**2


def sample(gateway):
    gateway.check_alive()
    upstream = gateway.upstream()
    return {
        "rssMiB": round(gateway.rss_mib(), 1),
        "descriptors": gateway.descriptors(),
        "queued": upstream["queued"],
        "storeMiB": round(store_mib(gateway.directory), 1),
    }


def grown(samples, rate):
    """What is wrong: the last quarter is compared with the second one."""
    quarter = len(samples) // 4
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]

    def most(part, name):
        return max(each[name] for each in part)

    limits = {
        "rssMiB": most(early, "rssMiB") * 1.1 + 8,
        "descriptors": most(early, "descriptors") + 16,
        "queued": 60 * rate,  # a minute's worth
        "storeMiB": most(early, "storeMiB") * 1.5 + 16,
    }
    return [
        f"{name} grew: {most(late, name)} in the last quarter, {most(early, name)} in the second, allowed {limit:.0f}"
        for name, limit in limits.items()
        if most(late, name) > limit
    ]


def soak(options, directory):
    binary = binary_from(options.binary)
    settings = {
        "delivery": {"retryBaseSeconds": 0.2, "retryMaxSeconds": 5},
        "outbox": {"deliveredRetentionSeconds": 30},
    }
    samples = []
    with Simulator(binary, directory, faults=FAULTS, keep="counts") as simulator:
        settings["upstreams"] = {"samsara": {"url": simulator.url()}}
        with Gateway(binary, directory, settings) as gateway:
            command = [ROOT / ".build/bench/load", "--port", gateway.port, "--path", "/v1/samsara/event"]
            command += ["--bodies", bodies(directory), "--rate", options.rate, "--seconds", options.seconds]
            command += ["--header", gateway.authorization]
            load = subprocess.Popen(
                [str(part) for part in command], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
            try:
                while load.poll() is None:
                    samples.append(sample(gateway))
                    if len(samples) % 12 == 1:
                        print(json.dumps(samples[-1]), flush=True)
                    time.sleep(EVERY)
            finally:
                if load.poll() is None:
                    load.kill()
                output = load.communicate()[0]
            print(output.strip(), flush=True)
            result = json.loads(output)
            problems = grown(samples, options.rate)
            if result["refused"] or result["broken"] or result["unanswered"]:
                problems.append("not every request was accepted")
            until(lambda: gateway.upstream()["queued"] == 0, 120, "the outbox drains", every=0.5)
            code, audit = gateway.outbox("audit")
            if code != 0:
                problems.append(f"`postern outbox audit` exits with {code}: {audit}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=900)
    parser.add_argument("--rate", type=int, default=1500, help="messages per second")
    parser.add_argument("--binary", help="default $POSTERN_BINARY or .build/release/postern")
    options = parser.parse_args()
    if options.seconds < 8 * EVERY:
        parser.error(f"less than {8 * EVERY} seconds say nothing")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = pathlib.Path(tempfile.mkdtemp(prefix="postern-soak-"))
    try:
        problems = soak(options, directory)
    except Failure as failure:
        problems = [str(failure)]
    for problem in problems:
        print(f"FAIL {problem}")
    if problems:
        print(f"the store and the logs are kept in {directory}")
        return 1
    shutil.rmtree(directory)
    print(f"ok: {options.seconds} s, nothing grew, nothing lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
