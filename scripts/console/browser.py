"""Headless Chromium with the console open: what the checks of the console share."""

import contextlib
import json
import time

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

WIDTHS = {"narrow": 390, "wide": 1280}
THEMES = ("light", "dark")


class Failure(Exception):
    """Something is not as promised; the text is for people."""


def check(condition, what):
    if not condition:
        raise Failure(what)


class Page:
    """A tab. `url` is the address of the console."""

    def __init__(self, driver, url):
        self.driver = driver
        self.url = url

    def open(self, route="#/", view=None):
        """Loads the page at a route, and waits until the view has its data."""
        self.driver.get("about:blank")
        self.driver.get(self.url + route)
        if view:
            self.wait(f'main[data-view="{view}"]')
            self.until(lambda: not self.all(".skeleton"), "the view has its data")

    def go(self, route):
        self.driver.execute_script("location.hash = arguments[0]", route)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        found = self.all(selector)
        check(found, f"there is no {selector}")
        return found[0]

    def until(self, condition, what, seconds=10):
        deadline = time.monotonic() + seconds
        while True:
            try:
                if value := condition():
                    return value
            except (WebDriverException, Failure):
                pass
            if time.monotonic() > deadline:
                raise Failure(f"not within {seconds} s: {what}")
            time.sleep(0.03)

    def wait(self, selector, seconds=10):
        return self.until(lambda: self.all(selector), f"there is {selector}", seconds)[0]

    def wait_gone(self, selector, seconds=10):
        self.until(lambda: not self.all(selector), f"{selector} is gone", seconds)

    def text(self, selector="body"):
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def content(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def click(self, selector):
        """Clicks an element once it has come to rest: what is above it may still be loading."""
        places = [None]

        def rests():
            places.append(
                self.run(
                    "const e = document.querySelector(arguments[0]); if (!e) return null; e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); return [r.x, r.y]",
                    selector,
                )
            )
            return places[-1] is not None and places[-1] == places[-2]

        self.until(rests, selector)
        self.one(selector).click()

    def press(self, *keys):
        """Presses keys, wherever the focus is."""
        actions = webdriver.ActionChains(self.driver)
        for key in keys:
            actions.send_keys(key)
        actions.perform()

    def focused(self, expression="e.textContent"):
        return self.run(f"const e = document.activeElement; return {expression}")

    def tab_to(self, selector, most=200):
        """Presses Tab until the focus is on an element that matches."""
        for _ in range(most):
            if self.run("return document.activeElement.matches(arguments[0])", selector):
                return
            self.press(Keys.TAB)
        raise Failure(f"Tab does not reach {selector}")

    def errors(self):
        """What the browser's console reported since the last look."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requested(self):
        """The addresses that were requested since the last look, from the browser's network log."""
        urls = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                urls.append(message["params"]["request"]["url"])
        return urls

    def resize(self, width, height=1000):
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def theme(self, name):
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]}
        )

    def hide(self, is_hidden):
        """Puts another tab in front, or takes it away."""
        if is_hidden:
            self.mine = self.driver.current_window_handle
            self.driver.switch_to.new_window("tab")
        else:
            self.driver.close()
            self.driver.switch_to.window(self.mine)


@contextlib.contextmanager
def chromium(url=None, downloads=None):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--force-prefers-reduced-motion",
        "--window-size=1280,1000",
        "--disable-background-networking",
        "--no-first-run",
        "--lang=en",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    if downloads:
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        driver.set_script_timeout(30)
        yield Page(driver, url)
    finally:
        driver.quit()
