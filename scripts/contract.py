#!/usr/bin/env python3
"""Does the gateway do what openapi/openapi.yaml promises, and the other way round? Is its configuration what the JSON Schema says?

usage: scripts/contract.py --binary FILE

Runs the gateway with simulated upstreams, on loopback. Needs packages from PyPI; `make contract` installs them below
`.build` and calls this. The parts are in scripts/contract/.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from contract import agreement, configuration, document, examples, fuzzing, generated, refusals, sdks, served  # noqa: E402
from contract.gateway import SimulatedGateway  # noqa: E402
from harness import LONGEST_WAIT, ROOT, Failure  # noqa: E402


def check_version(known, binary):
    product = subprocess.run([binary, "--version"], capture_output=True, check=True, text=True, timeout=LONGEST_WAIT).stdout
    if product.split()[-1] != known.text["info"]["version"]:
        raise Failure(f"the document has version {known.text['info']['version']}, the product {product.strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--quick", action="store_true", help="without schemathesis")
    options = parser.parse_args()

    started = time.monotonic()

    def step(name, work):
        print(f"contract: {name}: {work()} ({time.monotonic() - started:.0f} s)", flush=True)

    known = document.Document(ROOT / "openapi/openapi.yaml")
    step("document", lambda: document.check(known))
    check_version(known, options.binary)
    step("schema of the configuration", lambda: configuration.check(options.binary))
    with tempfile.TemporaryDirectory(prefix="postern-contract-") as directory:
        with SimulatedGateway(options.binary, directory) as gateway:
            step("examples", lambda: examples.check(known, gateway))
            gateway.check_alive()
        with SimulatedGateway(options.binary, directory + "/client") as gateway:
            step("client by openapi-python-client", lambda: generated.check(known, gateway, directory))
        step("document of configured kinds", lambda: served.check(options.binary, directory + "/served"))
        with SimulatedGateway(options.binary, directory + "/fuzzing") as gateway:
            step("schemas of kinds", lambda: agreement.check(known, gateway))
            step("refusals", lambda: refusals.check(known, gateway))
            step("SDKs", lambda: sdks.check(known, gateway))
            options.quick or step("schemathesis", lambda: fuzzing.check(known, gateway, directory))
            gateway.check_alive()
    print("contract: ok")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"contract: {failure}")
