"""The JSON Schema of the configuration file: does it accept what `postern check` accepts, and find what that finds?"""

import concurrent.futures
import copy
import json
import os
import pathlib
import re
import subprocess
import tempfile

from jsonschema import Draft202012Validator

from harness import LONGEST_WAIT, ROOT, Failure

STRING = r'("(?:\\.|[^"\\])*")'


def plain(text):
    """The JSON of a file with comments and trailing commas."""
    text = re.sub(STRING + r"|//[^\n]*|/\*.*?\*/", lambda match: match[1] or " ", text, flags=re.DOTALL)
    return json.loads(re.sub(STRING + r"|,(?=\s*[}\]])", lambda match: match[1] or "", text))


def leaves(value, path=()):
    """The path of each setting of a file; members of an empty object are not known."""
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from leaves(member, path + (name,))
    else:
        yield path


def objects(value, path=()):
    if isinstance(value, dict):
        yield path
        for name, member in value.items():
            yield from objects(member, path + (name,))


def changed(document, path, change):
    """A copy in which `change` was called with the object around what is at the path, and its name there."""
    document = copy.deepcopy(document)
    around = document
    for name in path[:-1]:
        around = around[name]
    change(around, path[-1])
    return document


class Files:
    """Checks files by the program and by its schema."""

    def __init__(self, binary, directory):
        self.binary, self.directory = binary, pathlib.Path(directory)
        self.schema = Draft202012Validator(json.loads(self.run("config", "schema")[1]))
        Draft202012Validator.check_schema(self.schema.schema)
        self.checks = []
        self.pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())

    def run(self, *arguments):
        environment = {"PATH": os.environ["PATH"], "POSTERN_SECRETS_DIR": str(self.directory)}
        ended = subprocess.run([self.binary, *arguments], cwd=self.directory, env=environment, capture_output=True, text=True,
                               timeout=LONGEST_WAIT)
        return ended.returncode, ended.stdout, ended.stderr

    def expect(self, text, is_valid, what):
        """Both have to accept the file, or both to reject it."""
        file = self.directory.parent / f"{len(self.checks)}.json"
        self.checks.append(self.pool.submit(self.faults, file, text, is_valid, what))

    def faults(self, file, text, is_valid, what):
        file.write_text(text)
        code, output, errors = self.run("check", "--config", str(file))
        found = []
        if code != (0 if is_valid else 78):
            found.append(f"{what}: check ends with {code}: {(output + errors)[:300]}")
        problems = [error.message[:200] for error in self.schema.iter_errors(plain(text))]
        if bool(problems) == is_valid:
            found.append(f"{what}: by the schema it has the problems {problems}")
        return found


def check(binary):
    with tempfile.TemporaryDirectory(prefix="postern-schema-") as directory:
        secrets = pathlib.Path(directory) / "secrets"
        secrets.mkdir()
        files = Files(binary, secrets)
        example = json.loads((ROOT / "config.example.json").read_text())
        example["outbox"]["encryptionKey"] = "0a" * 32
        files.expect(json.dumps(example), True, "config.example.json")
        for arguments in [[], ["--webhook", "https://a.example/b?c=d"]] + [["--type", name] for name in example["upstreams"]]:
            code, text, errors = files.run("init", *arguments)
            if code:
                raise Failure(f"init {arguments}: {errors}")
            files.expect(text, True, f"what init {' '.join(arguments)} writes")
        own = {"type": "webhook", "url": "https://a.example", "kinds": {"event": {}}, "headers": {"a": "b"}}
        key = {"name": "a", "scopes": ["read"], "sha256": "0a" * 32}
        further = {"$schema": "schema.json", "upstreams": {"own": own, "seer": own}, "auth": {"keys": [key]},
                   "callbacks": [{"upstream": "own", "kind": "event"}]}
        files.expect(json.dumps(further), True, "a file with upstreams of its own")
        mistakes(files, example, "the example")
        mistakes(files, further, "a file with upstreams of its own")
        for path in [("auth", "keys", 0, "name"), ("auth", "keys", 0, "scopes"), ("callbacks", 0, "kind")]:
            files.expect(json.dumps(changed(further, path, lambda around, name: around.pop(name))), False, f"no {path}")
        for name in ("Own", "messages", "a" * 32):
            files.expect(json.dumps({"upstreams": {name: own}}), False, f"an upstream called {name}")
        if faults := [fault for check in files.checks for fault in check.result()]:
            raise Failure(f"{len(faults)} faults:\n  " + "\n  ".join(faults))
        return f"{len(files.checks)} files"


def mistakes(files, document, what):
    """Each setting with a value of another kind, numbers out of range, and unknown members."""
    for path in leaves(document):
        value = document
        for name in path:
            value = value[name]
        wrong = [{"unknown": 1}]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            wrong += [-1, 1e300, "1"]
        for other in wrong:
            files.expect(json.dumps(changed(document, path, lambda around, name: around.update({name: other}))), False,
                         f"{what} with {json.dumps(other)} at {'.'.join(path)}")
    for path in objects(document):
        files.expect(json.dumps(changed(document, path + ("unknownSetting",), lambda around, name: around.update({name: 1}))),
                     False, f"{what} with an unknown setting in {'.'.join(path)}")
