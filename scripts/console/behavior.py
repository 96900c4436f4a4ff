"""How the console behaves over time: what it asks, when it does not, and what stays where it is."""

import time

from browser import check
from looks import examine
from stand_in import StandIn, message_id
from states import opened


def rate(gateway, seconds):
    """Requests to the API in a second."""
    before = len(gateway.requests)
    time.sleep(seconds)
    return (len(gateway.requests) - before) / seconds


def check_open_page_asks_little(page):
    with opened(page, "troubled", messages=60) as gateway:
        failed = next(entry["message"]["id"] for entry in gateway.messages if entry["message"]["state"] == "failed")
        for route, most in (
            ("#/", 0.7),
            ("#/upstreams/seer", 0.7),
            (f"#/messages/{failed}", 0.7),
            ("#/messages", 0.7),
            ("#/failures", 0.7),
            ("#/live", 1.5),
        ):
            page.go(route)
            # What a view reads when it is opened does not count.
            time.sleep(2)
            found = rate(gateway, 15)
            check(found <= most + 0.067, f"{route}: {found} requests a second")


def check_hidden_page_asks_nothing(page):
    with opened(page, "healthy") as gateway:
        page.go("#/live")
        time.sleep(1)
        page.hide(True)
        time.sleep(2)
        check(rate(gateway, 15) == 0, "a hidden page asks")
        page.hide(False)
        before = len(gateway.requests)
        page.until(lambda: len(gateway.requests) > before, "a page that is shown again asks at once", 2)


def check_held_page_asks_nothing(page):
    with opened(page, "healthy") as gateway:
        page.press(".")
        page.until(lambda: "Updates are held" in page.text(), "it says that it is held")
        examine(page, "held page")
        time.sleep(1)
        check(rate(gateway, 5) == 0, "a held page asks")
        page.press(".")
        before = len(gateway.requests)
        page.until(lambda: len(gateway.requests) > before, "it goes on", 3)


def check_slow_answers_are_asked_for_less_often(page):
    with opened(page, "healthy") as gateway:
        gateway.delay = 1
        page.until(lambda: "Every 7 s" in page.text("header"), "the interval grows", 15)
        gateway.delay = 0
        page.until(lambda: "Live" in page.text(".tools"), "the interval shrinks again", 15)


def check_new_messages_do_not_move_the_rows(page):
    with opened(page, "healthy", "#/messages", "messages") as gateway:
        page.wait("[data-message]")
        first = page.one("[data-message]").get_attribute("data-message")
        for _ in range(12):
            gateway.add("samsara", "queued")
        page.until(lambda: "12 new" in page.text("main"), "new messages are counted", 15)
        check(page.one("[data-message]").get_attribute("data-message") == first, "the rows have moved")
        page.click("main .button.wide")
        page.until(
            lambda: page.one("[data-message]").get_attribute("data-message") != first, "they are shown when asked for"
        )


def check_long_lists_are_quick_and_small(page):
    with StandIn("large") as gateway:
        page.url = gateway.url
        page.resize(1280)
        page.theme("light")
        page.open("#/", "overview")
        for route in ("#/messages?state=queued", "#/messages?state=failed", "#/failures", "#/upstreams/samsara"):
            page.run(
                "window.blocks = []; new PerformanceObserver(list => window.blocks.push(...list.getEntries().map(e => e.duration))).observe({type: 'longtask'})"
            )
            started = time.monotonic()
            page.go(route)
            selector = (
                "[data-group]" if "failures" in route else "[data-lane]" if "upstreams" in route else "[data-message]"
            )
            page.wait(selector)
            took = time.monotonic() - started
            check(took < 1, f"{route} took {took:.2f} s")
            elements = page.run("return document.querySelectorAll('*').length")
            check(elements <= 4000, f"{route}: {elements} elements")
            blocks = page.run("return window.blocks")
            check(max(blocks, default=0) <= 200, f"{route}: the browser was blocked for {max(blocks, default=0)} ms")
        page.go("#/messages?state=queued")
        page.wait("[data-message]")
        check(len(page.all("[data-message]")) == 50, "a page has not 50 rows")
        # Older, and back.
        first = page.one("[data-message]").get_attribute("data-message")
        page.run("[...document.querySelectorAll('main nav a')].find(a => a.textContent === 'Older').click()")
        page.until(lambda: page.one("[data-message]").get_attribute("data-message") != first, "Older")
        page.driver.back()
        page.until(lambda: page.one("[data-message]").get_attribute("data-message") == first, "Back of the browser")


def check_every_figure_leads_to_its_list(page):
    with opened(page, "troubled"):
        for state in ("queued", "failed", "delivered", "cancelled", "dropped", "expired"):
            page.go("#/")
            page.wait(f'.books [data-count="{state}"] a')
            page.click(f'.books [data-count="{state}"] a')
            page.wait('main[data-view="messages"]')
            page.wait("[data-message]")
            states = {row.get_attribute("data-state") for row in page.all("[data-message]")}
            check(states == {state}, states)
        page.driver.back()
        page.wait('main[data-view="overview"]')


def check_addresses_hold_what_a_view_shows(page):
    with opened(page, "troubled", "#/messages?state=failed&upstream=samsara", "messages"):
        page.wait("[data-message]")
        check(
            page.run("return document.querySelectorAll('.filters select')[0].value") == "samsara",
            "the filter is not shown",
        )
        page.go("#/messages?state=failed&createdAfter=2026-01-31T12:00:00.000Z")
        page.until(lambda: page.all("input[type=datetime-local]"), "a range is shown")
        page.run("localStorage.clear()")
        for times, shown in (("utc", "2026-01-31T12:00"),):
            page.run("localStorage.setItem('postern.console', JSON.stringify({times: arguments[0]}))", times)
            page.driver.refresh()
            page.wait("input[type=datetime-local]")
            check(
                page.one("input[type=datetime-local]").get_attribute("value").startswith(shown),
                "fields do not follow the zone",
            )
        page.run("localStorage.clear()")


def check_charts_have_figures_and_a_range(page):
    with opened(page, "healthy", "#/upstreams/seer", "upstream"):
        for name in ("accepted", "queued", "oldestSeconds", "requestP50Ms"):
            chart = page.wait(f'[data-chart="{name}"]')
            check("now" in chart.find_element("css selector", "svg[role=img]").get_attribute("aria-label"), name)
        page.click('[data-chart="accepted"] summary')
        page.until(lambda: len(page.all('[data-chart="accepted"] tbody tr')) == 60, "the figures are a table")
        from selenium import webdriver

        svg = page.one('[data-chart="queued"] > svg')
        page.run("arguments[0].scrollIntoView({block: 'center'})", svg)
        webdriver.ActionChains(page.driver).move_to_element_with_offset(svg, -100, 0).click_and_hold().move_by_offset(
            150, 0
        ).release().perform()
        page.until(
            lambda: "createdAfter=" in page.driver.current_url and "createdBefore=" in page.driver.current_url,
            "dragging selects a range",
        )
        check("messages accepted then" in page.text("main"), "the range offers its messages")


def check_groups_of_several_pages_are_merged_by_the_minute(page):
    def group(count, last, minutes):
        """Of the minutes before its last one: {minutes ago: failures}."""
        return {
            "id": "0123456789abcdef", "class": "refused", "status": 400, "detail": "HTTP 400", "count": count,
            "sample": message_id(1), "firstAt": f"2026-11-21T10:{last}:01.000Z", "lastAt": f"2026-11-21T10:{last}:59.000Z",
            "perMinute": [minutes.get(59 - index, 0) for index in range(60)],
        }

    with opened(page, "fresh") as gateway:
        # The same failures of 10:20 are four minutes before the end of the first page, and the last of the second.
        gateway.failure_pages = [[group(7, 24, {4: 3, 0: 4})], [group(5, 20, {0: 4, 57: 1})]]
        page.go("#/failures?upstream=samsara")
        page.wait('[data-group][data-value="12"]')
        check(page.one(".group-bars svg").get_attribute("aria-label") == "At most 7 failures a minute", "they are added")
        bars = page.one(".group-bars .chart-bars").get_attribute("d").count("Z")
        check(bars == 2, f"{bars} bars; what lies before the hour is left out")


def check_saved_views_are_kept_and_limited(page):
    with opened(page, "healthy", "#/messages?state=failed&upstream=samsara", "messages"):
        page.run("localStorage.clear()")
        page.driver.refresh()
        page.wait(".menu summary")
        page.click(".menu summary")
        page.click(".menu .panel > .button")
        page.wait("dialog input")
        page.press("Failures of samsara", "\ue007")
        page.wait_gone("dialog")
        page.driver.refresh()
        page.wait(".menu summary")
        page.click(".menu summary")
        page.until(lambda: "Failures of samsara" in page.text(".menu"), "the view is kept")
        page.run(
            "localStorage.setItem('postern.console', JSON.stringify({views: [{name: 'x', address: 'javascript:window.pwned=1'}, {name: 'y', address: '#/live'}]}))"
        )
        page.driver.refresh()
        page.wait(".menu summary")
        page.click(".menu summary")
        check(
            page.run("return [...document.querySelectorAll('.menu .panel a')].map(a => a.getAttribute('href')).join()")
            == "#/live",
            "a stored address that leads elsewhere is used",
        )
        page.run("localStorage.clear()")
