#!/usr/bin/env python3
"""Writes the dashboard of deploy/grafana from the list of panels below, and the tests of the alerts from the list of
what makes each of them fire. With --check it writes nothing: it compares, and runs promtool if it is installed.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
DASHBOARD = TOP / "deploy/grafana/postern.json"
RULES = TOP / "deploy/prometheus/alerts.yaml"
TESTS = TOP / "deploy/prometheus/alerts.test.yaml"

# Title, unit of Grafana, and queries with their legends. `$s` is the selector of the dashboard's variables, `$u` the
# same with the upstream; `$r` is the interval of a rate.
def whole(gauge, *labels):
    """The sum of a gauge of the store over all stores: gateways with PostgreSQL, which share one, export the same values."""
    by = ", ".join(labels)
    return (f"sum by ({by}) ({gauge} unless on (job, instance) postern_store_up)"
            f" or max by ({by}) ({gauge} and on (job, instance) postern_store_up)")


PANELS = [
    ("Traffic", [
        ("Accepted", "cps", [("sum by (upstream) (rate(postern_messages_accepted_total{$u}[$r]))", "{{upstream}}")]),
        ("Delivered", "cps",
         [('sum by (upstream) (rate(postern_messages_settled_total{$u,state="delivered"}[$r]))', "{{upstream}}")]),
        ("Refused", "cps",
         [("sum by (upstream, reason) (rate(postern_messages_refused_total{$u}[$r])) > 0", "{{upstream}}: {{reason}}")]),
        ("Failed, dropped, expired, cancelled", "cps",
         [('sum by (upstream, state) (rate(postern_messages_settled_total{$u,state!="delivered"}[$r])) > 0',
           "{{upstream}}: {{state}}")]),
        ("Requests of SDKs", "reqps",
         [("sum by (upstream, outcome) (rate(postern_sdk_requests_total{$u}[$r])) > 0", "{{upstream}}: {{outcome}}")]),
    ]),
    ("Queue", [
        ("Queued messages", "short", [(whole('postern_outbox_messages{$u,state="queued"}', "upstream"), "{{upstream}}")]),
        ("Queued payloads", "bytes", [(whole("postern_outbox_bytes{$u}", "upstream"), "{{upstream}}")]),
        ("Age of the oldest message that is due", "s",
         [("max by (upstream) (postern_outbox_oldest_queued_seconds{$u})", "{{upstream}}")]),
        ("Until the queue is empty", "s",
         [("max by (upstream) (postern_outbox_drain_seconds{$u})", "{{upstream}}")]),
        ("Dead letters", "short", [(whole('postern_outbox_messages{$u,state="failed"}', "upstream"), "{{upstream}}")]),
    ]),
    ("Upstreams", [
        ("Health", "short", [("max by (upstream, health) (postern_upstream_health{$u}) == 1", "{{upstream}}: {{health}}")]),
        ("Circuit", "short", [("max by (upstream, state) (postern_circuit_state{$u}) == 1", "{{upstream}}: {{state}}")]),
        ("Requests by outcome", "reqps",
         [("sum by (upstream, outcome) (rate(postern_attempts_total{$u}[$r])) > 0", "{{upstream}}: {{outcome}}")]),
        ("Time of a request, 99 of 100", "s",
         [("histogram_quantile(0.99, sum by (upstream, le) (rate(postern_attempt_duration_seconds_bucket{$u}[$r])))",
           "{{upstream}}")]),
        ("Messages in a request, mean", "short",
         [("sum by (upstream) (rate(postern_batch_messages_sum{$u}[$r]))"
           " / sum by (upstream) (rate(postern_batch_messages_count{$u}[$r]))", "{{upstream}}")]),
        ("Ambiguous requests", "reqps",
         [("sum by (upstream) (rate(postern_ambiguous_sends_total{$u}[$r]))", "{{upstream}}")]),
        ("Replayed messages", "cps",
         [("sum by (upstream, outcome) (rate(postern_messages_replayed_total{$u}[$r])) > 0", "{{upstream}}: {{outcome}}")]),
        ("Steps of sequences", "cps",
         [("sum by (upstream, step, outcome) (rate(postern_steps_total{$u}[$r])) > 0", "{{upstream}}: {{step}} {{outcome}}")]),
        ("Token requests", "reqps",
         [("sum by (upstream, outcome) (rate(postern_token_refreshes_total{$u}[$r]))", "{{upstream}}: {{outcome}}")]),
        ("Limit of requests", "reqps",
         [("max by (upstream) (postern_request_rate_limit{$u}) > 0", "{{upstream}}"),
          ("max by (upstream, kind) (postern_kind_request_rate_limit{$u}) > 0", "{{upstream}}: {{kind}}")]),
        ("Endpoints that reject most messages", "short",
         [("max by (upstream) (postern_guarded_endpoints{$u})", "{{upstream}}")]),
    ]),
    ("Store", [
        ("Time of a commit", "s",
         [(f"histogram_quantile({q}, sum by (le) (rate(postern_commit_duration_seconds_bucket{{$s}}[$r])))", f"{p} of 100")
          for q, p in ((0.5, 50), (0.99, 99))]),
        ("Messages in a commit, mean", "short",
         [("sum(rate(postern_commit_messages_sum{$s}[$r])) / sum(rate(postern_commit_messages_count{$s}[$r]))", "mean")]),
        ("Disk", "bytes", [("postern_store_bytes{$s}", "store {{instance}}"),
                           ("postern_store_wal_bytes{$s}", "write-ahead log {{instance}}"),
                           ("postern_store_free_bytes{$s}", "free {{instance}}")]),
        ("Messages erased", "cps", [("sum by (upstream) (rate(postern_messages_erased_total{$u}[$r])) > 0", "{{upstream}}")]),
        ("Ledger that does not balance", "short",
         [(whole("postern_outbox_unbalanced_messages{$u}", "upstream"), "{{upstream}}")]),
    ]),
    ("PostgreSQL", [
        ("Gateways that reach the database", "short", [("postern_store_up{$s}", "{{instance}}")]),
        ("Queues that a gateway works on", "short", [("postern_queues_owned{$s}", "{{instance}}")]),
        ("Queues that changed hands", "cps",
         [("sum by (instance, reason) (rate(postern_queue_moves_total{$s}[$r])) > 0", "{{instance}}: {{reason}}")]),
        ("Lease", "s", [("postern_node_lease_seconds{$s}", "{{instance}}")]),
        ("Time of a round trip, 99 of 100", "s",
         [("histogram_quantile(0.99, sum by (instance, le) (rate(postern_store_round_trip_seconds_bucket{$s}[$r])))",
           "{{instance}}")]),
        ("Connections that were replaced", "cps",
         [("sum by (instance) (rate(postern_store_reconnects_total{$s}[$r]))", "{{instance}}")]),
        ("Transactions that were run again", "cps",
         [("sum by (code) (rate(postern_store_retries_total{$s}[$r]))", "{{code}}")]),
        ("Until commits of others are counted", "s", [("postern_commit_log_lag_seconds{$s}", "{{instance}}")]),
        ("Clock, ahead of that of the database", "s", [("postern_clock_offset_seconds{$s}", "{{instance}}")]),
        ("Commits in doubt or lost, and takeovers", "cps",
         [("sum by (outcome) (rate(postern_store_unknown_commits_total{$s}[$r]))", "in doubt: {{outcome}}"),
          ("sum(rate(postern_store_lost_commits_total{$s}[$r]))", "lost"),
          ("sum(rate(postern_fenced_total{$s}[$r]))", "takeovers")]),
    ]),
    ("Process", [
        ("Requests by status", "reqps", [("sum by (status) (rate(postern_http_requests_total{$s}[$r])) > 0", "{{status}}")]),
        ("Time of a request to store messages, 99 of 100", "s",
         [('histogram_quantile(0.99, sum by (route, le) (rate(postern_http_request_duration_seconds_bucket{$s,'
           'route=~"/v1/.upstream./.kind.|/v1/messages|/v1/cloudevents"}[$r])))', "{{route}}")]),
        ("Stalled workers", "short", [("sum by (worker) (postern_worker_stalled{$s}) > 0", "{{worker}}")]),
        ("Processor", "percentunit", [("rate(process_cpu_seconds_total{$s}[$r])", "{{instance}}")]),
        ("Memory", "bytes", [("process_resident_memory_bytes{$s}", "{{instance}}")]),
        ("Descriptors", "short", [("process_open_fds{$s}", "open {{instance}}"), ("process_max_fds{$s}", "limit {{instance}}")]),
        ("Certificate is valid for", "s", [("postern_tls_certificate_expiry_seconds{$s}", "{{instance}}")]),
        ("Version", "short", [("count by (version) (postern_build_info{$s})", "{{version}}")]),
    ]),
]

# What makes each alert fire, in the notation of promtool, one value a minute; at which minute it has fired; its labels
# besides the severity; and its summary. A series with nothing but values belongs to one of the others, or must not fire.
G = 1 << 30
FIRES = {
    "PosternDown": [('up{job="postern",instance="a"}', "1 0x9", 4, 'job="postern",instance="a"',
         "The gateway a cannot be scraped.")],
    "PosternRestarts": [
        ('process_start_time_seconds{job="postern",instance="a"}', "1 2 3 4 4 4", 5, 'job="postern",instance="a"',
         "The gateway a started 3 times in 15 minutes."),
        ('postern_build_info{job="postern",instance="a",version="1"}', "1x9"),
        # Another program, which restarts as often.
        ('process_start_time_seconds{job="other",instance="b"}', "1 2 3 4 4 4")],
    "PosternWorkerStalled": [('postern_worker_stalled{instance="a",worker="writer"}', "0 1x9", 3, 'instance="a",worker="writer"',
         "Worker writer of a makes no progress.")],
    "PosternUnbalanced": [('postern_outbox_unbalanced_messages{upstream="a"}', "0 3", 1, 'upstream="a"',
         "The ledger of a differs by 3 messages.")],
    "PosternMessagesWait": [
        ('postern_outbox_oldest_queued_seconds{upstream="a"}', "0+60x30", 21, 'upstream="a"',
         "A message for a has been due for 21m 0s."),
        # A batch that is always a little late.
        ('postern_outbox_oldest_queued_seconds{upstream="b"}', "600x30")],
    "PosternUpstreamDown": [
        ('postern_upstream_health{upstream="a",health="down"}', "0 1x20", 12, 'upstream="a",health="down"',
         "The upstream a is down."),
        # Back within ten minutes, now and then.
        ('postern_upstream_health{upstream="b",health="down"}', "1 1 1 1 0 1 1 1 1 0 1 1 1 1 0")],
    "PosternUpstreamUnauthorized": [
        ('postern_upstream_health{upstream="a",health="unauthorized"}', "0 1x9", 4, 'upstream="a",health="unauthorized"',
         "The upstream a is unauthorized; nothing is delivered to it."),
        ('postern_upstream_health{upstream="b",health="misconfigured"}', "0 1x9", 4, 'upstream="b",health="misconfigured"',
         "The upstream b is misconfigured; nothing is delivered to it."),
        ('postern_upstream_health{upstream="c",health="paused"}', "1x9")],
    "PosternMessagesFail": [
        ('postern_messages_settled_total{upstream="a",state="failed"}', "0 0 1 1 1", 4, 'upstream="a",state="failed"',
         "Messages for a fail; they are kept as dead letters."),
        ('postern_messages_settled_total{upstream="b",state="failed"}', "7x9"),
        ('postern_messages_settled_total{upstream="c",state="delivered"}', "0+5x9")],
    "PosternMessagesLost": [
        ('postern_messages_settled_total{upstream="a",state="dropped"}', "0 0 4 4 4", 4, 'upstream="a",state="dropped"',
         "Messages for a are dropped by the settings."),
        ('postern_messages_settled_total{upstream="b",state="cancelled"}', "0+5x9")],
    "PosternMessagesRefused": [
        ('postern_messages_refused_total{upstream="a",reason="disk-full"}', "0 0+5x15", 9, 'upstream="a",reason="disk-full"',
         "Messages for a are refused (disk-full)."),
        ('postern_messages_refused_total{upstream="a",reason="store-lost"}', "0 0+5x15", 9, 'upstream="a",reason="store-lost"',
         "Messages for a are refused (store-lost)."),
        ('postern_messages_refused_total{upstream="a",reason="invalid-payload"}', "0+5x15")],
    "PosternDiskSpaceLow": [
        ('postern_store_free_bytes{instance="a"}', f"{G // 2}x20", 6, 'instance="a"',
         "512MiB are left on the disk of the store of a."),
        # 12 GiB, of which a GiB goes in ten minutes.
        ('postern_store_free_bytes{instance="b"}', f"{12 * G}-{G // 10}x20", 9, 'instance="b"',
         "11.1GiB are left on the disk of the store of b."),
        ('postern_store_free_bytes{instance="c"}', f"{100 * G}-{G // 10}x20"),
        ('postern_store_free_bytes{instance="d"}', f"{5 * G}x20")],
    "PosternStoreLarge": [('postern_store_bytes{instance="a"}', f"{11 * G}x20", 16, 'instance="a"',
         "The store of a has 11GiB."),
                          ('postern_store_bytes{instance="b"}', f"{9 * G}x20")],
    "PosternLogGrows": [('postern_store_wal_bytes{instance="a"}', f"{G // 2}x9", 6, 'instance="a"',
         "The write-ahead log of a has 512MiB."),
                        ('postern_store_wal_bytes{instance="b"}', f"{G // 300}x9")],
    "PosternCommitsSlow": [
        ('postern_commit_duration_seconds_bucket{instance="a",le="0.5"}', "0+10x20", 15, 'instance="a"',
         "One commit in a hundred takes 990ms on a."),
        ('postern_commit_duration_seconds_bucket{instance="a",le="1"}', "0+20x20"),
        ('postern_commit_duration_seconds_bucket{instance="a",le="+Inf"}', "0+20x20"),
        ('postern_commit_duration_seconds_bucket{instance="b",le="0.5"}', "0+20x20"),
        ('postern_commit_duration_seconds_bucket{instance="b",le="+Inf"}', "0+20x20")],
    "PosternStoreUnreachable": [('postern_store_up{instance="a"}', "1 0x9", 3, 'instance="a"',
         "a cannot reach the database of its store.")],
    "PosternQueuesWithoutOwner": [
        ('postern_queues_owned{job="postern",instance="a"}', "3 0x9", 4, 'job="postern"',
         "No gateway works on the queues of postern."),
        ('postern_queues_owned{job="postern",instance="b"}', "0x9"),
        ('postern_queues_owned{job="other",instance="c"}', "0 3x9"),
        ('postern_queues_owned{job="other",instance="d"}', "0x9")],
    "PosternClockOff": [
        ('postern_clock_offset_seconds{instance="a"}', "0 -20x9", 7, 'instance="a"',
         "The clock of a differs by -20s from that of the database."),
        ('postern_clock_offset_seconds{instance="b"}', "3x9")],
    "PosternCommitsLost": [
        ('postern_store_lost_commits_total{job="postern",instance="a"}', "0 0 2 2", 3, 'job="postern"',
         "The database of postern lost confirmed commits."),
        ('postern_store_lost_commits_total{job="postern",instance="b"}', "0 0 0 2"),
        ('postern_store_lost_commits_total{job="other",instance="c"}', "2x9"),
        ('postern_store_lost_commits_total{job="other",instance="d"}', "0 0 2 2")],
    "PosternFenced": [
        ('postern_fenced_total{instance="a"}', "0 0 2 2", 3, 'instance="a"',
         "a has ended a gateway that was silent."),
        ('postern_fenced_total{instance="b"}', "0x9")],
    "PosternCertificateExpires": [
        ('postern_tls_certificate_expiry_seconds{instance="a"}', f"{13 * 86400}-60x90", 70, 'instance="a"',
         "The certificate of a expires in 12d 22h 50m 0s."),
        ('postern_tls_certificate_expiry_seconds{instance="b"}', f"{30 * 86400}-60x90")],
}


def dashboard():
    """The dashboard, three panels in a row, under a heading for each group."""
    panels, y = [], 0
    source = {"type": "prometheus", "uid": "${source}"}
    for heading, group in PANELS:
        panels.append({"id": len(panels) + 1, "type": "row", "title": heading, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        y += 1
        for index, (title, unit, queries) in enumerate(group):
            targets = [{"refId": chr(65 + number), "datasource": source, "legendFormat": legend, "expr": selected(query)}
                       for number, (query, legend) in enumerate(queries)]
            panels.append({
                "id": len(panels) + 1, "type": "timeseries", "title": title, "datasource": source, "targets": targets,
                "gridPos": {"x": index % 3 * 8, "y": y + index // 3 * 7, "w": 8, "h": 7},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}})
        y += (len(group) + 2) // 3 * 7

    def variable(name, label, query):
        return {"name": name, "label": label, "type": "query", "datasource": source, "query": query, "refresh": 2,
                "includeAll": True, "allValue": ".*", "multi": True, "current": {"text": "All", "value": "$__all"}}

    return {
        "uid": "postern", "title": "Postern", "tags": ["postern"], "schemaVersion": 38, "editable": True,
        "refresh": "30s", "time": {"from": "now-6h", "to": "now"}, "panels": panels,
        "templating": {"list": [
            {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
            variable("instance", "Gateway", "label_values(postern_build_info, instance)"),
            variable("upstream", "Upstream",
                     'label_values(postern_outbox_bytes{instance=~"$instance"}, upstream)')]}}


def selected(query):
    gateway = 'instance=~"$instance"'
    return (query.replace("$u", f'{gateway},upstream=~"$upstream"').replace("$s", gateway)
            .replace("$r", "$__rate_interval"))


def tests(rules):
    """The unit tests of promtool, one for each alert."""
    severities = dict(re.findall(r"- alert: (\w+)\n(?:.*\n)*?\s+labels: \{severity: (\w+)\}", rules))
    if set(severities) != set(FIRES):
        sys.exit(f"alerts without a test, or tests without an alert: {set(severities) ^ set(FIRES)}")
    lines = ["# Written by scripts/monitoring.py.", "rule_files: [alerts.yaml]", "evaluation_interval: 1m", "tests:"]
    for alert, series in FIRES.items():
        lines += [f"  - name: {alert}", "    interval: 1m", "    input_series:"]
        for one in series:
            lines += [f"      - series: '{one[0]}'", f"        values: '{one[1]}'"]
        fired = [one for one in series if len(one) > 2]
        last = max(one[2] for one in fired)
        lines += ["    alert_rule_test:", f"      - {{eval_time: 0m, alertname: {alert}}}",
                  f"      - eval_time: {last}m", f"        alertname: {alert}", "        exp_alerts:"]
        for one in fired:
            labels = ", ".join(part.replace("=", ": ", 1) for part in one[3].split(","))
            lines += [f"          - exp_labels: {{{labels}, severity: {severities[alert]}}}",
                      f"            exp_annotations: {{summary: '{one[4]}'}}"]
    return "\n".join(lines) + "\n"


def main():
    written = {DASHBOARD: json.dumps(dashboard(), indent=1) + "\n", TESTS: tests(RULES.read_text())}
    if sys.argv[1:] != ["--check"]:
        for path, text in written.items():
            path.write_text(text)
        return
    for path, text in written.items():
        if path.read_text() != text:
            sys.exit(f"{path.relative_to(TOP)} is out of date: run scripts/monitoring.py")
    if not shutil.which("promtool"):
        print("promtool (Debian: prometheus) is not installed: the rules are not checked")
        return
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(TESTS)]):
        subprocess.run(["promtool", *command], check=True)
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            # Only the variables of Grafana are not PromQL.
            query = target["expr"].replace("$__rate_interval", "5m")
            rule = {"groups": [{"name": "g", "rules": [{"record": "r", "expr": query}]}]}
            subprocess.run(["promtool", "check", "rules", "/dev/stdin"], input=json.dumps(rule), text=True, check=True,
                           stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
