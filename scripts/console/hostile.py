"""What came from outside is text: nothing of it runs, nothing is built from it, and all of it can be read."""

import json

from browser import check
from looks import examine, views
from stand_in import HOSTILE, StandIn


def check_hostile_texts_stay_texts_in_every_view(page):
    with StandIn("hostile") as gateway:
        page.url = gateway.url
        page.theme("light")
        page.resize(1280)
        page.open("#/", "overview")
        page.run(
            "localStorage.setItem('postern.console', JSON.stringify({views: arguments[0].map(name => ({name, address: '#/messages?key=' + encodeURIComponent(name)}))}))",
            HOSTILE[:12],
        )
        page.errors(), page.requested()
        seen = ""
        for name, route, view in [
            *views(gateway),
            (
                "filtered",
                "#/messages?key=" + "%3Cimg%20src%3Dx%3E&errorText=%3Cscript%3E&group=%22%3E&lane=%3Cb%3E",
                "messages",
            ),
            ("no upstream", "#/upstreams/%3Cimg%20src%3Dx%20onerror%3Dpwned%3D1%3E", "upstream"),
            ("no message", "#/messages/%3Csvg%3E", "message"),
            ("no view", "#/javascript:window.pwned=1", "overview"),
        ]:
            page.open(route, view)
            page.run("return new Promise(done => setTimeout(done, 300))")
            check(page.run("return window.pwned") is None, f"{name}: something has run")
            check(
                page.run(
                    "return document.querySelectorAll('main :is(img, script, form[id], iframe, base, object, embed, style, math)').length"
                )
                == 0,
                f"{name}: something was built",
            )
            check(
                page.run(
                    'return document.querySelectorAll(\'[onerror], [onload], [onclick], [style*="url"], a:not([href^="#"])\').length'
                )
                == 0,
                f"{name}: an attribute or a link was built",
            )
            examine(page, f"hostile, {name}")
            seen += page.content("main")
        for text in HOSTILE:
            check(text in seen, f"{text!r} cannot be read on any view")
        page.open("#/messages", "messages")
        page.press("/")
        page.wait("dialog.finder")
        page.press("<img src=x onerror=window.pwned=1>")
        check(
            page.run("return window.pwned") is None and not page.all("dialog img"), "the one field runs what is typed"
        )
        # The upstream and the message that do not exist were asked for on purpose.
        errors = [error for error in page.errors() if "%3C" not in error]
        check(not errors, f"the browser's console has {errors[:5]}")
        page.run("localStorage.clear()")


def check_characters_that_cannot_be_seen_are_marked(page):
    with StandIn("healthy") as gateway:
        page.url = gateway.url
        payload = json.dumps(
            {"name": "\u202egnp.exe", "zero": "a\u200bb", "next": "\u0085", "bom": "\ufeff"}, ensure_ascii=False
        )
        found = gateway.add("seer", "failed", payload=payload, key="k\u202ey", detail="d\u2066e")
        page.open(f"#/messages/{found}", "message")
        page.wait("[data-payload]")
        marks = {element.get_attribute("data-mark") for element in page.all(".mark")}
        check({"U+202E", "U+200B", "U+0085", "U+FEFF", "U+2066"} <= marks, marks)
        check(
            page.content("[data-payload]").replace("\n", "").replace("  ", "").replace('": ', '":')
            == payload.replace('": ', '":').replace(", ", ","),
            "a mark changes the text",
        )
        check(
            page.run("return getComputedStyle(document.querySelector('.mark')).display") == "inline-block",
            "a mark is not isolated",
        )


def check_policy_stops_what_lint_would_miss(page):
    with StandIn("healthy") as gateway:
        page.url = gateway.url
        page.open("#/", "overview")
        refused = page.run(
            "try { document.querySelector('main').innerHTML = '<b>x</b>'; return false } catch (error) { return error instanceof TypeError }"
        )
        check(refused, "innerHTML is permitted")
        refused = page.driver.execute_async_script(
            "const done = arguments[arguments.length - 1]; const s = document.createElement('img'); s.onerror = () => done(true); s.onload = () => done(false); s.src = 'http://127.0.0.1:9/x.png'; document.body.append(s)"
        )
        check(refused, "another origin is permitted")
        page.errors()
