"""Every view in both themes and widths: accessible, within its width, without errors, from one origin, within its budget."""

import gzip
import importlib.util
import pathlib
import re
import urllib.parse

from browser import THEMES, WIDTHS, check
from stand_in import FILES, StandIn

# The largest sum of all files, each gzipped by itself.
MOST_BYTES = 60 * 1024
MOST_ELEMENTS = 4000


def views(gateway):
    """(name, route, view) of every view with data of this gateway."""
    messages = [entry["message"] for entry in gateway.messages]
    pick = {
        state: next((message["id"] for message in messages if message["state"] == state), None)
        for state in ("failed", "queued", "delivered")
    }
    upstream = next(iter(gateway.upstreams), None)
    routes = [
        ("overview", "#/", "overview"),
        ("messages", "#/messages", "messages"),
        ("failed messages", "#/messages?state=failed", "messages"),
        ("failures", "#/failures", "failures"),
        ("live", "#/live", "live"),
        ("gateway", "#/gateway", "gateway"),
    ]
    routes += [(f"{state} message", f"#/messages/{found}", "message") for state, found in pick.items() if found]
    if upstream:
        names = [name for name, value in gateway.upstreams.items() if value["health"] != "up"][:1] + [upstream]
        routes += [(f"upstream {name}", f"#/upstreams/{name}", "upstream") for name in dict.fromkeys(names)]
    return routes


def axe_source():
    package = pathlib.Path(importlib.util.find_spec("axe_playwright_python").origin).parent
    return next(package.rglob("axe.min.js")).read_text(encoding="utf-8")


AXE = axe_source()
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def violations(page):
    page.run("if (!window.axe) { " + AXE + " }")
    found = page.driver.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run(document, {runOnly: {type: 'tag', values: arguments[0]}, resultTypes: ['violations']}).then(r => done(r.violations), e => done([{id: String(e), nodes: []}]))",
        TAGS,
    )
    return [
        f"{one['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for one in found
        for node in one["nodes"][:3]
    ] + [one["id"] for one in found if not one["nodes"]]


def examine(page, name):
    found = violations(page)
    check(not found, f"{name}: axe found\n" + "\n".join(found))
    wide, seen = page.run("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    if wide > seen:
        widest = page.run(
            "return [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.code, .scroll, .tabs, .hidden'))"
            ".slice(0, 5).map(e => e.outerHTML.slice(0, 160))"
        )
        check(False, f"{name}: scrolls sideways, {wide} of {seen}: {widest}")
    elements = page.run("return document.querySelectorAll('*').length")
    check(elements <= MOST_ELEMENTS, f"{name}: {elements} elements")
    check(page.run("return document.querySelectorAll('h1').length") == 1, f"{name}: has not one h1")


def every_view(page, scenario):
    with StandIn(scenario) as gateway:
        page.url = gateway.url
        page.errors(), page.requested()
        for theme in THEMES:
            for width in WIDTHS.values():
                page.theme(theme)
                page.resize(width)
                for name, route, view in views(gateway):
                    page.open(route, view)
                    examine(page, f"{scenario}, {name}, {theme}, {width} px")
        errors = page.errors()
        check(not errors, f"the browser's console has {errors[:5]}")
        origin = urllib.parse.urlsplit(gateway.url).netloc
        foreign = {
            url
            for url in page.requested()
            if urllib.parse.urlsplit(url).netloc != origin
            and not url.startswith(("about:", "data:", "blob:", "chrome:"))
        }
        check(not foreign, f"requests to others: {foreign}")


def check_every_view_of_a_troubled_gateway_is_accessible(page):
    every_view(page, "troubled")


def check_every_view_of_an_empty_gateway_is_accessible(page):
    every_view(page, "fresh")
    every_view(page, "empty")


def check_dialogs_are_accessible(page):
    with StandIn("troubled") as gateway:
        page.url = gateway.url
        failed = next(entry["message"]["id"] for entry in gateway.messages if entry["message"]["state"] == "failed")
        for theme in THEMES:
            for width in WIDTHS.values():
                page.theme(theme)
                page.resize(width)
                page.open("#/failures", "failures")
                page.click('[data-action="retry"]')
                page.wait("dialog[data-matched]")
                examine(page, f"retry dialog, {theme}, {width} px")
                page.open(f"#/messages/{failed}", "message")
                page.wait("[data-payload]")
                page.click('[data-action="edit"]')
                page.wait("dialog textarea")
                examine(page, f"edit dialog, {theme}, {width} px")
                page.open("#/", "overview")
                for key, label in (("?", "Shortcuts"), ("/", "Find")):
                    page.press(key)
                    page.wait(f'dialog[aria-label="{label}"]')
                    examine(page, f"{label}, {theme}, {width} px")
                    page.press("\ue00c")
                    page.wait_gone("dialog")


def check_narrowest_page_and_large_text_lose_nothing(page):
    with StandIn("troubled") as gateway:
        page.url = gateway.url
        page.resize(320)
        for name, route, view in views(gateway):
            page.open(route, view)
            wide, seen = page.run("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
            check(wide <= seen, f"{name}: scrolls sideways at 320 px: {wide} of {seen}")
        page.resize(1280)


def check_files_keep_their_budget(page):
    sizes = {file.name: len(gzip.compress(file.read_bytes(), 9)) for file in FILES.iterdir()}
    check(sum(sizes.values()) <= MOST_BYTES, f"all files have {sum(sizes.values())} bytes gzipped: {sizes}")
    for name, most in (("dom.js", 150), ("charts.js", 350)):
        count = len((FILES / name).read_text().splitlines())
        check(count <= most, f"{name} has {count} lines")


# What could make an element, or run, from text.
FORBIDDEN = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTML|\beval\(|new Function|\bstyle=|srcdoc|\bimport\("


def check_no_file_builds_elements_from_text(page):
    for file in FILES.iterdir():
        for number, line in enumerate(file.read_text().splitlines(), 1):
            check(not re.search(FORBIDDEN, line), f"{file.name}:{number}: {line.strip()}")


def screenshots(page, directory):
    """A picture of every view in both themes and widths."""
    directory.mkdir(parents=True, exist_ok=True)
    with StandIn("troubled") as gateway:
        page.url = gateway.url
        for theme in THEMES:
            for width_name, width in WIDTHS.items():
                page.theme(theme)
                page.resize(width)
                for name, route, view in views(gateway):
                    page.open(route, view)
                    page.run("return new Promise(done => setTimeout(done, 400))")
                    page.driver.save_screenshot(str(directory / f"{name.replace(' ', '-')}-{theme}-{width_name}.png"))
                page.open("#/failures", "failures")
                page.click('[data-action="retry"]')
                page.wait("dialog[data-matched]")
                page.driver.save_screenshot(str(directory / f"retry-{theme}-{width_name}.png"))
