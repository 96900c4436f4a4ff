"""Changes what schemathesis sends where JSON Schema cannot say what the gateway requires.

schemathesis loads this by `SCHEMATHESIS_HOOKS`. Nothing here makes a valid value invalid, or an invalid one valid.
"""

import itertools
import re
import time

import schemathesis

KEY = r'"([ !#-\[\]-~]|\\["\\]){1,255}"|[!#-~]([ -~]{0,253}[!-~])?'
COUNTER = itertools.count(1)


@schemathesis.hook
def before_call(context, case, kwargs):
    headers = case.headers or {}
    for name in list(headers):
        # The tool does not compress bodies, and a gateway that waits for a delivery costs time.
        if name.lower() == "content-encoding" and headers[name] in ("gzip", "x-gzip"):
            headers[name] = "identity"
        # A repeat with another body is refused, and a dry run does not look at the key.
        if name.lower() == "idempotency-key":
            if re.fullmatch(KEY, headers[name].strip(" \t")):
                headers[name] = f"{next(COUNTER)}"
            elif str((case.query or {}).get("dryRun")).lower() == "true":
                del case.query["dryRun"]
        if name.lower() == "prefer" and "wait=" in str(headers[name]):
            headers[name] = "return=minimal"
    if case.operation.path == "/v1/messages" and case.query:
        in_order(case.query)
    if isinstance(case.body, (dict, list)):
        case.body = written(case.body)
        for payload in case.body if isinstance(case.body, list) else [case.body]:
            if isinstance(payload, dict) and case.operation.path.startswith("/v1/curio/"):
                current(payload, case.operation.path)
            # Which actions only read, and so are not queued, depends on settings.
            if isinstance(payload, dict) and case.operation.path == "/v1/streamone/call":
                if re.fullmatch("((view|get|my|list|search|count|stats)[a-z0-9]*|info)", str(payload.get("action"))):
                    payload["action"] = "edit"


def in_order(query):
    """A cursor is valid for lists in the order in which it was given."""
    cursor, order = str(query.get("cursor", "")), query.get("order", "oldest")
    if re.fullmatch(r"(newest\.)?[0-7][0-9a-hjkmnp-tv-z]{12}", cursor) and order in ("oldest", "newest"):
        query["cursor"] = ("newest." if order == "newest" else "") + cursor.removeprefix("newest.")


def written(value):
    """To JSON Schema 1.0 is an integer, and the gateway goes by the literal. It wants decimals without an exponent."""
    if isinstance(value, dict):
        return {name: written(member) for name, member in value.items()}
    if isinstance(value, list):
        return [written(element) for element in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def current(payload, path):
    """No time is far in the future, or too old for a location; no decimal has an exponent."""
    # Not the time of the start: a run may take longer than a location may be old.
    moment, now = payload.get("timestamp"), int(time.time() * 1000)
    if is_number(moment) and moment >= 1262304000000 and (moment > now or path.endswith("/location")):
        payload["timestamp"] = now
    for name in ("lat", "long"):
        if is_number(payload.get(name)) and abs(payload[name]) < 1:
            payload[name] = round(payload[name], 3)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)
