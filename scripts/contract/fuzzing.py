"""Has schemathesis send what the document allows and forbids, and check the responses."""

import os
import pathlib
import re
import subprocess
import sys

from harness import Failure

FOLDER = pathlib.Path(__file__).resolve().parent


def check(known, gateway, directory):
    """The same requests in each run: the seed is fixed."""
    tool = pathlib.Path(sys.executable).with_name("schemathesis")
    command = [
        tool, "--config-file", FOLDER / "schemathesis.toml", "run", known.path, "--url", f"http://127.0.0.1:{gateway.port}",
        "--phases", "coverage,fuzzing", "--max-examples", "3", "--seed", "1", "--continue-on-failure",
        "--request-timeout", "20", "--warnings", "off", "--no-color",
    ]
    environment = {
        **os.environ, "POSTERN_KEY": gateway.key, "SCHEMATHESIS_HOOKS": "contract.hooks", "PYTHONPATH": str(FOLDER.parent)}
    try:
        run = subprocess.run(
            command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=600)
    except subprocess.TimeoutExpired as late:
        raise Failure("schemathesis did not end") from late
    found = re.search(r"Tested: (\d+)[^$]*?\n\s+(\d+) generated", run.stdout)
    if run.returncode or not found or int(found[1]) != len(known.operations) - 1:
        raise Failure(f"schemathesis ended with {run.returncode}:\n{run.stdout[-20000:]}")
    return f"{found[2]} requests to {found[1]} operations"
