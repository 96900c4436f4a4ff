#!/usr/bin/env python3
"""What a caller without a key gets from a gateway that it reaches from another address than loopback: nothing but 401,
/livez and /readyz, on every route of the API's description.

usage: unshare --net --map-root-user scripts/stranger.py [--binary PATH]

Everything happens in a network namespace of its own, whose loopback interface is given an address of the range for
documentation, so that nothing is reachable from elsewhere. `make scenarios` runs it.
"""

import argparse
import fcntl
import http.client
import pathlib
import re
import socket
import struct
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import Failure, Gateway, binary_from, call  # noqa: E402

ADDRESS = "192.0.2.1"  # RFC 5737
SET_ADDRESS, SET_FLAGS, UP_AND_RUNNING = 0x8916, 0x8914, 0x41
OPEN = {("GET", "/livez"), ("GET", "/readyz")}


def bring_up(name, address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        packed = struct.pack("16sH2s4s8s", name, socket.AF_INET, b"", socket.inet_aton(address), b"")
        fcntl.ioctl(any_socket, SET_ADDRESS, packed)
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sH14s", name, UP_AND_RUNNING, b""))


def routes(document):
    """(method, path with values) of every operation in the API's description."""
    values = {"upstream": "samsara", "name": "samsara", "kind": "event", "id": "00697znkr0001"}
    path = None
    for line in document.splitlines():
        if found := re.match(r"  (/\S*):$", line):
            path = re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], "1"), found[1])
        elif path and (found := re.match(r"    (get|post|put|delete):$", line)):
            yield found[1].upper(), path
        elif re.match(r"\S", line):
            path = None


def ask(port, method, path, headers):
    """(status, headers, body), and the address that the gateway is called from."""
    connection = http.client.HTTPConnection(ADDRESS, port, timeout=20)
    try:
        connection.request(method, path, b'{"n":1}' if method in ("POST", "PUT") else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read(), connection.sock and connection.sock.getsockname()[0]
    finally:
        connection.close()


def check(gateway):
    document = call(gateway.port, "GET", "/openapi.yaml")[2].decode()
    known = list(routes(document))
    if len(known) < 20 or not OPEN <= set(known):
        raise Failure(f"only {len(known)} routes were found in the description")
    others = [("GET", "/"), ("GET", "/nothing"), ("PATCH", "/v1/messages"), ("GET", "/v1/none/event"), ("OPTIONS", "/")]
    strangers = [{}, {"Authorization": "Bearer postern_" + "0" * 49}, {"Authorization": "Basic eDp5"}]
    for method, path in known + others:
        for headers in strangers:
            status, answer, body, source = ask(gateway.port, method, path, headers)
            if source not in (None, ADDRESS):
                raise Failure(f"called from {source}")
            expected = 200 if (method, path) in OPEN else 401
            if status != expected:
                raise Failure(f"{method} {path} with {headers}: {status} {body.decode()[:200]}")
            if status == 401 and not answer["WWW-Authenticate"].startswith("Bearer"):
                raise Failure(f"{method} {path}: WWW-Authenticate: {answer['WWW-Authenticate']}")
    right = ask(gateway.port, "GET", "/v1/upstreams", {"Authorization": f"Bearer {gateway.key}"})[0]
    if right != 200:
        raise Failure(f"with the right key: {right}")
    return len(known)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="default $POSTERN_BINARY or .build/release/postern")
    options = parser.parse_args()
    bring_up(b"lo", "127.0.0.1")
    bring_up(b"lo:1", ADDRESS)
    with tempfile.TemporaryDirectory(prefix="postern-stranger-") as directory:
        settings = {"server": {"host": "0.0.0.0"}, "upstreams": {"samsara": {"url": "http://127.0.0.1:9"}}}
        with Gateway(binary_from(options.binary), directory, settings) as gateway:
            print(f"{check(gateway)} routes, called from {ADDRESS}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"stranger: {failure}")
