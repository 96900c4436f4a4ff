"""Has schemathesis send what the document allows and forbids, and check the responses."""

import contextlib
import os
import pathlib
import re
import sys

from harness import LONGEST_WAIT, Failure, Process, until

FOLDER = pathlib.Path(__file__).resolve().parent


# Two runs at once, of about the same length: a run keeps one core busy.
HALF = "^/v1/(appservices|curio)/"
HALVES = [("include", "coverage,fuzzing"), ("exclude", "coverage,fuzzing,stateful")]


def check(known, gateway, directory):
    """The same requests in each run: the seed is fixed."""
    tool = pathlib.Path(sys.executable).with_name("schemathesis")
    command = [
        tool, "--config-file", FOLDER / "schemathesis.toml", "run", known.path, "--url", f"http://127.0.0.1:{gateway.port}",
        "--seed", "1", "--continue-on-failure", "--request-timeout", str(LONGEST_WAIT), "--warnings", "off", "--no-color",
        "--exclude-tag", "SDK",
    ]
    environment = {
        **os.environ, "POSTERN_KEY": gateway.key, "SCHEMATHESIS_HOOKS": "contract.hooks", "PYTHONPATH": str(FOLDER.parent)}
    logs = [pathlib.Path(directory) / f"{name}.log" for name, _ in HALVES]
    with contextlib.ExitStack() as stack:
        runs = [
            stack.enter_context(
                Process([*command, f"--{name}-path-regex", HALF, "--phases", phases], log, cwd=directory, env=environment))
            for (name, phases), log in zip(HALVES, logs)
        ]
        until(lambda: all(run.child.poll() is not None for run in runs), 3600, "schemathesis ends", every=0.2)
    requests, operations = 0, 0
    for run, log in zip(runs, logs):
        found = re.search(r"Tested: (\d+)[^$]*?\n\s+(\d+) generated", log.read_text())
        if run.child.returncode or not found:
            raise Failure(f"schemathesis ended with {run.child.returncode}:\n{log.read_text()[-20000:]}")
        operations, requests = operations + int(found[1]), requests + int(found[2])
    if operations != len(known.operations) - 1:
        raise Failure(f"schemathesis tested {operations} of {len(known.operations)} operations, of which one is excluded")
    return f"{requests} requests to {operations} operations"
