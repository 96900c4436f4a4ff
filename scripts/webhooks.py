#!/usr/bin/env python3
"""Receives messages of a webhook upstream, and verifies them by the Python library of Standard Webhooks.

usage: scripts/webhooks.py --binary FILE

Needs the package `standardwebhooks` 1 from PyPI; `make webhooks` installs it below `.build`.
"""

import argparse
import http.server
import json
import tempfile
import threading

from standardwebhooks import Webhook

from harness import Failure, Gateway, call, until

SECRETS = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"]


class Receiver(http.server.BaseHTTPRequestHandler):
    """Answers the first request with 503, and accepts the others."""

    received = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((dict(self.headers), body))
        self.send_response(503 if len(self.received) == 1 else 204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def check(condition, what):
    if not condition:
        raise Failure(what)
    print(f"  {what}")


def run(gateway):
    payloads = [{"text": "é 😀 \n", "number": number} for number in range(3)]
    status, _, body = call(
        gateway.port, "POST", "/v1/hook/event", json.dumps(payloads), {"Content-Type": "application/json"})
    if status != 202:
        raise Failure(f"{status} {body.decode()}")
    until(lambda: gateway.upstream("hook")["queued"] == 0, 30, "messages delivered")
    for secret in SECRETS:
        for headers, body in Receiver.received:
            if Webhook(secret).verify(body, headers) != payloads:
                raise Failure("another body was verified")
    check(True, f"{len(Receiver.received)} requests are verified with each of {len(SECRETS)} secrets")
    ids = {(headers["webhook-id"], headers["Idempotency-Key"]) for headers, _ in Receiver.received}
    check(len(Receiver.received) == 2 and len(ids) == 1, "a repeat has the id and key of the first request")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    options = parser.parse_args()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server, tempfile.TemporaryDirectory() as directory:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hook = {
            "type": "webhook", "url": f"http://127.0.0.1:{server.server_port}", "batch": "array",
            "signingSecrets": SECRETS, "delivery": {"retryBaseSeconds": 0.1},
        }
        with Gateway(options.binary, directory, {"upstreams": {"hook": hook}}) as gateway:
            run(gateway)
        server.shutdown()
    print("webhooks: ok")


if __name__ == "__main__":
    main()
