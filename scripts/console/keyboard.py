"""Everything without a mouse."""

import time

from selenium.webdriver.common.keys import Keys

from browser import check
from states import opened


def paused(gateway, name):
    return gateway.upstreams[name]["health"] == "paused"


def check_tab_and_enter_pause_an_upstream(page):
    with opened(page, "healthy") as gateway:
        page.press(Keys.TAB)
        check(page.focused() == "Skip to the content", page.focused())
        page.tab_to('[data-upstream="seer"] [data-action="pause"]')
        outline = page.run("return getComputedStyle(document.activeElement).outlineWidth")
        check(outline == "2px", f"the focus is not visible: {outline}")
        page.press(Keys.ENTER)
        page.until(lambda: paused(gateway, "seer"), "seer is paused")
        page.wait('[data-upstream="seer"] [data-action="resume"]')


def check_the_one_field_pauses_an_upstream(page):
    with opened(page, "healthy") as gateway:
        for opens in ((Keys.CONTROL, "k"), ("/",)):
            if len(opens) == 2:
                from selenium import webdriver

                webdriver.ActionChains(page.driver).key_down(Keys.CONTROL).send_keys("k").key_up(Keys.CONTROL).perform()
            else:
                page.press("/")
            page.wait("dialog.finder")
            page.press(Keys.ESCAPE)
            page.wait_gone("dialog")
        page.press("/")
        page.wait("dialog.finder")
        page.press("pause seer")
        page.until(lambda: "pause seer" in page.text(".found"), "the action is found")
        page.press(Keys.ENTER)
        page.until(lambda: paused(gateway, "seer"), "seer is paused")
        check(not page.all("dialog"), "the field stays open")
        page.press("/")
        page.wait("dialog.finder")
        found = next(entry["message"]["id"] for entry in gateway.messages)
        page.press(found, Keys.ENTER)
        page.wait('main[data-view="message"]')


def check_retry_dialog_takes_and_returns_the_focus(page):
    with opened(page, "troubled", "#/failures", "failures"):
        page.tab_to('[data-action="retry"]')
        page.press(Keys.ENTER)
        page.wait("dialog[data-matched]")
        for _ in range(12):
            page.press(Keys.TAB)
            check(
                page.run(
                    "return document.activeElement === document.body || document.activeElement.closest('dialog') !== null"
                ),
                "the focus leaves the dialog",
            )
        page.press(Keys.ESCAPE)
        page.wait_gone("dialog")
        check(page.focused("e.dataset.action") == "retry", "the focus does not return")


def check_time_range_can_be_typed(page):
    with opened(page, "troubled", "#/upstreams/seer", "upstream"):
        page.run(
            "for (const [name, value] of [['from', '2026-01-31T12:00:00'], ['to', '2026-01-31T13:00:00']]) {"
            "const e = document.querySelector(`input[name=${name}]`); e.focus(); e.value = value; e.dispatchEvent(new Event('change', {bubbles: true})) }"
        )
        page.until(lambda: "createdBefore=" in page.driver.current_url, "the range is in the address")
        check("messages accepted then" in page.text("main"), "the range is not shown")


def check_focus_survives_redraws(page):
    with opened(page, "troubled") as gateway:
        page.tab_to('[data-upstream="seer"] [data-action="pause"]')
        for number in range(10):
            with gateway.lock:
                # The order of the rows changes, too.
                gateway.upstreams["seer"]["health"] = "down" if number % 2 else "up"
            page.press(".", ".")
            time.sleep(0.4)
            check(
                page.focused("e.closest('[data-upstream]')?.dataset.upstream") == "seer",
                f"the focus is lost after {number} redraws",
            )


def check_selection_and_typed_text_survive_redraws(page):
    with opened(page, "troubled", "#/messages", "messages"):
        page.tab_to("input[type=search]")
        page.press("order")
        time.sleep(2.5)
        check(page.focused("e.value") == "order", page.focused("e.value"))
        page.go("#/")
        page.wait(".verdict")
        page.run("getSelection().selectAllChildren(document.querySelector('.reason'))")
        selected = page.run("return String(getSelection())")
        time.sleep(2.5)
        check(page.run("return String(getSelection())")[:20] == selected[:20] and selected, "the selection is lost")


def check_no_shortcut_fires_while_typing(page):
    with opened(page, "troubled", "#/messages?state=failed", "messages") as gateway:
        page.wait("[data-message]")
        page.tab_to("input[type=search]")
        page.press("gorx.t?/jk")
        check(page.focused("e.value") == "gorx.t?/jk", page.focused("e.value"))
        check(not page.all("dialog") and page.all('main[data-view="messages"]'), "a shortcut has fired")
        check(all(method == "GET" for _, method, *_ in gateway.requests), "something was done")


def check_shortcuts_can_be_switched_off(page):
    with opened(page, "troubled"):
        page.run("localStorage.setItem('postern.console', JSON.stringify({shortcuts: false}))")
        page.driver.refresh()
        page.wait("[data-upstream]")
        page.press("?")
        page.press("g", "m")
        time.sleep(0.3)
        check(not page.all("dialog") and page.all('main[data-view="overview"]'), "a shortcut fires")
        page.run("localStorage.clear()")


def check_lists_are_walked_by_keys(page):
    with opened(page, "troubled", "#/messages?state=failed", "messages") as gateway:
        page.wait("[data-message]")
        page.press("j", "j", "k", "j")
        row = page.focused("e.closest('[data-message]').dataset.message")
        check(row == page.all("[data-message]")[1].get_attribute("data-message"), row)
        page.press("x")
        page.wait(".chosen-bar")
        page.press("r")
        page.wait('dialog[data-confirm="retry"][data-matched="1"]')
        page.press(Keys.ESCAPE)
        page.wait_gone("dialog")
        page.press("g", "f")
        page.wait('main[data-view="failures"]')
        page.press("g", "l")
        page.wait('main[data-view="live"]')
        page.press("g", "o")
        page.wait('main[data-view="overview"]')
        check(
            all(method == "GET" or path.endswith("retry") for _, method, path, *_ in gateway.requests),
            "something else was done",
        )
