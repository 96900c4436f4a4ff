#!/usr/bin/python3
"""Compares how the gateway frames requests with an independent parser, h11, on random mutations of valid requests.

usage: scripts/framing.py [--binary FILE] [--cases N] [--seed N]

Each case is a stream of requests with a few bytes changed. The gateway may be stricter than h11, for the reasons listed
below; it must never answer a request that h11 does not see at that place, nor see another path in it. Needs python3-h11.
"""

import argparse
import collections
import json
import random
import re
import socket
import sys
import tempfile

import h11

import harness

# What the gateway refuses on purpose and h11 0.14 repairs or does not look at.
STRICTER = [
    "a line does not end with CR LF",
    "a line of the chunked body does not end with CR LF",
    "`Content-Length` is not a number",  # Its value is folded.
    "a header line is folded",
    "a header value contains a control character",
    "`Host` is not",
    "HTTP/1.1 requires a `Host`",
    "there is more than one",
    "the request target is neither",
    "the request target and `Host` name different hosts",
    "`Transfer-Encoding` and `Content-Length` exclude each other",
    "HTTP/1.0 has no `Transfer-Encoding`",
    "a chunk size is followed by an invalid chunk extension",
    "a chunk size is larger",
    "the line with a chunk size is too long",
    "`Content-Length` is larger",
    "Send HTTP/1.1.",
]

HEAD = b"Host: t\r\n"
SEEDS = [
    b"GET /get HTTP/1.1\r\n" + HEAD + b"\r\n",
    b"GET /query?a=b&c HTTP/1.1\r\n" + HEAD + b"Accept: */*\r\nX-Long:   value with blanks  \r\n\r\n",
    b"POST /length HTTP/1.1\r\n" + HEAD + b"Content-Length: 5\r\n\r\nhello",
    b"POST /spaced HTTP/1.1\r\n" + HEAD + b"Content-Length:  28 \r\n\r\nGET /inside HTTP/1.1\r\nA: b\r\n",
    b"POST /chunked HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"POST /chunks HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    b"1\r\na\r\n1c;x=y\r\nGET /inside HTTP/1.1\r\nA: b\r\n\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n",
    b"PUT http://t/absolute HTTP/1.1\r\n" + HEAD + b"Content-Length: 0\r\n\r\n",
    b"DELETE /delete HTTP/1.1\r\nhost: t:80\r\nConnection: keep-alive\r\n\r\n",
    b"GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"GET /closing HTTP/1.1\r\n" + HEAD + b"Connection: close\r\n\r\n",
    b"POST /expect HTTP/1.1\r\n" + HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
]
PIECES = [
    b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b"\0", b":", b";", b",", b"0", b"5", b"f", b"+", b"-", b"0x", b"\x0b", b"\x7f",
    b"\x80", b"\xff", b"\"", b"\r\n ", b"\n\n", b";x", b";x=\"y\"", b"chunked", b"HTTP/1.1", b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", HEAD, b": x\r\n",
    b"0\r\n\r\n", b"GET /inside HTTP/1.1\r\n" + HEAD + b"\r\n",
]


def mutated(choose):
    stream = b"".join(choose.choice(SEEDS) for _ in range(choose.randint(1, 3)))
    for _ in range(choose.randint(0, 3)):
        at = choose.randrange(len(stream) + 1)
        length = choose.choice([0, 0, 1, 1, 2, 8])
        kind = choose.randrange(4)
        piece = choose.choice(PIECES) if kind < 3 else stream[at : at + choose.randint(1, 30)]
        if kind == 0:
            piece = b""
        stream = stream[:at] + piece + stream[at + length :]
    return stream + SEEDS[0]


def requests_by_h11(stream):
    """((method, path) of each request, whether the last one is incomplete, why it stopped)."""
    found = []
    while stream:
        # One empty line before a request may be skipped (RFC 9112, section 2.2); h11 does not.
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=16 * 1024)
        parser.receive_data(stream.removeprefix(b"\r\n") or b"\r")
        request = None
        while True:
            try:
                event = parser.next_event()
            except h11.RemoteProtocolError as error:
                return found, request is not None, str(error)
            if event is h11.NEED_DATA:
                return found, request is not None, None
            if isinstance(event, h11.Request):
                request = event
                target = re.sub(rb"^(?i:https?)://[^/?]*", b"", event.target)
                found.append((event.method.decode(), target.split(b"?")[0].decode() or "/"))
            elif isinstance(event, h11.EndOfMessage):
                break
        # h11 closes after every request of HTTP/1.0.
        keeps_alive = request.http_version == b"1.0" and (b"connection", b"keep-alive") in request.headers
        if parser.their_state is not h11.DONE and not keeps_alive:
            return found, False, "closed"
        stream = parser.trailing_data[0]
    return found, False, None


def responses_by_gateway(port, stream):
    """Status, whether the connection ends with it, and the problem, of each final response."""
    with socket.create_connection(("127.0.0.1", port), harness.LONGEST_WAIT) as connection:
        try:
            connection.sendall(stream)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # Refused before the end of it.
        received = b""
        try:
            while part := connection.recv(65536):
                received += part
        except ConnectionResetError:
            pass
    found = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        size = int(length.group(1)) if length else 0
        body, received = rest[:size], rest[size:]
        if status >= 200:
            found.append((status, b"connection: close" in head.lower(), json.loads(body) if body else {}))
    return found


def is_known_leniency(stream, is_open, reason):
    """What the gateway accepts on purpose and h11 0.14 does not."""
    if "chunk header" in reason:  # Blanks before an extension, or more than 20 digits.
        return re.search(rb"\r\n[0-9a-fA-F]+[ \t]+;", stream) or re.search(rb"\r\n0*[0-9a-fA-F]{21}", stream)
    # A trailer says nothing about the framing; h11 reads it as if it did.
    return is_open and ("Content-Length" in reason or "Transfer-Encoding" in reason)


def verdict(stream, port):
    """Why the two differ, and whether that is a failure."""
    requests, is_open, reason = requests_by_h11(stream)
    responses = responses_by_gateway(port, stream)
    for index, (status, closes, problem) in enumerate(responses):
        detail = problem.get("detail", "")
        if status not in (403, 404):
            if not closes or index != len(responses) - 1:
                return f"{status} is not the end: {detail}", True
            is_stricter = index < len(requests) - (1 if is_open else 0)
            if not is_stricter:
                return "both refuse", False
            known = any(known in detail for known in STRICTER)
            return f"stricter: {detail}", not known
        if index >= len(requests):
            if reason and is_known_leniency(stream, is_open, reason):
                return f"more lenient: {reason}", False
            return f"answered what h11 does not see: {reason}, {problem.get('instance')}", True
        if is_open and index == len(requests) - 1 and not closes:
            if reason and is_known_leniency(stream, is_open, reason):
                return f"more lenient: {reason}", False
            return f"answered what h11 found incomplete: {reason}", True
        if requests[index][0] != "HEAD" and problem.get("instance") != requests[index][1]:
            return f"path {problem.get('instance')} instead of {requests[index][1]}", True
        if closes:
            return "closed", False
    if len(responses) < len(requests) - (1 if is_open else 0):
        return "a request was not answered", True
    return "the same", False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary")
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    choose = random.Random(options.seed)
    outcomes, failures = collections.Counter(), []
    with tempfile.TemporaryDirectory() as directory:
        settings = {"server": {"hosts": ["t"]}, "upstreams": {"samsara": {"url": "http://127.0.0.1:9"}}}
        # Keys come after framing, and would only hide which path a request has.
        with harness.Gateway(harness.binary_from(options.binary), directory, settings, keys=False) as gateway:
            for stream in [seed + SEEDS[0] for seed in SEEDS] + [mutated(choose) for _ in range(options.cases)]:
                outcome, is_failure = verdict(stream, gateway.port)
                outcomes[re.sub(r"path .*", "another path", outcome)] += 1
                if is_failure:
                    failures.append((outcome, stream))
            gateway.check_alive()
    for outcome, count in outcomes.most_common():
        print(f"{count:6} {outcome}")
    for outcome, stream in failures[:10]:
        print(f"FAILED {outcome}\n       {stream!r}", file=sys.stderr)
    if outcomes["the same"] + outcomes["both refuse"] < options.cases // 4:
        print("FAILED hardly any case was compared", file=sys.stderr)
        return 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
