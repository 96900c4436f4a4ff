"""Sends the examples of the SDKs' operations as the SDKs do, and what is refused. Every response is described, and is none of ours.

These operations have the credentials and the responses of the platforms, so the other checks leave them out.
"""

import base64
import json

from contract.examples import Session, ask
from contract.refusals import wrong
from harness import Failure

BASIC = "Basic " + base64.b64encode(b"simulated-client:simulated-secret").decode()
TOKEN = "/sdk/seer/oauth/access_token"


def check(known, gateway):
    session = Session(known, gateway)
    token = json.loads(ask(
        gateway.port, "POST", TOKEN, b"grant_type=client_credentials",
        {"Authorization": BASIC, "Content-Type": "application/x-www-form-urlencoded"})[2])["access_token"]
    faults, count = session.faults, 0
    for operation in known.sdks:
        for request in session.requests(operation):
            path, headers = session.target(operation, request)
            headers |= credentials(path, token)
            if request.media_type:
                headers["Content-Type"] = request.media_type
            sent = [(request.name, "", headers, request.encoded_body()), *wrong(
                operation, path, operation.description.get("requestBody", {}).get("content", {}))]
            for index, (name, suffix, more, body) in enumerate(sent):
                count += 1
                if "Authorization" not in more:
                    more = more | credentials(path, token)
                try:
                    status, answer, _ = ask(gateway.port, operation.method.upper(), path + suffix, body, more)
                except (BrokenPipeError, ConnectionResetError):
                    continue  # Refused before the body was sent.
                if index == 0 and status // 100 != 2 or str(status) not in operation.description["responses"]:
                    faults.append(f"{operation}, {name}: {status}")
                if "problem" in answer.get("Content-Type", ""):
                    faults.append(f"{operation}, {name}: a problem document")
    if faults:
        raise Failure("these requests of SDKs are not answered as described:\n  " + "\n  ".join(faults))
    return f"{count} requests to {len(known.sdks)} operations"


def credentials(path, token):
    """What the SDK sends in its headers; the key of the gateway, where it is taken, is that of `ask`."""
    if path.startswith(TOKEN):
        return {"Authorization": BASIC}
    if path.startswith("/sdk/seer/"):
        return {"Authorization": f"Bearer {token}"}
    if path.startswith("/sdk/appservices/"):
        return {"Authorization": "Bearer PiTok-7f.abc", "X-Auth-Provider": "pi"}
    return {}
