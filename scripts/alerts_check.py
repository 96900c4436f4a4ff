#!/usr/bin/env python3
"""Makes each condition happen that an alert of deploy/prometheus/alerts.yaml is for, in real gateways, and sees that a real
Prometheus raises that alert for that gateway, and no other; and that it raises none while everything is well.

usage: make alerts-check
       scripts/alerts_check.py [--binary PATH]

Expressions and thresholds are those of the file. Only its durations (`for:` and ranges) are a sixtieth, so that the check
takes two minutes: an hour is a minute, and a minute a second. Some conditions are brought about in a store: messages are dated
back by 20 minutes, the ledger of an upstream is made wrong, because a gateway has no way to do that, the file is enlarged to
11 GiB by a hole, and in PostgreSQL the last commits are taken away, as by a failover. Everything else happens to the gateways.

It also sees that every query of the dashboard finds its series.

Needs Prometheus, PostgreSQL, openssl, a C compiler, and the right to mount: every store has a disk of its own, a tmpfs in a
mount namespace, and that of PostgreSQL is in memory, too. A real disk that other programs use is at times as slow as an alert says.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from harness import ROOT, Failure, Gateway, Postgres, Process, Simulator, binary_from, call, free_port, psql, until
from monitoring import PANELS, RULES

GIB = 1 << 30
JSON = {"Content-Type": "application/json"}
STATEMENT = json.dumps({
    "actor": {"mbox": "mailto:a@example.com"}, "verb": {"id": "urn:v"}, "object": {"id": "urn:o", "definition": {"type": "urn:t"}},
    "context": {"extensions": {"appId": "checked"}}})
SUBJECT = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]


def shortened(rules):
    """The rules with each duration divided by sixty."""
    def shorter(match):
        return f"{match[1]}{match[2]}{ {'m': 's', 'h': 'm'}[match[3]] }{match[4]}"
    return re.sub(r"(for: |\[)(\d+)([mh])(\]|$)", shorter, rules, flags=re.MULTILINE)


def event(number, name="checked", size=0):
    return json.dumps({"sourceId": f"device-{number % 10}", "eventName": name, "n": number, "text": "x" * size})


def post(gateway, upstream, number=0, name="checked", kind="event"):
    """The status of an accepted or refused message."""
    return call(gateway.port, "POST", f"/v1/{upstream}/{kind}", event(number, name), JSON)[0]


def expect(status, wanted):
    if status != wanted:
        raise Failure(f"status {status} instead of {wanted}")


class Disk:
    """A file system of its own, as large as one likes."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={30 * GIB}", "disk", self.path], check=True)

    def resize(self, size):
        subprocess.run(["mount", "-o", f"remount,size={size}", self.path], check=True)


class Prometheus(Process):
    """Scrapes and evaluates every second. `raised` has every alert that has fired: its labels and its summary."""

    def __init__(self, directory, rules, targets, tls_targets):
        self.directory = directory
        self.raised = {}
        self.port = free_port()
        (directory / "alerts.yaml").write_text(rules)
        jobs = [{"job_name": "postern", "static_configs": [{"targets": targets}]},
                # The same name would be refused; the rules are about this one.
                {"job_name": "tls", "scheme": "https", "tls_config": {"insecure_skip_verify": True},
                 "static_configs": [{"targets": tls_targets, "labels": {"job": "postern"}}]}]
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
                  "rule_files": ["alerts.yaml"], "scrape_configs": jobs}
        (directory / "prometheus.yaml").write_text(json.dumps(config))
        super().__init__(
            ["prometheus", f"--config.file={directory}/prometheus.yaml", f"--storage.tsdb.path={directory}/series",
             f"--web.listen-address=127.0.0.1:{self.port}"], directory / "prometheus.log")

    def ask(self, path, **parameters):
        status, _, body = call(self.port, "GET", f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        answer = json.loads(body)
        if answer.get("status") != "success":
            raise Failure(f"Prometheus: {status} {body.decode()}")
        return answer["data"]

    def query(self, text):
        return self.ask("query", query=text)["result"]

    def value(self, text):
        """The value of the only series; nil if there is none, or several."""
        found = self.query(text)
        return float(found[0]["value"][1]) if len(found) == 1 else None

    def is_ready(self):
        self.check_alive()
        with contextlib.suppress(OSError):
            return call(self.port, "GET", "/-/ready")[0] == 200

    def alerts(self):
        """Those that fire or are about to, and remembers the first."""
        found = self.ask("alerts")["alerts"]
        for alert in found:
            if alert["state"] == "firing":
                self.raised[tuple(sorted(alert["labels"].items()))] = alert["annotations"]["summary"]
        return found

    def forget(self, name):
        """That alert is to be raised again, for another reason."""
        self.raised = {labels: text for labels, text in self.raised.items() if ("alertname", name) not in labels}

    def has_raised(self, name, labels):
        """The summary of that alert, if it has fired."""
        self.alerts()
        wanted = {("alertname", name), *labels.items()}
        return next((text for known, text in self.raised.items() if wanted <= set(known)), None)


class Check:
    def __init__(self, binary, directory, database, running):
        self.binary = binary
        # The URL of a database.
        self.database = database
        self.directory = directory
        # What is to be ended.
        self.running = running
        # The alerts that are to be raised, for what, and within how many seconds; and those that were.
        self.expected, self.seen = [], []
        self.faults, self.clock = directory / "faults.so", directory / "clock.so"
        for shim in (self.faults, self.clock):
            source = ROOT / "Tests/FaultShim" / f"{shim.stem}.c"
            subprocess.run(["cc", "-O1", "-shared", "-fPIC", source, "-o", shim, "-ldl", "-lpthread"], check=True)

    def gateway(self, name, upstreams, **options):
        disk = Disk(self.directory / name)
        settings = {"delivery": {"retryBaseSeconds": 0.1, "retryMaxSeconds": 1}, "upstreams": upstreams}
        gateway = Gateway(self.binary, disk.path, settings | options.pop("settings", {}), keys=False, **options)
        gateway.disk = disk
        self.running.callback(gateway.stop)
        return gateway

    def again(self, gateway, **options):
        """The gateway, stopped and started with the same configuration and store."""
        gateway.stop()
        settings = json.loads(gateway.config.read_text())
        started = Gateway(self.binary, gateway.directory, settings, port=gateway.port, keys=False, **options)
        started.disk = gateway.disk
        self.running.callback(started.stop)
        return started

    def instance(self, gateway):
        return f"127.0.0.1:{gateway.port}"

    def expect(self, name, gateway=None, seconds=30, **labels):
        """Without a gateway, the alert is about all of them."""
        if gateway:
            labels["instance"] = self.instance(gateway)
        self.expected.append((name, labels, seconds))

    # MARK: Upstreams and queues

    def trouble_upstreams(self, gateway, simulator):
        """One upstream that is down, one that does not know the credentials, one that has moved, one that rejects a message."""
        simulator.ask("POST", "/faults", "reset-before", upstream="webhook")
        simulator.control("seer", {"clientId": "another", "revokeNow": True})
        simulator.play("poison=eventName:bad:array")
        expect(post(gateway, "webhook"), 202)
        expect(post(gateway, "samsara", name="bad"), 202)
        expect(post(gateway, "moved"), 202)
        expect(call(gateway.port, "POST", "/v1/seer/tincan", STATEMENT, JSON)[0], 202)
        # No alert is about the SDKs, but a panel is.
        reported = '[{"timestamp":1,"sourceId":"device","eventName":"checked"}]'
        expect(call(gateway.port, "POST", "/sdk/samsara/v1/events", reported, JSON)[0], 202)
        self.expect("PosternUpstreamDown", gateway, upstream="webhook", health="down")
        self.expect("PosternUpstreamUnauthorized", gateway, upstream="seer", health="unauthorized")
        self.expect("PosternUpstreamUnauthorized", gateway, upstream="moved", health="misconfigured")
        self.expect("PosternMessagesFail", gateway, upstream="samsara")

    def fill_queues(self, gateway, stopping):
        """A queue that refuses what is new, one that drops what is old, and one whose messages expire."""
        for name in ("full", "dropping", "expiring"):
            call(gateway.port, "POST", f"/v1/upstreams/{name}/pause")
        expect(post(gateway, "full"), 202)
        expect(post(gateway, "dropping"), 202)
        expect(post(gateway, "dropping", 1), 202)
        soon = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + 2))
        message = f'{{"upstream":"expiring","kind":"event","expiresAt":"{soon}","payload":{event(1)}}}'
        expect(call(gateway.port, "POST", "/v1/messages", message, JSON)[0], 202)

        def insist():
            # The last request may find that the gateway has been stopped.
            with contextlib.suppress(OSError):
                while not stopping.wait(0.2):
                    expect(post(gateway, "full", 1), 503)

        threading.Thread(target=insist, daemon=True).start()
        self.expect("PosternMessagesRefused", gateway, upstream="full", reason="outbox-full")
        self.expect("PosternMessagesLost", gateway, upstream="dropping", state="dropped")
        self.expect("PosternMessagesLost", gateway, upstream="expiring", state="expired")

    # MARK: The store

    def shrink_disk(self, gateway, seconds=12):
        """The disk loses 100 MiB a second, of 10 GiB: enough for the moment, but not for four hours."""
        for second in range(seconds):
            gateway.disk.resize(10 * GIB - (second << 20) * 100)
            time.sleep(1)
        self.expect("PosternDiskSpaceLow", gateway)

    def nearly_fill_disk(self, gateway):
        gateway.disk.resize(GIB // 2)
        self.expect("PosternDiskSpaceLow", gateway)

    def break_store(self, gateway):
        """A ledger that is wrong, a message that has been due for 20 minutes, and a database of 11 GiB."""
        call(gateway.port, "POST", "/v1/upstreams/samsara/pause")
        expect(post(gateway, "samsara"), 202)
        gateway.stop()
        store = gateway.disk.path / "postern.sqlite"
        with contextlib.closing(sqlite3.connect(store)) as database, database:
            number = database.execute("SELECT number FROM upstreams WHERE name = 'samsara'").fetchone()[0]
            database.execute(f"UPDATE queue_{number} SET acceptedAtMs = acceptedAtMs - 1200000")
            database.execute("UPDATE upstreams SET accepted = accepted + 3")
        restarted = self.again(gateway)
        os.truncate(store, 11 * GIB)
        self.expect("PosternUnbalanced", gateway, upstream="samsara")
        self.expect("PosternMessagesWait", gateway, upstream="samsara")
        self.expect("PosternStoreLarge", gateway, 60)
        return restarted

    def hold_log(self, gateway):
        """A program reads the store for a long time, while messages arrive."""
        call(gateway.port, "POST", "/v1/upstreams/samsara/pause")
        reader = sqlite3.connect(f"file:{gateway.disk.path}/postern.sqlite?mode=ro", uri=True, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM store").fetchall()
        body = "\n".join(event(number, size=90_000) for number in range(40))
        for _ in range(85):
            status, _, answer = call(
                gateway.port, "POST", "/v1/samsara/event", body, {"Content-Type": "application/x-ndjson"}, timeout=60)
            if status != 202:
                raise Failure(f"{status}: {answer.decode()}")
        self.expect("PosternLogGrows", gateway)
        return reader

    def slow_down_disk(self, gateway, gate, prometheus):
        """Each commit waits for two thirds of a second until the disk takes a write."""
        self.expect("PosternCommitsSlow", gateway)
        for number in range(60):
            gate.touch()
            writer = threading.Thread(target=post, args=(gateway, "samsara", number))
            writer.start()
            time.sleep(0.7)
            gate.unlink()
            writer.join()
            if prometheus.has_raised("PosternCommitsSlow", {"instance": self.instance(gateway)}):
                break

    def stall_disk(self, gateway, gate):
        """The disk takes no write any more."""
        gate.touch()

        def try_to_write():
            with contextlib.suppress(OSError):
                post(gateway, "samsara")

        threading.Thread(target=try_to_write, daemon=True).start()
        self.expect("PosternWorkerStalled", gateway, 60, worker="writer")

    # MARK: A store in PostgreSQL

    def node(self, name, simulator, **options):
        """A gateway that shares its store with others."""
        return self.gateway(
            name, {"samsara": {"url": simulator.url()}},
            settings={"outbox": {"engine": "postgres", "postgres": {"url": self.database, "node": name, "leaseSeconds": 3}}},
            **options)

    def freeze(self, owner, other):
        """The owner stands still, and another gateway takes over."""
        owner.child.send_signal(signal.SIGSTOP)
        other.wait_ready()
        self.expect("PosternFenced", other)
        self.expect("PosternDown", owner)

    def thaw(self, former):
        """It finds that another one has taken over, ends, and joins again, with a clock that is ahead by 20 s."""
        former.child.send_signal(signal.SIGCONT)
        self.expect_code(former, 74)
        joined = self.again(former, environment={"LD_PRELOAD": str(self.clock), "CLOCK_OFFSET": "20"})
        self.expect("PosternClockOff", joined)
        return joined

    @staticmethod
    def expect_code(gateway, wanted):
        if (code := gateway.child.wait(30)) != wanted:
            raise Failure(f"exit code {code} instead of {wanted}")

    def lose_commits(self, owner):
        """The database lacks the last commit of each of the owner's writers. It ends, and starts again."""
        psql(self.database, """
            DELETE FROM postern.log WHERE (writer, n) IN (
                SELECT writer, max(n) FROM postern.log JOIN postern.writers USING (writer) JOIN postern.store ON node = owner
                GROUP BY writer)""")
        expect(post(owner, "samsara"), 503)
        self.expect_code(owner, 74)
        self.expect("PosternCommitsLost")
        return self.again(owner)

    def cut_off(self, owner, member):
        """The database takes no connection any more."""
        administration = self.database.replace("/postern?", "/postgres?")
        psql(administration, """
            ALTER DATABASE postern ALLOW_CONNECTIONS false;
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postern'""")
        self.running.callback(psql, administration, "ALTER DATABASE postern ALLOW_CONNECTIONS true")
        for gateway in (owner, member):
            expect(post(gateway, "samsara"), 503)
            self.expect("PosternStoreUnreachable", gateway)

    def leave_queues(self, owner):
        """The owner ends, and no other gateway can take over without the database."""
        owner.kill()
        self.expect("PosternDown", owner)
        self.expect("PosternQueuesWithoutOwner")

    # MARK: The process

    def restart(self, gateway, prometheus):
        """Three times, so that each run is scraped."""
        name = f'process_start_time_seconds{{instance="{self.instance(gateway)}"}}'
        for _ in range(3):
            former = prometheus.value(name)
            gateway = self.again(gateway)
            until(lambda known=former: prometheus.value(name) not in (None, known), 10, "the restart is scraped", 0.1)
        self.expect("PosternRestarts", gateway)
        return gateway

    def certify(self, files, days):
        """A certificate in the place of the former one, with its key."""
        new = files / "new"
        new.mkdir()
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *SUBJECT,
             "-days", str(days), "-keyout", new / "key.pem", "-out", new / "certificate.pem"], check=True, capture_output=True)
        for file in new.iterdir():
            os.replace(file, files / file.name)
        new.rmdir()

    # MARK: All of it

    def run(self):
        certificates = self.directory / "certificates"
        certificates.mkdir()
        self.certify(certificates, 90)
        gate = self.directory / "gate"
        stopping = threading.Event()
        running = self.running
        simulator = running.enter_context(Simulator(self.binary, self.directory))
        samsara = {"url": simulator.url()}
        another = {"type": "samsara", **samsara}
        busy = self.gateway("busy", {
            "samsara": samsara | {"sdk": {"enabled": True, "anonymous": True}},
            "seer": {"baseURL": simulator.url("seer"), "clientId": "simulated-client", "clientSecret": "simulated-secret"},
            "webhook": {"url": simulator.url("webhook"), "kinds": {"event": {}}},
            "appservices": {
                "baseURL": simulator.url("appservices") + "/appservices", "organization": "acme", "application": "campus-dev",
                "apiKey": "SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1"},
            "moved": {"type": "samsara", "url": simulator.url("seer") + "/nowhere"}, "expiring": another,
            "full": another | {"queue": {"maxMessages": 1}},
            "dropping": another | {"queue": {"maxMessages": 1, "whenFull": "dropOldest"}}})
        shaken = self.gateway("shaken", {"samsara": samsara})
        slow = self.gateway("slow", {"samsara": samsara}, environment={
            "LD_PRELOAD": str(self.faults),
            "FILE_FAULTS": f"folder={self.directory}/slow/postern.sqlite,stall=10000,while={gate}"})
        # It could not stop with a disk that takes no write.
        running.callback(gate.unlink, missing_ok=True)
        secure = self.gateway("secure", {"samsara": samsara}, wait=False, settings={"server": {"tls": {
            "certificateFile": str(certificates / "certificate.pem"), "keyFile": str(certificates / "key.pem")}}})
        former = self.node("former", simulator)
        waiting = self.node("waiting", simulator, wait=False)
        plain = [self.instance(gateway) for gateway in (busy, shaken, slow, former, waiting)]
        prometheus = running.enter_context(
            Prometheus(self.directory, shortened(RULES.read_text()), plain, [self.instance(secure)]))
        until(prometheus.is_ready, 30, "Prometheus is ready")
        running.callback(stopping.set)

        self.see_health(prometheus, (busy, shaken, slow, former), len(plain) + 1)
        self.certify(certificates, 5)
        self.expect("PosternCertificateExpires", secure, 100)
        self.trouble_upstreams(busy, simulator)
        self.fill_queues(busy, stopping)
        shaken = self.break_store(shaken)
        self.freeze(former, waiting)
        self.slow_down_disk(slow, gate, prometheus)
        self.shrink_disk(busy)
        self.see_alerts(prometheus)
        prometheus.forget("PosternDiskSpaceLow")
        self.nearly_fill_disk(busy)
        running.enter_context(contextlib.closing(self.hold_log(slow)))
        shaken = self.restart(shaken, prometheus)
        owner = self.lose_commits(waiting)
        member = self.thaw(former)
        self.see_alerts(prometheus)
        self.see_panels(prometheus)
        self.cut_off(owner, member)
        self.stall_disk(slow, gate)
        shaken.stop()
        self.expect("PosternDown", shaken)
        self.see_alerts(prometheus)
        self.leave_queues(owner)
        self.see_alerts(prometheus)
        self.see_no_others(prometheus)

    def see_health(self, prometheus, gateways, targets, seconds=15):
        """For a while, gateways that have something to do raise nothing."""
        until(lambda: prometheus.value("sum(up)") == targets, 20, "all gateways are scraped")
        # At the first scrape of one it may not have taken its queues yet.
        until(lambda: not prometheus.alerts(), 20, "all gateways have begun")
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end:
            number += 1
            for gateway in gateways:
                expect(post(gateway, "samsara", number), 202)
            if alerts := prometheus.alerts():
                raise Failure(f"alerts while everything is well: {alerts}")
            time.sleep(0.2)
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        if bad := [rule for rule in rules if rule["health"] != "ok"]:
            raise Failure(f"rules that cannot be evaluated: {bad}")
        self.rules = {rule["name"] for rule in rules}
        print(f"ok    {len(self.rules)} alerts, none of them raised by {targets} gateways that are well, {number} messages each")

    def see_alerts(self, prometheus):
        """What is expected is raised, in time."""
        for name, labels, seconds in self.expected:
            text = until(
                lambda name=name, labels=labels: prometheus.has_raised(name, labels), seconds, f"{name} {labels}", 0.25)
            if "<" in text or "%!" in text:
                raise Failure(f"the summary of {name} is {text}")
            print(f"ok    {name}: {text}")
        self.seen += self.expected
        self.expected = []

    def see_no_others(self, prometheus):
        if missing := self.rules - {name for name, _, _ in self.seen}:
            raise Failure(f"nothing raises {missing}")
        for labels, text in prometheus.raised.items():
            if not any({("alertname", name), *wanted.items()} <= set(labels) for name, wanted, _ in self.seen):
                raise Failure(f"raised without a reason: {dict(labels)}: {text}")
        print("ok    nothing else was raised")

    def see_panels(self, prometheus):
        """Every query of the dashboard finds its series."""
        count = 0
        for _, panels in PANELS:
            for title, _, queries in panels:
                for query, _ in queries:
                    # Without the variables of Grafana, and with the lines that are not shown because they are 0.
                    text = query.replace("{$u}", "").replace("{$s}", "").replace("$u,", "").replace("$s,", "")
                    text = text.replace("$r", "2m").replace(" > 0", " >= 0")
                    if not prometheus.query(text):
                        raise Failure(f"the panel {title} shows nothing: {text}")
                    count += 1
        print(f"ok    {count} queries of the dashboard have results")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary")
    # In a mount namespace, with this database outside of it.
    parser.add_argument("--database", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.database:
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        with Postgres(in_memory=True) as server:
            command = ["unshare", "--mount", *user, sys.executable, __file__, *sys.argv[1:], "--database", server.url()]
            sys.exit(subprocess.run(command, check=False).returncode)
    for program in ("prometheus", "openssl", "cc"):
        if not shutil.which(program):
            sys.exit(f"alerts-check: {program} is not installed")
    with tempfile.TemporaryDirectory() as directory:
        try:
            with contextlib.ExitStack() as running:
                Check(binary_from(options.binary), pathlib.Path(directory), options.database, running).run()
        except Failure as failure:
            sys.exit(f"alerts-check: {failure}")
        finally:
            for disk in pathlib.Path(directory).iterdir():
                if os.path.ismount(disk):
                    subprocess.run(["umount", "--lazy", disk], check=False)
    print("all checks passed")


if __name__ == "__main__":
    main()
