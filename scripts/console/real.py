"""The console of a real gateway, whose upstreams are simulators."""

import contextlib
import json
import os
import pathlib
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from browser import check  # noqa: E402
from harness import Gateway, Simulator, call, until  # noqa: E402
from looks import examine  # noqa: E402
from stand_in import EXACT_PAYLOAD  # noqa: E402

JSON = {"Content-Type": "application/json"}


@contextlib.contextmanager
def gateway_and_simulator(binary, **settings):
    with tempfile.TemporaryDirectory() as directory, Simulator(binary, directory) as simulator:
        upstreams = {
            "samsara": {"url": simulator.url("samsara"), "delivery": {"retryBaseSeconds": 1}},
            "hooks": {"type": "webhook", "url": "http://127.0.0.1:9", "kinds": {"thing": {"path": "/thing"}}},
        }
        with Gateway(binary, directory, {"upstreams": upstreams, **settings}) as gateway:
            yield gateway, simulator


def open_console(page, gateway, route="#/", port=None):
    page.url = f"http://127.0.0.1:{port or gateway.port}/console"
    page.theme("light")
    page.resize(1280)
    page.driver.get("about:blank")
    page.run("return 0")
    page.driver.get(page.url + route)
    page.wait('dialog[data-view="key"]')
    page.press(gateway.key, "\ue007")
    page.wait_gone('dialog[data-view="key"]')
    page.errors()


def send(gateway, *events, path="/v1/samsara/event"):
    status, _, answer = call(gateway.port, "POST", path, json.dumps(events), JSON)
    check(status == 202, f"{status} {answer.decode()}")
    return json.loads(answer)["ids"]


def event(number, name="good"):
    return {"sourceId": f"device-{number}", "eventName": name}


def values(page):
    return {
        element.get_attribute("data-count"): int(element.get_attribute("data-value"))
        for element in page.all(".books [data-count]")
    }


def check_views_show_what_has_happened(page, binary):
    with gateway_and_simulator(binary) as (gateway, simulator):
        simulator.play("poison=eventName:bad:array")
        good = send(gateway, *[event(number) for number in range(20)])
        bad = send(gateway, event(1, "bad"), event(2, "bad"))
        call(gateway.port, "POST", "/v1/hooks/thing", json.dumps({"n": 1}), JSON)
        open_console(page, gateway)
        page.until(
            lambda: values(page) and values(page)["accepted"] == 23 and values(page)["failed"] == 2,
            "the books are those of the gateway",
        )
        found = values(page)
        check(found["accepted"] == sum(value for name, value in found.items() if name != "accepted"), found)
        page.wait('[data-upstream="hooks"]')
        for name, route, view in (
            ("overview", "#/", "overview"),
            ("upstream", "#/upstreams/samsara", "upstream"),
            ("messages", "#/messages?state=failed", "messages"),
            ("failures", "#/failures", "failures"),
            ("live", "#/live", "live"),
            ("gateway", "#/gateway", "gateway"),
            ("message", f"#/messages/{bad[0]}", "message"),
            ("delivered", f"#/messages/{good[0]}", "message"),
        ):
            page.go(route)
            page.wait(f'main[data-view="{view}"]')
            page.until(lambda: not page.all(".skeleton"), f"{name} has its data")
            check(not page.all(".problem"), f"{name}: {page.text('main')}")
            examine(page, f"real gateway, {name}")
        errors = page.errors()
        check(not errors, errors)


def check_retry_of_a_group_sends_its_messages(page, binary):
    with gateway_and_simulator(binary) as (gateway, simulator):
        simulator.play("poison=eventName:bad:array")
        bad = send(gateway, *[event(number, "bad") for number in range(5)])
        until(lambda: gateway.upstream()["counts"]["failed"] == 5, 30, "they have failed")
        open_console(page, gateway, "#/failures")
        page.wait('[data-group][data-value="5"]')
        page.click('[data-action="retry"]')
        page.wait('dialog[data-confirm="retry"][data-matched="5"]')
        # One more fails while the dialog is open.
        send(gateway, event(9, "bad"))
        until(lambda: gateway.upstream()["counts"]["failed"] == 6, 30, "one more has failed")
        simulator.play("")
        page.click('dialog [data-action="confirm"]')
        page.wait_gone("dialog")
        until(lambda: gateway.upstream()["counts"]["delivered"] == 5, 30, "they are delivered")
        check(gateway.upstream()["counts"]["failed"] == 1, "the later one was retried, too")
        page.go("#/gateway")
        page.until(lambda: "5 of 5 messages retried" in page.text("main"), "the operation is listed")
        page.go(f"#/messages/{bad[0]}")
        page.wait('main[data-state="delivered"]')


def check_pause_and_its_author_are_shown(page, binary):
    with gateway_and_simulator(binary) as (gateway, _):
        open_console(page, gateway)
        page.click('[data-upstream="samsara"] [data-action="pause"]')
        page.wait('[data-upstream="samsara"][data-health="paused"]')
        until(lambda: gateway.upstream()["health"] == "paused", 10, "it is paused")
        page.until(lambda: "paused by campaign" in page.text("main"), "its author is named")
        page.until(lambda: "paused" in page.text(".events"), "the event is listed", 20)
        page.click('[data-upstream="samsara"] [data-action="resume"]')
        page.wait('[data-upstream="samsara"][data-health="up"]')


def check_payload_is_exact_and_edited_payload_is_sent(page, binary):
    with gateway_and_simulator(binary) as (gateway, simulator):
        call(gateway.port, "POST", "/v1/upstreams/hooks/pause", "")
        status, _, answer = call(gateway.port, "POST", "/v1/hooks/thing", EXACT_PAYLOAD, JSON)
        check(status == 202, answer)
        found = json.loads(answer)["id"]
        open_console(page, gateway, f"#/messages/{found}")
        page.wait("[data-payload]")
        from payloads import without_space

        check(
            without_space(page.content("[data-payload]")) == without_space(EXACT_PAYLOAD),
            page.content("[data-payload]"),
        )
        page.click('[data-action="edit"]')
        page.until(lambda: "would accept it" in page.text("dialog"), "the dry run accepts it")
        page.run(
            "const e = document.querySelector('dialog textarea'); e.value = '{\"n\": 1e400'; e.dispatchEvent(new Event('input', {bubbles: true}))"
        )
        page.until(lambda: "line 1" in page.text("dialog"), "the fault is shown")
        page.run(
            "const e = document.querySelector('dialog textarea'); e.value = '{\"n\": 1.10}'; e.dispatchEvent(new Event('input', {bubbles: true}))"
        )
        page.until(lambda: "would accept it" in page.text("dialog"), "it is accepted")
        page.click('dialog [data-action="confirm"]')
        page.until(lambda: "Sent as a new message" in page.text("dialog"), "it is sent")
        listed = json.loads(call(gateway.port, "GET", "/v1/messages?upstream=hooks&include=payload")[2])["messages"]
        check(len(listed) == 2, listed)
        raw = call(gateway.port, "GET", f"/v1/messages/{listed[-1]['id']}/payload")[2]
        check(raw == b'{"n": 1.10}', raw)


def check_stopped_and_killed_gateway_is_said_and_recovers(page, binary):
    with gateway_and_simulator(binary) as (gateway, _):
        open_console(page, gateway)
        page.wait('[data-upstream="samsara"]')
        page.run("window.stayed = true")
        os.kill(gateway.pid, signal.SIGSTOP)
        page.wait('[data-banner="lost"]', 12)
        os.kill(gateway.pid, signal.SIGCONT)
        page.wait_gone('[data-banner="lost"]', 12)
        settings = json.loads(gateway.config.read_text())
        gateway.kill()
        page.wait('[data-banner="lost"]', 12)
        with Gateway(binary, gateway.directory / "again", settings, port=gateway.port, keys=False):
            page.wait_gone('[data-banner="lost"]', 15)
            page.wait('[data-upstream="samsara"]')
            check(page.run("return window.stayed"), "the page was loaded again")
        page.driver.get("about:blank")


def check_admin_listener_serves_the_console_alone(page, binary):
    from harness import free_port

    port = free_port()
    with gateway_and_simulator(binary, server={"admin": {"host": "127.0.0.1", "port": port}}) as (gateway, _):
        check(call(gateway.port, "GET", "/console")[0] == 404, "the main listener serves it")
        found = send(gateway, event(1), path="/v1/samsara/event")[0]
        open_console(page, gateway, f"#/messages/{found}", port=port)
        page.until(lambda: page.one("main").get_attribute("data-state") == "delivered", "the message is shown")
        page.go("#/upstreams/samsara")
        page.click('[data-action="probe"]')
        page.until(lambda: "Test: the upstream" in page.text("main"), "steering works there")


def check_key_is_in_no_log_line(page, binary):
    with gateway_and_simulator(binary, log={"level": "debug"}) as (gateway, _):
        open_console(page, gateway)
        page.wait('[data-upstream="samsara"]')
        page.go("#/messages")
        time.sleep(1)
        check(gateway.key not in gateway.log.read_text(errors="replace"), "the key is in the log")
        check(
            gateway.key
            not in page.run(
                "return location.href + document.cookie + JSON.stringify({...localStorage}) + JSON.stringify({...sessionStorage}) + document.documentElement.outerHTML"
            ),
            "the key is in the page",
        )
