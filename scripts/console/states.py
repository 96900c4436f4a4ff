"""The states that every view may be in: loading, empty, errors, access, trouble of the gateway and of upstreams."""

import contextlib
import time

from browser import check
from looks import examine
from stand_in import StandIn


@contextlib.contextmanager
def opened(page, scenario, route="#/", view="overview", **options):
    with StandIn(scenario, **options) as gateway:
        page.url = gateway.url
        page.theme("light")
        page.resize(1280)
        page.open(route, view)
        yield gateway
        # The page is left before its gateway is, so that the browser's console stays without errors.
        page.driver.get("about:blank")
        page.errors()


def check_loading_is_shown_as_a_shape(page):
    with StandIn("healthy") as gateway:
        page.url = gateway.url
        page.open("#/", "overview")
        gateway.delay = 1.5
        page.go("#/failures")
        page.go("#/messages")
        page.wait(".skeleton")
        page.until(
            lambda: page.run("return getComputedStyle(document.querySelector('.skeleton')).opacity") == "1",
            "the shape is shown",
        )
        gateway.delay = 0
        page.wait("[data-message]")


def check_empty_views_say_what_would_be_there(page):
    with opened(page, "fresh", "#/failures", "failures"):
        check("No upstream has rejected a message that is still kept" in page.text(), page.text())
        page.go("#/messages")
        page.until(lambda: "No message has been accepted yet" in page.text(), "the empty list says so")
        page.go("#/messages?state=failed&errorText=x")
        page.until(lambda: "No message matches these filters" in page.text(), "the filtered list says so")
        page.go("#/gateway")
        page.until(lambda: "Nothing was done to many messages" in page.text(), "no operations")
        check("Simulated upstreams: nothing leaves this machine" in page.text(), "simulators are not named")
    with opened(page, "empty"):
        check("No upstream is configured" in page.text(), page.text())


def check_error_of_a_request_is_shown_in_its_place(page):
    with opened(page, "troubled") as gateway:
        gateway.faults["/v1/messages"] = (500, {}, "The store could not be read.")
        page.go("#/messages")
        page.wait(".problem")
        check("The store could not be read." in page.text(".problem"), page.text(".problem"))
        check("ubj856aeqh6p5" in page.text(".problem"), "the request is not named")
        gateway.faults.clear()
        page.click(".problem .button")
        page.wait("[data-message]")


def check_failed_action_stays_until_it_is_read(page):
    with opened(page, "troubled") as gateway:
        gateway.faults["/v1/upstreams/samsara/pause"] = (503, {}, "The gateway is stopping.")
        page.click('[data-upstream="samsara"] [data-action="pause"]')
        page.wait(".toast.tone-bad")
        examine(page, "failed action")
        check("The gateway is stopping." in page.text(".toast"), page.text(".toast"))
        time.sleep(9)
        check(page.all(".toast.tone-bad"), "the notice has left")
        page.click(".toast .button")
        page.wait_gone(".toast")


def check_key_is_asked_for_and_nothing_is_shown_behind(page):
    with StandIn("troubled", key="postern_secret") as gateway:
        page.url = gateway.url
        page.open("#/")
        page.wait('dialog[data-view="key"]')
        check(not page.all("[data-upstream]"), "data is shown without a key")
        examine(page, "key dialog")
        page.press("\ue00c")
        check(page.all('dialog[data-view="key"][open]'), "Escape closes the key dialog")
        page.press("wrong", "\ue007")
        page.until(lambda: "does not accept this key" in page.text("dialog"), "a wrong key is rejected")
        page.press("postern_secret", "\ue007")
        page.wait("[data-upstream]")
        page.wait_gone("dialog")
        everything = page.run(
            "return document.documentElement.outerHTML + location.href + document.cookie + JSON.stringify({...localStorage}) + JSON.stringify({...sessionStorage})"
        )
        check("postern_secret" not in everything, "the key is in the page, its address, or a store")
        check(all("postern_secret" not in path for _, _, path, _, _ in gateway.requests), "the key is in an address")
        check(all("Cookie" not in headers for _, _, _, headers, _ in gateway.requests), "a cookie is sent")
        # It is removed while the page is open.
        gateway.faults["/v1/upstreams/samsara/pause"] = (503, {}, "The gateway is stopping.")
        page.click('[data-upstream="samsara"] [data-action="pause"]')
        page.wait(".toast")
        gateway.key = "postern_other"
        page.wait('dialog[data-view="key"]')
        check(not page.all("[data-upstream]"), "data of before is shown")
        check(not page.all(".toast"), "a notice of before is shown")
        page.run("document.querySelector('dialog input[type=checkbox]').click()")
        page.press("postern_other", "\ue007")
        page.wait("[data-upstream]")
        page.driver.refresh()
        page.wait("[data-upstream]")
        page.run("sessionStorage.clear()")


def check_missing_scope_is_named_and_the_action_stays(page):
    with StandIn("troubled", key="k", scopes=("read",)) as gateway:
        page.url = gateway.url
        page.open("#/")
        page.wait('dialog[data-view="key"]')
        page.press("k", "\ue007")
        button = page.wait('[data-upstream="samsara"] [data-action="pause"]')
        page.until(
            lambda: (
                page.one('[data-upstream="samsara"] [data-action="pause"]').get_attribute("aria-disabled") == "true"
            ),
            "the action is disabled",
        )
        check(
            "scope admin" in page.one('[data-upstream="samsara"] [data-action="pause"]').get_attribute("title"),
            "the scope is not named",
        )
        button.click()
        time.sleep(0.3)
        check(all(method == "GET" for _, method, *_ in gateway.requests), "a reader steers")
        page.go("#/gateway")
        page.until(lambda: "lacks the scope admin" in page.text(), "the keys say why they are not shown")


def check_limit_is_waited_for(page):
    with opened(page, "healthy") as gateway:
        gateway.faults["/v1/upstreams"] = (429, {"Retry-After": "3"}, "The key may send 2 requests per second.")
        page.wait('[data-banner="limited"]')
        before = len(gateway.requests)
        time.sleep(1.5)
        check(len(gateway.requests) <= before + 1, "it goes on to ask")
        gateway.faults.clear()
        page.wait_gone('[data-banner="limited"]')


def check_health_of_upstreams_is_said_in_words(page):
    with opened(page, "troubled"):
        text = page.text("main")
        for words in (
            "streamone rejected our credentials",
            "curio is not responding",
            "samsara-eu is paused by ops-anna",
            "push-dev rejects our requests",
            "old-hooks is disabled",
        ):
            check(words in text, f"{words!r} is not in {text}")
        for name, health in (
            ("streamone", "unauthorized"),
            ("curio", "down"),
            ("samsara-eu", "paused"),
            ("push-dev", "misconfigured"),
            ("push-prod", "degraded"),
            ("old-hooks", "disabled"),
        ):
            check(page.all(f'[data-upstream="{name}"][data-health="{health}"]'), name)
        for name, words in (
            ("curio", "None of the messages that wait is blamed"),
            ("samsara-eu", "Paused by ops-anna"),
            ("streamone", "It rejected our credentials"),
            ("old-hooks", "until it is enabled again"),
        ):
            page.go(f"#/upstreams/{name}")
            page.until(lambda: words in page.text("main"), f"{name}: {words}")
        check(page.driver.title.startswith("old-hooks · 3 upstreams need you"), page.driver.title)


def check_unready_gateway_is_said_with_its_reasons(page):
    with opened(page, "unready") as gateway:
        page.wait('[data-banner="unready"]')
        text = page.text('[data-banner="unready"]')
        check("the disk is full" in text and "worker seer is stalled" in text and "507" in text, text)
        check("accepts no messages" in page.text("h1"), page.text("h1"))
        examine(page, "unready gateway")
        gateway.ready = True
        page.wait_gone('[data-banner="unready"]', 15)


def check_lost_gateway_is_said_and_recovers_without_a_reload(page):
    with opened(page, "healthy") as gateway:
        page.run("window.stayed = true")
        gateway.is_mute = True
        page.wait('[data-banner="lost"]', 12)
        check(
            page.run("return getComputedStyle(document.querySelector('main > section')).opacity") == "0.55",
            "the figures do not look old",
        )
        check("does not respond" in page.driver.title, page.driver.title)
        gateway.is_mute = False
        page.wait_gone('[data-banner="lost"]', 12)
        check(page.run("return window.stayed"), "the page was loaded again")


def check_books_are_on_the_page_and_balance(page):
    with opened(page, "troubled") as gateway:
        values = {
            element.get_attribute("data-count"): int(element.get_attribute("data-value"))
            for element in page.all(".books [data-count]")
        }
        check(values["accepted"] == len(gateway.messages), values)
        check(values["accepted"] == sum(value for name, value in values.items() if name != "accepted"), values)
        check("balances" in page.text(".books"), page.text(".books"))
        with gateway.lock:
            gateway.upstreams["samsara"]["counts"]["accepted"] += 1
        page.until(lambda: "does not balance" in page.text(".books"), "books that do not balance are said")


def check_history_of_a_message_can_be_followed(page):
    with StandIn("troubled") as gateway:
        page.url = gateway.url
        page.theme("light")
        failed = next(entry["message"]["id"] for entry in gateway.messages if entry["message"]["state"] == "failed")
        page.open(f"#/messages/{failed}", "message")
        steps = [element.get_attribute("data-attempt") for element in page.all("[data-attempt]")]
        check(steps == ["114", "115", "116", "117", "118"], steps)
        text = page.text(".steps")
        check("among 12" in text and "among 3" in text and "alone" in text and "Rejected by itself" in text, text)
        queued = next(entry["message"]["id"] for entry in gateway.messages if entry["message"]["state"] == "queued")
        page.open(f"#/messages/{queued}", "message")
        check(len(page.all("[data-attempt]")) == 8, "many requests are not folded")
        page.click(".steps .between .button")
        page.until(lambda: len(page.all("[data-attempt]")) == 14, "the fold opens")
        check(page.one("main").get_attribute("data-state") == "queued", "the page does not say the state")
