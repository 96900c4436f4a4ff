"""Sends every operation what any operation refuses, and checks that the refusals are described."""

import json

from contract.examples import OF_HTTP, Request, Session, ask
from harness import Failure

LARGE = b'{"x":"' + b"x" * (5 << 20) + b'"}'


def check(known, gateway):
    session = Session(known, gateway)
    faults, count = [], 0
    for operation in known.operations:
        request = Request("", {
            (parameter["in"], parameter["name"]): next(iter(known.examples(parameter)), (None, "00697znkr0001"))[1]
            for _, parameter in operation.parameters if parameter.get("required")})
        bodies = operation.description.get("requestBody", {}).get("content", {})
        path, _ = session.target(operation, request)
        for name, suffix, headers, body in wrong(operation, path, bodies):
            count += 1
            try:
                status, answer, text = ask(gateway.port, operation.method.upper(), path + suffix, body, headers)
            except (BrokenPipeError, ConnectionResetError):
                continue  # Refused before the body was sent.
            if status < 400:
                continue
            if fault := violation(known, operation, status, answer, text):
                faults.append(f"{operation}, {name}: {status} {fault}")
    if faults:
        raise Failure("these refusals are not described:\n  " + "\n  ".join(faults))
    return f"{count} requests"


def wrong(operation, path, bodies):
    """(name, addition to the path, headers, body)"""
    body = b"{}" if bodies else None
    headers = {"Content-Type": next(iter(bodies))} if bodies else {}
    more = "&" if "?" in path else "?"
    yield "unknown parameter", more + "unknown=1", headers, body
    yield "no key", "", {**headers, "Authorization": ""}, body
    if operation.id == "listUpstreams":  # Once: the gateway takes its time to answer.
        yield "wrong key", "", {**headers, "Authorization": "Bearer postern_" + "0" * 49}, body
    yield "large header", "", {**headers, "X-Large": "x" * (20 << 10)}, body
    yield "not acceptable", "", {**headers, "Accept": "text/html"}, body
    yield "foreign page", "", {**headers, "Origin": "https://elsewhere.example"}, body
    if bodies:
        yield "media type", "", {"Content-Type": "text/plain"}, body
        yield "coding", "", {**headers, "Content-Encoding": "br"}, body
        yield "no gzip", "", {**headers, "Content-Encoding": "gzip"}, body
        yield "no JSON", "", headers, b"{"
        yield "large body", "", headers, LARGE


def violation(known, operation, status, headers, body):
    documented = operation.description["responses"].get(str(status))
    if documented is None:
        return body[:200].decode()
    pointer, response = known.resolved(f"{operation.pointer}/responses/{status}", documented)
    media_type = headers.get("Content-Type", "")
    if media_type not in response["content"]:
        return f"has the type {media_type}"
    key = media_type.replace("/", "~1")
    found = known.violations(json.loads(body), f"{pointer}/content/{key}/schema")
    missing = [name for name in headers if name.title() not in OF_HTTP | {name.title() for name in response.get("headers", {})}]
    return "; ".join(found + [f"{name} is not described" for name in missing])
