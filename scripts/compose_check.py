#!/usr/bin/env python3
"""Runs the gateway, the simulators, and Prometheus of deploy/compose.yaml without a container engine: with its files, and under the
names of its services, in a network of their own. Sees that each of the five upstreams takes something, that the smoke test
passes, and that Prometheus scrapes the gateway and evaluates the alerts. Grafana is not run.

usage: scripts/compose_check.py [--binary PATH]
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from harness import ROOT, Failure, Process, binary_from, call, free_port, listens, until
from stranger import bring_up

DEPLOY = ROOT / "deploy"
COMPOSE = (DEPLOY / "compose.yaml").read_text()
POSTGRES = (DEPLOY / "compose.postgres.yaml").read_text()
SERVICES = ["gateway", "simulators", "prometheus"]
GATEWAY, SIMULATORS = 8080, 9000
VISITOR = {"visitorCode": "device-1", "sessionCode": "6d551000-a21d-11e4-8123-03ab5c7d9e1f"}
PHONE = {
    "screenWidth": 750, "screenHeight": 1334, "lang": "tr-TR", "simOperator": "TURKCELL", "simOpCountry": "286",
    "networkOpName": "TURKCELL", "connType": "wifi", "brand": "Apple", "model": "iPhone", "osType": "iOS", "osVer": "9.2.1",
    "curioSdkVer": "1.2.4", "appVer": "2.4.0"}
MESSAGES = {
    "/v1/samsara/event": {"sourceId": "device-1", "eventName": "composed"},
    "/v1/seer/tincan": {
        "actor": {"mbox": "mailto:a@example.com"}, "verb": {"id": "urn:v"},
        "object": {"id": "urn:o", "definition": {"type": "urn:t"}}, "context": {"extensions": {"appId": "a"}}},
    "/v1/curio/session_start": {**VISITOR, **PHONE, "timestamp": int(time.time() * 1000)},
    "/v1/appservices/register": {
        "userId": "ffffffff54d00d1e0b07c0de5eed0011", "deviceId": "C0FFEE11-2233-4455-8677-8899AABBCCDD",
        "deviceToken": "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",
        "auth": {"token": "PiTok-7f.abc", "expiresIn": "1799"}},
}


def check_files():
    """What is mounted is there, and each image has a version."""
    mounted = re.findall(r"^\s+- \./(\S+?):/", COMPOSE + POSTGRES, re.MULTILINE)
    if missing := [file for file in mounted if not (DEPLOY / file).is_file()]:
        raise Failure(f"compose.yaml mounts what is not there: {missing}")
    images = re.findall(r"^\s+image: (\S+)", COMPOSE + POSTGRES, re.MULTILINE)
    if bad := [image for image in images if not re.search(r":v?\d+\.\d+(\.\d+)?$", image)]:
        raise Failure(f"images without a version: {bad}")
    names = re.findall(r"^  (\w+):\n    (?:<<|image)", COMPOSE, re.MULTILINE)
    if not set(SERVICES) <= set(names):
        raise Failure(f"the services are {names}")
    print(f"ok    {len(mounted)} files are there, {len(images)} images have versions")


def run(binary, directory):
    secrets = directory / "secrets"
    secrets.mkdir()
    # The command of the first lines of compose.yaml, with a umask that is usual. User 10001 could read the file.
    command = re.search(r"^#.*&& (openssl .*)>deploy/secrets/(\S+)$", COMPOSE, re.MULTILINE)
    subprocess.run(f"umask 022; {command[1]} >{secrets}/{command[2]}", shell=True, check=True)
    if not (secrets / command[2]).stat().st_mode & 0o004:
        raise Failure("the secret cannot be read by others")
    environment = os.environ | {"POSTERN_SECRETS_DIR": str(secrets), "POSTERN_OUTBOX_PATH": str(directory / "postern.sqlite")}
    with contextlib.ExitStack() as running:
        running.enter_context(Process([binary, "simulate", "--port", SIMULATORS], directory / "simulators.log"))
        until(lambda: listens(SIMULATORS + 4), 20, "the simulators listen")
        gateway = running.enter_context(Process(
            [binary, "serve", "--config", DEPLOY / "compose.postern.json"], directory / "gateway.log", env=environment))
        until(lambda: gateway.check_alive() and listens(GATEWAY), 20, "the gateway listens")
        for path, message in MESSAGES.items():
            status, _, body = call(GATEWAY, "POST", path, json.dumps(message), {
                "Content-Type": "application/json", "Prefer": "wait=10"}, timeout=20)
            if status != 200 or json.loads(body)["state"] != "delivered":
                raise Failure(f"{path}: {status} {body.decode()}")
        status, _, body = call(GATEWAY, "POST", "/v1/streamone/proxy/item/view", '{"itemtype":"video"}', {
            "Content-Type": "application/json"})
        if status != 200:
            raise Failure(f"streamone: {status} {body.decode()}")
        print(f"ok    {len(MESSAGES) + 1} upstreams take something")
        done = subprocess.run([DEPLOY / "smoke.sh"], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise Failure(f"smoke.sh: {done.stdout}")
        print("ok    deploy/smoke.sh")
        port = free_port()
        prometheus = running.enter_context(Process(
            ["prometheus", f"--config.file={DEPLOY}/prometheus/prometheus.yaml", f"--storage.tsdb.path={directory}/series",
             f"--web.listen-address=127.0.0.1:{port}"], directory / "prometheus.log"))

        def scraped():
            with contextlib.suppress(OSError):
                prometheus.check_alive()
                targets = json.loads(call(port, "GET", "/api/v1/targets")[2])["data"]["activeTargets"]
                return [target["scrapeUrl"] for target in targets if target["health"] == "up"]

        found = until(scraped, 40, "Prometheus scrapes", 0.5)
        rules = json.loads(call(port, "GET", "/api/v1/rules")[2])["data"]["groups"]
        print(f"ok    Prometheus scrapes {found[0]} and evaluates {sum(len(group['rules']) for group in rules)} alerts")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary")
    parser.add_argument("--in-namespace", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.in_namespace:
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        os.execvp("unshare", ["unshare", "--mount", "--net", *user, sys.executable, __file__, *sys.argv[1:], "--in-namespace"])
    try:
        check_files()
        with tempfile.TemporaryDirectory() as directory:
            bring_up(b"lo", "127.0.0.1")
            hosts = pathlib.Path(directory) / "hosts"
            hosts.write_text("".join(f"127.0.0.1 {name}\n" for name in ["localhost", *SERVICES]))
            subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
            run(binary_from(options.binary), pathlib.Path(directory))
            subprocess.run(["umount", "/etc/hosts"], check=False)
    except Failure as failure:
        sys.exit(f"compose-check: {failure}")


if __name__ == "__main__":
    main()
