"""Has openapi-python-client write a client, and sends one message of each kind by it."""

import importlib
import json
import pathlib
import re
import subprocess
import sys

from contract.examples import is_kind, payload_schema, refresh, rejected
from harness import LONGEST_WAIT, Failure

PACKAGE = "postern_client"
# The generator knows neither YAML nor a body that is plain text, and a program that lays out the client is not needed.
BYTES = "application/octet-stream"
CONFIGURATION = {"post_hooks": [], "content_type_overrides": {"application/yaml": BYTES, "text/plain": BYTES}}
# Of what it does not know, the only thing that a client does without: it has JSON instead.
WITHOUT = "Unsupported content type application/x-ndjson"


def check(known, gateway, directory):
    generate(known, pathlib.Path(directory))
    sys.path.insert(0, directory)
    client = importlib.import_module(PACKAGE).AuthenticatedClient(f"http://127.0.0.1:{gateway.port}", gateway.key)
    sent = set()
    for operation in filter(is_kind, known.operations):
        send(operation, client, directory)
        sent.add(tuple(operation.path.split("/")[2:]))
    upstreams = importlib.import_module(f"{PACKAGE}.api.upstreams.list_upstreams").sync(client=client).upstreams
    missing = {(upstream.name, kind) for upstream in upstreams if upstream.name == upstream.type_
               for kind in upstream.kinds} - sent
    if missing:
        raise Failure(f"no path and schema for {missing}")
    if faults := rejected(gateway):
        raise Failure("\n  ".join(faults))
    return f"{len(sent)} kinds"


def generate(known, directory, package=PACKAGE):
    (directory / "generator.json").write_text(json.dumps(CONFIGURATION))
    run = subprocess.run(
        [pathlib.Path(sys.executable).with_name("openapi-python-client"), "generate", "--path", known.path, "--meta", "none",
         "--config", directory / "generator.json", "--output-path", directory / package],
        cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LONGEST_WAIT)
    warnings = re.findall("^(?:WARNING|Unable|Cannot)", run.stdout, re.MULTILINE)
    if run.returncode or len(warnings) != run.stdout.count(WITHOUT):
        raise Failure(f"openapi-python-client ended with {run.returncode}:\n{run.stdout}")


def send(operation, client, directory):
    """The example, read as the type that the client has for it."""
    folder = pathlib.Path(directory) / PACKAGE / "api/writing"
    name = next(file.stem for file in folder.glob("*.py") if f'"url": "{operation.path}"' in file.read_text())
    module = importlib.import_module(f"{PACKAGE}.api.writing.{name}")
    schema = operation.known.at(payload_schema(operation))["$ref"].rpartition("/")[2]
    _, _, example = next(operation.body_examples())
    body = example = refresh(operation, example)
    # There is no type for what may be anything.
    if "type" in operation.known.text["components"]["schemas"][schema]:
        body = getattr(importlib.import_module(f"{PACKAGE}.models"), schema).from_dict(dict(example))
        if body.to_dict() != example:
            raise Failure(f"{operation}: the client changes {example} to {body.to_dict()}")
    receipt = module.sync(client=client, body=body)
    if type(receipt).__name__ != "Receipt":
        raise Failure(f"{operation}: {receipt}")
