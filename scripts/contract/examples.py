"""Sends every example of the document to the gateway, and checks each response by the document."""

import http.client
import json
import re
import time
import urllib.parse

from contract.gateway import DROPPING
from harness import KEYS, LONGEST_WAIT, ROOT, Failure, call


def check(known, gateway):
    session = Session(known, gateway)
    for operation in sorted(known.operations, key=rank):
        for request in session.requests(operation):
            session.run(operation, request)
    session.faults += rejected(gateway)
    session.faults += results(known, gateway)
    if session.faults:
        raise Failure("these examples fail:\n  " + "\n  ".join(session.faults))
    return f"{session.count} requests to {len(known.operations)} operations"


def rank(operation):
    """Messages are sent before they are read, and a session is begun before it is ended."""
    return 2 if operation.id == "endSession" else 0 if is_kind(operation) else 1


def is_kind(operation):
    """Whether messages of one kind are sent by it."""
    return operation.method == "post" and re.fullmatch("/v1/[a-z-]+/[a-z_]+", operation.path) and "{" not in operation.path \
        and not operation.path.startswith("/v1/messages/")


def payload_schema(operation):
    """Where the schema of one payload is: that of the body allows many, unless a payload may be anything."""
    pointer = f"{operation.pointer}/requestBody/content/application~1json/schema"
    return pointer + "/oneOf/0" if "oneOf" in operation.known.at(pointer) else pointer


def refresh(operation, body):
    """The example; with the current time in that of a location, which must not be old."""
    return body | {"timestamp": int(time.time() * 1000)} if operation.path == "/v1/curio/location" else body


def rejected(gateway):
    """The messages that the simulated upstreams reject."""
    for name in json.loads((ROOT / "config.example.json").read_text())["upstreams"]:
        call(gateway.port, "POST", f"/v1/upstreams/{name}/resume")
        call(gateway.port, "POST", f"/v1/upstreams/{name}/flush", headers={"Prefer": "wait=60"})
    failed = json.loads(call(gateway.port, "GET", "/v1/messages?state=failed")[2])["messages"]
    return [f"{message['upstream']}/{message['kind']} is rejected: {message['lastError']}" for message in failed]


def results(known, gateway):
    """What is wrong with the steps of the sequences that were delivered."""
    path = "/v1/messages?upstream=appservices&state=delivered&include=attempts"
    delivered = json.loads(call(gateway.port, "GET", path)[2])["messages"]
    if not delivered:
        yield "no sequence was delivered"
    for message in delivered:
        yield from known.violations(message["result"], "/components/schemas/StepResults")
        names = {step["step"] for step in message["result"]["steps"]}
        if message["kind"] == "group":
            names.add("findGroup")  # An SDK's step: its result has that alone, and not the look before it.
        if not {attempt["step"] for attempt in message["attemptLog"]} - {None} <= names:
            yield f"the requests of {message['kind']} have other steps than its result"


# Headers that every response may have.
OF_HTTP = {
    "Cache-Control", "Connection", "Content-Length", "Content-Type", "Date", "Transfer-Encoding", "X-Content-Type-Options"}


class Request:
    def __init__(self, name, parameters, media_type=None, body=None):
        self.name, self.parameters, self.media_type, self.body = name, parameters, media_type, body

    def encoded_body(self):
        if self.media_type is None:
            return None
        if self.media_type == "application/x-www-form-urlencoded":
            return urllib.parse.urlencode(self.body).encode()
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


class Session:
    """Requests in the order of the document, of which some need what earlier ones were answered."""

    def __init__(self, known, gateway):
        self.known, self.gateway = known, gateway
        self.faults, self.count = [], 0
        # By operation: the body of the last response.
        self.answers = {}
        # Parameters whose example was sent.
        self.sent = set()

    def requests(self, operation):
        """One request for each example of the body, then one for each optional parameter with an example."""
        required = {}
        optional = []
        known = self.values(operation)
        for pointer, parameter in operation.parameters:
            place = (parameter["in"], parameter["name"])
            values = [known[parameter["name"]]] if parameter["name"] in known else [v for _, v in self.known.examples(parameter)]
            if parameter.get("required"):
                if not values:
                    self.faults.append(f"{operation}: {parameter['name']} is required and has no example")
                    return
                required[place] = values[0]
            elif values and (sent := parameter["name"] if parameter["name"] == "Idempotency-Key" else pointer) not in self.sent:
                # A key has an example of its own in each operation, but means the same: one operation shows it, since
                # some bodies cannot be sent twice.
                self.sent.add(sent)
                optional.append((place, values[0]))
        bodies = list(operation.body_examples()) or [(None, None, None)]
        for media_type, name, body in bodies:
            parameters = required
            body = refresh(operation, body)
            if operation.id == "postCloudEvents" and media_type == "application/json":
                # An event in binary mode has its attributes in headers.
                attributes = {place: value for place, value in optional if place[1].startswith("ce-")}
                parameters = required | attributes
            yield Request(f"{media_type} {name}" if name else "", parameters, media_type, body)
        if is_kind(operation):
            lines = json.dumps(refresh(operation, bodies[0][2])) + "\n"
            yield Request("in lines", required | {("query", "dryRun"): True}, "application/x-ndjson", lines * 2)
        for place, value in optional:
            if not place[1].startswith("ce-"):
                yield Request(place[1], required | {place: value}, bodies[0][0], bodies[0][2])

    def target(self, operation, request):
        """The path with the query, and the headers."""
        path, query, headers = operation.path, [], {}
        for (place, name), value in request.parameters.items():
            texts = [json.dumps(v) if isinstance(v, bool) else str(v) for v in (value if isinstance(value, list) else [value])]
            if place == "path":
                path = path.replace(f"{{{name}}}", urllib.parse.quote(texts[0], safe=""))
            elif place == "query":
                query += [(name, text) for text in texts]
            else:
                headers[name] = texts[0]
        if query:
            path += "?" + urllib.parse.urlencode(query)
        return path, headers

    def run(self, operation, request):
        self.count += 1
        path, headers = self.target(operation, request)
        if request.media_type:
            headers["Content-Type"] = request.media_type
        status, answer, body = ask(self.gateway.port, operation.method.upper(), path, request.encoded_body(), headers)
        for fault in self.violations(operation, status, answer, body):
            self.faults.append(f"{operation.method.upper()} {path} {request.name}: {fault}")

    def violations(self, operation, status, headers, body):
        documented = operation.description["responses"].get(str(status))
        if documented is None or not 200 <= status < 300:
            yield f"{status} {body[:500].decode(errors='replace')}"
            return
        pointer, response = self.known.resolved(f"{operation.pointer}/responses/{status}", documented)
        for name, header in response.get("headers", {}).items():
            where, header = self.known.resolved(f"{pointer}/headers/{name}", header)
            if header.get("required") and name not in headers:
                yield f"the response has no {name}"
        for name in sorted({name.title() for name in headers} - {name.title() for name in response.get("headers", {})} - OF_HTTP):
            yield f"the header {name} of the response is not described"
        content = response.get("content", {})
        media_type = headers.get("Content-Type", "").split(";")[0]
        if not content:
            if body:
                yield f"the response should have no body: {body[:200]}"
            return
        if media_type not in content:
            yield f"the response has the type {media_type}"
        elif media_type == "application/json":
            value = self.answers[operation.id] = json.loads(body)
            key = media_type.replace("/", "~1")
            yield from self.known.violations(value, f"{pointer}/content/{key}/schema")

    # Values of parameters that depend on what happened before.

    def values(self, operation):
        match operation.id:
            case "getMessage": return {"id": self.queued()}
            case "cancelMessage": return {"id": self.queued()}
            case "getPayload" | "getRequest": return {"id": self.queued()}
            case "getOperation" | "stopOperation": return {"operation": self.begun()}
            case "retryMessage": return {"id": self.dropped()}
            case "getBatch": return {"batch": self.batch()}
            case "endSession": return {"sessionCode": self.answers["beginSession"]["id"]}
        return {}

    def post(self, path, payload, headers=None):
        headers = {"Content-Type": "application/json", **(headers or {})}
        status, _, body = call(self.gateway.port, "POST", path, json.dumps(payload), headers)
        if not 200 <= status < 300:
            raise Failure(f"POST {path}: {status} {body.decode()}")
        return json.loads(body)

    EVENT = {"sourceId": "device", "eventName": "viewed"}

    def queued(self):
        envelope = {"upstream": "samsara", "kind": "event", "payload": self.EVENT, "notBefore": "2100-01-01T00:00:00Z"}
        return self.post("/v1/messages", envelope)["id"]

    def dropped(self):
        call(self.gateway.port, "POST", f"/v1/upstreams/{DROPPING}/pause")
        self.post(f"/v1/{DROPPING}/event", self.EVENT)
        return self.post(f"/v1/{DROPPING}/event", self.EVENT)["evicted"][0]

    def begun(self):
        """An operation."""
        return self.post("/v1/messages/retry", {"upstream": "samsara"}, {"Prefer": "respond-async"})["operation"]

    def batch(self):
        message = self.post("/v1/samsara/event", self.EVENT, {"Prefer": "wait=60"})["id"]
        shown = json.loads(call(self.gateway.port, "GET", f"/v1/messages/{message}?include=attempts")[2])
        return shown["attemptLog"][0]["batch"]


def ask(port, method, path, body, headers):
    """Like `call`, but does not wait for the end of a stream of events."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST_WAIT)
    try:
        connection.request(method, path, body, {"Authorization": f"Bearer {KEYS[port]}", **headers})
        answer = connection.getresponse()
        is_stream = answer.headers.get("Content-Type", "").startswith("text/event-stream")
        return answer.status, answer.headers, b"" if is_stream else answer.read()
    finally:
        connection.close()
