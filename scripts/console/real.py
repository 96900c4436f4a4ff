"""The console of a real gateway, whose upstreams are simulators."""

import contextlib
import http.server
import json
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from browser import check  # noqa: E402
from harness import Gateway, Simulator, call, free_port, listens, new_key, until  # noqa: E402
from looks import examine  # noqa: E402
from stand_in import EXACT_PAYLOAD  # noqa: E402

JSON = {"Content-Type": "application/json"}
# Where the console keeps its key until the tab is closed, if it is told to.
KEPT = "postern.key"


@contextlib.contextmanager
def gateway_and_simulator(binary, **settings):
    with tempfile.TemporaryDirectory() as directory, Simulator(binary, directory) as simulator:
        upstreams = {
            "samsara": {"url": simulator.url("samsara"), "delivery": {"retryBaseSeconds": 1}},
            "hooks": {"type": "webhook", "url": "http://127.0.0.1:9", "kinds": {"thing": {"path": "/thing"}}},
        }
        # With a listener for operators, probes are served there only.
        has_admin = "server" in settings
        with Gateway(binary, directory, {"upstreams": upstreams, **settings}, wait=not has_admin) as gateway:
            port = settings["server"]["admin"]["port"] if has_admin else gateway.port
            until(lambda: listens(port) and listens(gateway.port), 60, "the gateway listens")
            yield gateway, simulator


def open_console(page, gateway, route="#/", port=None, key=None):
    page.url = f"http://127.0.0.1:{port or gateway.port}/console"
    page.theme("light")
    page.resize(1280)
    page.driver.get("about:blank")
    page.driver.get(page.url + route)
    page.wait('dialog[data-view="key"]')
    page.press(key or gateway.key, "\ue007")
    page.wait_gone('dialog[data-view="key"]')
    page.errors()


def times(page, binary):
    """How soon the overview is there, with 20 000 messages queued, and what its lists cost: (what, values, unit)."""
    paints, figures, blocks, elements = [], [], [], []
    with gateway_and_simulator(binary) as (gateway, _):
        call(gateway.port, "POST", "/v1/upstreams/samsara/pause", "")
        for first in range(0, 20_000, 1000):
            send(gateway, *[event(number) for number in range(first, first + 1000)])
        open_console(page, gateway)
        page.run("sessionStorage.setItem(arguments[0], arguments[1])", KEPT, gateway.key)
        for _ in range(5):
            page.driver.execute_cdp_cmd("Network.clearBrowserCache", {})
            page.driver.refresh()
            page.until(lambda: values(page).get("accepted"), "the figures are there")
            figures.append(page.run("return performance.now()"))
            paints.append(page.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            page.run(
                "window.blocks = [0]; new PerformanceObserver(list => window.blocks.push(...list.getEntries().map(e => e.duration))).observe({type: 'longtask'})"
            )
            page.go("#/messages?state=queued")
            page.wait("[data-message]")
            time.sleep(4)
            blocks.append(page.run("return Math.max(...window.blocks)"))
            elements.append(page.run("return document.querySelectorAll('*').length"))
            page.go("#/")
    return [
        ("first paint of the console, cold", paints, "ms"), ("until it has its figures", figures, "ms"),
        ("longest block of the browser, 20 000 queued", blocks, "ms"), ("elements of a list of messages", elements, ""),
    ]


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


def check_removed_failures_are_no_trouble_any_more(page, binary):
    with gateway_and_simulator(binary) as (gateway, simulator):
        simulator.play("poison=eventName:bad:array")
        bad = send(gateway, *[event(number, "bad") for number in range(2)])
        until(lambda: gateway.upstream()["counts"]["failed"] == 2, 30, "they have failed")
        open_console(page, gateway)
        page.until(lambda: "2 messages failed" in page.text("h1"), "the verdict says so", 20)
        page.go(f"#/messages/{bad[0]}")
        page.click('main [data-action="purge"]')
        page.click('dialog [data-action="confirm"]')
        page.until(lambda: not page.all("main [data-payload]"), "what is gone is not shown", 20)
        page.go("#/messages?state=failed")
        page.wait("[data-message]")
        page.click("thead input")
        page.click('.chosen-bar [data-action="purge"]')
        page.click('dialog [data-action="confirm"]')
        page.until(lambda: not page.all("[data-message]"), "what is gone is not listed", 20)
        page.go("#/")
        page.until(lambda: page.text("h1") == "All is well", "nothing is wrong any more", 20)
        check(values(page)["failed"] == 2, "the books keep them")
        page.errors()


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


def write(page, text):
    page.run(
        "const e = document.querySelector('dialog textarea'); e.value = arguments[0]; e.dispatchEvent(new Event('input', {bubbles: true}))",
        text,
    )


def write_and_send(page, text):
    """In the dialog of *Edit and resend*."""
    write(page, text)
    # The difference shows which text was checked.
    page.until(lambda: text in page.text("dialog .diff") and "would accept it" in page.text("dialog"), "it is accepted")
    page.click('dialog [data-action="confirm"]')
    page.until(lambda: "Keep the old one" in page.text("dialog"), "it is sent")


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
        write(page, '{"n": 1e400')
        page.until(lambda: "line 1" in page.text("dialog"), "the fault is shown")
        write_and_send(page, '{"n": 1.10}')
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
    port = free_port()
    with gateway_and_simulator(binary, server={"admin": {"host": "127.0.0.1", "port": port}}) as (gateway, _):
        check(call(gateway.port, "GET", "/console")[0] == 404, "the main listener serves it")
        found = send(gateway, event(1), path="/v1/samsara/event")[0]
        open_console(page, gateway, f"#/messages/{found}", port=port)
        page.until(lambda: page.one("main").get_attribute("data-state") == "delivered", "the message is shown")
        page.go("#/upstreams/samsara")
        page.click('[data-action="probe"]')
        page.until(lambda: "Test: the upstream" in page.text("main"), "steering works there")
        call(port, "POST", "/v1/upstreams/hooks/pause", "", {"Authorization": f"Bearer {gateway.key}"})
        stored = json.loads(call(gateway.port, "POST", "/v1/hooks/thing", '{"n": 1}', JSON)[2])["id"]
        page.go(f"#/messages/{stored}")
        page.wait("[data-payload]")
        page.click('[data-action="edit"]')
        write_and_send(page, '{"n": 2}')
        listed = json.loads(call(gateway.port, "GET", "/v1/messages?upstream=hooks")[2])["messages"]
        check(len(listed) == 2, listed)


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


def check_key_for_one_upstream_sees_no_other(page, binary):
    with gateway_and_simulator(binary) as (gateway, _):
        send(gateway, event(1))
        call(gateway.port, "POST", "/v1/upstreams/hooks/pause", "")
        call(gateway.port, "POST", "/v1/hooks/thing", json.dumps({"n": 1}), JSON)
        body = json.dumps({"upstream": "hooks", "state": "queued"})
        call(gateway.port, "POST", "/v1/messages/cancel", body, {**JSON, "Prefer": "respond-async"})
        key, entry = new_key(binary)
        settings = json.loads(gateway.config.read_text())
        settings["auth"]["keys"].append({**entry, "name": "samsara-reader", "scopes": ["read"], "upstreams": ["samsara"]})
        gateway.config.write_text(json.dumps(settings))
        os.kill(gateway.pid, signal.SIGHUP)
        headers = {"Authorization": f"Bearer {key}"}
        until(lambda: call(gateway.port, "GET", "/v1/gateway", headers=headers)[0] == 200, 10, "the key is known")
        for path in (
            "/v1/upstreams?include=history", "/v1/history", "/v1/operations", "/v1/stream?limit=1000", "/v1/messages",
            "/v1/gateway",
        ):
            status, _, text = call(gateway.port, "GET", path, headers={**headers, "Accept": "application/json"})
            check(status == 200 and b"hooks" not in text, f"{path}: {status} {text.decode()}")
        open_console(page, gateway, key=key)
        page.wait('[data-upstream="samsara"]')
        for route, view in (
            ("#/", "overview"), ("#/messages", "messages"), ("#/failures", "failures"), ("#/live", "live"),
            ("#/gateway", "gateway"), ("#/upstreams/hooks", "upstream"),
        ):
            page.go(route)
            page.wait(f'main[data-view="{view}"]')
            page.until(lambda: not page.all(".skeleton"), f"{view} has its data")
            if view != "upstream":
                check("hooks" not in page.text("main"), f"{view}: {page.text('main')}")
        check("this key may not see it" in page.text("main"), page.text("main"))
        page.go("#/upstreams/samsara")
        pause = page.wait('main [data-action="pause"]')
        check(pause.get_attribute("aria-disabled") == "true", "a reader may pause")
        check("admin" in page.run("return arguments[0].title + arguments[0].getAttribute('aria-description')", pause), "why")


class ForeignPage(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>foreign</title>")

    def log_message(self, *_):
        pass


def check_page_of_another_port_can_neither_read_nor_steer(page, binary):
    """Without keys, so that the browser would have everything that it takes."""
    script = """
        const [url, method, mode, done] = arguments;
        const headers = method === "GET" || mode === "no-cors" ? {} : {"Content-Type": "application/json"};
        fetch(url, {method, mode, headers, body: method === "POST" ? '{"upstream":"samsara","state":"failed"}' : undefined})
            .then(answer => answer.text()).then(text => done(text), () => done(null));
    """
    with tempfile.TemporaryDirectory() as directory, Simulator(binary, directory) as simulator:
        upstreams = {"samsara": {"url": simulator.url("samsara")}}
        with Gateway(binary, directory, {"upstreams": upstreams}, keys=False) as gateway:
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ForeignPage)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                simulator.play("poison=eventName:bad:array")
                send(gateway, event(1, "bad"))
                until(lambda: gateway.upstream()["counts"]["failed"] == 1, 30, "it has failed")
                before = call(gateway.port, "GET", "/v1/operations")[2]
                page.driver.get(f"http://127.0.0.1:{server.server_port}/")
                own = f"http://127.0.0.1:{gateway.port}"
                for method, path in (
                    ("GET", "/v1/upstreams?include=history"), ("GET", "/v1/history"), ("GET", "/v1/gateway"),
                    ("GET", "/v1/operations"), ("GET", "/v1/stream?limit=10"), ("GET", "/console"),
                    ("POST", "/v1/upstreams/samsara/pause"), ("POST", "/v1/messages/retry"), ("POST", "/v1/messages/purge"),
                    ("POST", "/v1/messages"), ("DELETE", "/v1/operations/1"),
                ):
                    for mode in ("cors", "no-cors"):
                        read = page.driver.execute_async_script(script, own + path, method, mode)
                        check(not read, f"{mode} {method} {path}: {read}")
                check(gateway.upstream()["counts"]["failed"] == 1, "it was retried or removed")
                check(gateway.upstream()["health"] != "paused", "it was paused")
                check(call(gateway.port, "GET", "/v1/operations")[2] == before, "an operation was begun")
            finally:
                server.shutdown()
                page.driver.get("about:blank")
                page.errors()


def check_nine_tabs_are_live(page, binary):
    with gateway_and_simulator(binary) as (gateway, _):
        open_console(page, gateway)
        first, tabs = page.driver.current_window_handle, []
        try:
            for _ in range(8):
                page.driver.switch_to.new_window("tab")
                tabs.append(page.driver.current_window_handle)
                open_console(page, gateway)
            for number, tab in enumerate([first, *tabs]):
                send(gateway, event(number))
                page.driver.switch_to.window(tab)
                page.until(lambda: values(page).get("accepted") == number + 1, f"tab {number} is live")
        finally:
            for tab in tabs:
                page.driver.switch_to.window(tab)
                page.driver.close()
            page.driver.switch_to.window(first)


def check_hundred_thousand_are_cancelled_stopped_and_left_to_themselves(page, binary):
    def choose_all(count):
        """All that match in the list of queued messages, and the dialog that cancels them."""
        page.go("#/messages?state=queued&upstream=samsara")
        page.wait('main[data-view="messages"] [data-message]')
        page.click("thead input")
        page.wait(".chosen-bar")
        page.run(
            "[...document.querySelectorAll('.chosen-bar button')].find(b => b.textContent.includes('that match')).click()"
        )
        page.until(lambda: "that match" in page.text(".chosen-bar p, .chosen-bar"), "all are chosen")
        page.click('.chosen-bar [data-action="cancel"]')
        dialog = page.wait(f'dialog[data-confirm="cancel"][data-matched="{count}"]', 30)
        check(f"{count:,}" in dialog.text, dialog.text)
        page.click("dialog input")
        page.press(str(count))
        confirm = 'dialog [data-action="confirm"]'
        page.until(lambda: page.one(confirm).get_attribute("aria-disabled") is None, "the count is accepted")
        page.click(confirm)

    def counts():
        found = gateway.upstream()["counts"]
        check(found["accepted"] == sum(value for name, value in found.items() if name != "accepted"), found)
        return found

    with gateway_and_simulator(binary) as (gateway, _):
        call(gateway.port, "POST", "/v1/upstreams/samsara/pause", "")
        for first in range(0, 100_000, 1000):
            send(gateway, *[event(number) for number in range(first, first + 1000)])
        open_console(page, gateway)
        choose_all(100_000)
        page.until(lambda: 0 < counts()["cancelled"] < 100_000, "it is going on", 30)
        page.click('[data-action="stop"]')
        page.until(lambda: "Stopped" in page.text(".toasts"), "it says how far it came", 30)
        left = counts()["queued"]
        check(0 < left < 100_000, f"{left} are left")
        time.sleep(1)
        check(counts()["queued"] == left, "it goes on after Stop")
        choose_all(left)
        page.until(lambda: counts()["queued"] < left, "it is going on", 30)
        page.driver.get("about:blank")
        until(lambda: counts()["queued"] == 0, 120, "it goes on without its page")
        check(counts()["cancelled"] == 100_000, counts())
        page.errors()
