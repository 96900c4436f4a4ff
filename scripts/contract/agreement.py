"""Is what a kind's schema allows what the gateway accepts? Changes the example of each kind in one place at a time."""

import copy
import json

from contract.examples import is_kind, payload_schema, refresh
from harness import Failure, call

VALUES = (
    None, True, 0, -1, 1.5, 200, 2**63, "", " ", "x", "1", "é", "\0", "me", "a@b.c", "a b", "a,b", "x" * 65, "x" * 129, "a" * 202,
    [], [1], ["x"], [""], {}, {"x": "y"}, {"": "y"}, {"x": 1}, {"x": ["y"]}, {"whitelist": {"x": [""]}},
)


def check(known, gateway):
    faults, count, valid = [], 0, 0
    for operation in filter(is_kind, known.operations):
        schema = payload_schema(operation)
        _, _, example = next(operation.body_examples())
        payloads = list(changed(known, refresh(operation, example), known.at(schema)))
        rejected = [reason for start in range(0, len(payloads), 20)
                    for reason in rejections(gateway, operation.path, payloads[start:start + 20])]
        for payload, reason in zip(payloads, rejected, strict=True):
            violations = known.violations(payload, schema)
            count, valid = count + 1, valid + (not violations)
            if bool(reason) != bool(violations):
                faults.append(f"{operation.path} {json.dumps(payload)}: gateway {reason}, schema {violations}")
    if faults:
        raise Failure("schema and gateway disagree:\n  " + "\n  ".join(faults))
    return f"of {count} payloads, {valid} are valid"


def rejections(gateway, path, payloads):
    """What the gateway has against each of the payloads, which it only checks."""
    headers = {"Content-Type": "application/json"}
    status, _, body = call(gateway.port, "POST", path + "?dryRun=true", json.dumps(payloads), headers)
    answer = json.loads(body)
    if status not in (200, 422):
        raise Failure(f"{path}: {status} {answer}")
    if "errorsOmitted" in answer:
        middle = len(payloads) // 2
        return rejections(gateway, path, payloads[:middle]) + rejections(gateway, path, payloads[middle:])
    found = [[] for _ in payloads]
    for error in answer.get("errors", []):
        found[error.get("index", 0)].append(f"{error['pointer']} {error['detail']}")
    return found


def changed(known, example, schema):
    """Without each member, and with each value in each place."""
    for place in places(known, example, schema):
        if place:
            yield with_change(example, place, lambda parent, key: parent.pop(key) if key in parent else None)
        for value in VALUES:
            yield with_change(example, place, lambda parent, key: parent.__setitem__(key, value))


def places(known, value, schema, place=()):
    """The way to the whole, to every member and element, and to members that are missing or not known."""
    yield place
    if isinstance(value, dict):
        described = known.resolved("", schema)[1].get("properties", {})
        for name in {**value, **described, "unknown": None, "": None}:
            if name in value:
                yield from places(known, value[name], described.get(name, {}), (*place, name))
            else:
                yield (*place, name)
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from places(known, element, {}, (*place, index))


def with_change(example, place, change):
    whole = parent = [copy.deepcopy(example)]
    *way, key = (0, *place)
    for step in way:
        parent = parent[step]
    change(parent, key)
    return whole[0]
