"""Payloads are shown, copied, and downloaded as they are."""

import json
import pathlib
import re
import tempfile

import browser
from browser import check
from stand_in import EXACT_PAYLOAD, StandIn

TOKEN = re.compile(r'\s+|"(?:[^"\\]|\\.)*"|[^\s"{}\[\],:]+|[{}\[\],:]')


def without_space(text):
    """The text without white space between tokens."""
    return "".join(token for token in TOKEN.findall(text) if not token.isspace())


def check_payload_is_shown_token_by_token(page):
    with StandIn("healthy") as gateway:
        page.url = gateway.url
        found = gateway.add("seer", "failed", payload=EXACT_PAYLOAD)
        page.open(f"#/messages/{found}", "message")
        page.wait("[data-payload]")
        shown = page.content("[data-payload]")
        check(without_space(shown) == without_space(EXACT_PAYLOAD), shown)
        check(shown.index('"10"') < shown.index('"9"'), "members are sorted")
        page.run("window.copied = null; navigator.clipboard.writeText = async text => { window.copied = text }")
        page.run(
            "[...document.querySelectorAll('.bar-of-panel button')].find(b => b.textContent.includes('Copy')).click()"
        )
        page.until(lambda: page.run("return window.copied"), "it is copied")
        check(page.run("return window.copied") == EXACT_PAYLOAD, "the copy differs")
        page.click("#tab-request")
        page.wait("mark.added")
        added = page.run("return [...document.querySelectorAll('mark.added')].map(e => e.textContent).join()")
        check(
            "1700000000" in added and "activities" in added and "price" not in added,
            f"what the gateway adds is not marked: {added}",
        )
        check("***" in page.text(".headers"), "headers are not shown")
        page.click("#tab-answer")
        page.until(lambda: "bad item" in page.text(".tab-panel"), "the answer is shown")


def check_downloads_have_the_very_bytes(_):
    with (
        tempfile.TemporaryDirectory() as directory,
        StandIn("healthy") as gateway,
        browser.chromium(gateway.url, directory) as page,
    ):
        found = gateway.add("seer", "failed", payload=EXACT_PAYLOAD, key="exact")
        page.open(f"#/messages/{found}", "message")
        page.wait("[data-payload]")
        page.run(
            "[...document.querySelectorAll('.bar-of-panel button')].find(b => b.textContent.includes('Download')).click()"
        )
        file = pathlib.Path(directory) / f"{found}.json"
        page.until(file.exists, "the payload is downloaded")
        check(file.read_bytes() == EXACT_PAYLOAD.encode(), "the download differs")
        page.open("#/messages?state=failed", "messages")
        page.run("[...document.querySelectorAll('main button')].find(b => b.textContent.includes('Download')).click()")
        file = pathlib.Path(directory) / "messages.ndjson"
        page.until(file.exists, "the list is downloaded")
        rows = file.read_text(encoding="utf-8").splitlines()
        failed = [entry["message"]["id"] for entry in gateway.messages if entry["message"]["state"] == "failed"]
        check([json.loads(row)["id"] for row in rows] == failed[::-1], "the list is not complete")
        check(EXACT_PAYLOAD in rows[0], "the payload in the list differs")


def check_large_payload_is_cut_and_can_be_downloaded(page):
    with StandIn("healthy") as gateway:
        page.url = gateway.url
        large = json.dumps({"list": [{"number": number, "text": "x" * 20} for number in range(20_000)]})
        found = gateway.add("seer", "failed", payload=large)
        page.open(f"#/messages/{found}", "message")
        page.wait("[data-payload]")
        lines = page.content("[data-payload]").count("\n") + 1
        check(lines <= 2000, f"{lines} lines")
        check("Download has all of it" in page.text("main"), "it does not say that more follows")
        elements = page.run("return document.querySelectorAll('*').length")
        check(elements <= 4000, f"{elements} elements")


def check_edited_payload_is_checked_and_sent_as_it_is_written(page):
    with StandIn("healthy") as gateway:
        page.url = gateway.url
        page.resize(1280)
        found = gateway.add("seer", "failed", payload='{"wrong":1.10}', key="order-7")
        page.open(f"#/messages/{found}", "message")
        page.wait("[data-payload]")
        page.click('[data-action="edit"]')
        page.until(lambda: "/actor" in page.text("dialog"), "the fault is shown at its pointer")
        check(
            page.one('dialog [data-action="confirm"]').get_attribute("aria-disabled") == "true",
            "what is rejected can be sent",
        )
        text = '{"actor":1,"big":12345678901234567890,"price":1.10}'
        page.run(
            "const e = document.querySelector('dialog textarea'); e.value = arguments[0]; e.dispatchEvent(new Event('input', {bubbles: true}))",
            text,
        )
        page.until(lambda: "would accept it" in page.text("dialog"), "it is accepted")
        lines = page.run(
            "return ['del', 'ins'].map(tag => [...document.querySelectorAll('.diff ' + tag)].map(e => e.textContent).join())"
        )
        check("wrong" in lines[0] and "actor" in lines[1], lines)
        page.click('dialog [data-action="confirm"]')
        page.until(lambda: "Remove the old one" in page.text("dialog"), "it offers to remove the old one")
        sent = [body for _, method, path, _, body in gateway.requests if method == "POST" and path == "/v1/messages"]
        check(len(sent) == 1 and text.encode() in sent[0] and b'"key":"order-7"' in sent[0], sent)
