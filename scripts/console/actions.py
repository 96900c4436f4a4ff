"""What is done to messages: shown first, exactly, and only that."""

import json
import time

from browser import check
from states import opened


def posted(gateway, path):
    return [
        json.loads(body)
        for _, method, requested, _, body in gateway.requests
        if method == "POST" and requested == path and body
    ]


def check_retry_of_a_group_is_previewed_and_sends_only_its_messages(page):
    with opened(page, "healthy", "#/failures", "failures") as gateway:
        card = page.wait("[data-group]")
        group, size = card.get_attribute("data-group"), int(card.get_attribute("data-value"))
        card.find_element("css selector", '[data-action="retry"]').click()
        page.wait(f'dialog[data-confirm="retry"][data-matched="{size}"]')
        check(f"Retry {size}" in page.text("dialog"), page.text("dialog"))
        # Dismissed: nothing is done.
        page.click('dialog [data-action="dismiss"]')
        page.wait_gone("dialog")
        check(
            all(body.get("dryRun") for body in posted(gateway, "/v1/messages/retry")),
            "a dismissed dialog does something",
        )
        page.click(f'[data-group="{group}"] [data-action="retry"]')
        page.wait(f'dialog[data-matched="{size}"]')
        # One more fails while the dialog is open. It is not part of it.
        upstream = gateway._matching({"group": [group]})[0]["message"]
        late = gateway.add(upstream["upstream"], "failed", at=time.time() + 1, detail=upstream["lastError"]["detail"])
        page.click('dialog [data-action="confirm"]')
        page.wait_gone("dialog")
        body = posted(gateway, "/v1/messages/retry")[-1]
        check(body["group"] == group and "dryRun" not in body and body["settledBefore"], body)
        page.until(
            lambda: all(
                one["message"]["id"] == late
                for one in gateway._matching(
                    {"group": [group], "state": ["failed"], "upstream": [upstream["upstream"]]}
                )
            ),
            "the group is retried, and nothing else",
        )


def check_action_is_done_once_however_often_it_is_pressed(page):
    with opened(page, "healthy") as gateway:
        gateway.delay = 0.5
        page.run(
            "const b = document.querySelector('[data-upstream=seer] [data-action=pause]'); b.click(); b.click(); b.click()"
        )
        time.sleep(2)
        gateway.delay = 0
        done = [path for _, method, path, *_ in gateway.requests if method == "POST"]
        check(done == ["/v1/upstreams/seer/pause"], done)


def check_removal_above_a_hundred_asks_for_the_count(page):
    with opened(page, "large", "#/messages?state=failed", "messages") as gateway:
        page.wait("[data-message]")
        page.click("thead input")
        page.wait(".chosen-bar")
        page.run(
            "[...document.querySelectorAll('.chosen-bar button')].find(b => b.textContent.includes('that match')).click()"
        )
        page.until(lambda: "All 3,000 that match" in page.text(".chosen-bar"), page.text(".chosen-bar"))
        page.click('.chosen-bar [data-action="purge"]')
        page.wait('dialog[data-confirm="purge"][data-matched="3000"]')
        confirm = 'dialog [data-action="confirm"]'
        page.click(confirm)
        time.sleep(0.3)
        check(
            all(body.get("dryRun") for body in posted(gateway, "/v1/messages/purge")), "it does not wait for the count"
        )
        page.click("dialog input")
        page.press("3000")
        page.until(lambda: page.one(confirm).get_attribute("aria-disabled") is None, "the count is accepted")
        page.click(confirm)
        page.wait('[data-action="stop"]')
        body = posted(gateway, "/v1/messages/purge")[-1]
        check("ids" not in body and body["state"] == "failed", body)
        page.click('[data-action="stop"]')
        page.until(lambda: gateway.operations["op-1"]["stopped"], "Stop stops it")
        page.until(lambda: "Stopped" in page.text(".toasts"), "it says how far it came")


def check_operation_that_is_refused_halfway_is_tried_again_for_the_rest(page):
    with opened(page, "large", "#/messages?state=failed", "messages") as gateway:
        gateway.add("samsara", "failed", at=time.time() - 60, detail="HTTP 400")
        page.until(lambda: "3,001" in page.text(".books, main"), "it is counted")
        page.wait("[data-message]")
        page.click("thead input")
        page.wait(".chosen-bar")
        page.run(
            "[...document.querySelectorAll('.chosen-bar button')].find(b => b.textContent.includes('that match')).click()"
        )
        page.until(lambda: "that match" in page.text(".chosen-bar"), page.text(".chosen-bar"))
        page.click('.chosen-bar [data-action="retry"]')
        page.wait("dialog[data-matched]")
        gateway.room = 1
        page.click('dialog [data-action="confirm"]')
        page.until(lambda: "8 operations are in progress" in page.text("dialog"), "the refusal is shown")
        gateway.room = None
        page.click('dialog [data-action="confirm"]')
        page.wait_gone("dialog")
        begun = [body["upstream"] for body in posted(gateway, "/v1/messages/retry") if not body.get("dryRun")]
        carried = [operation["upstream"] for operation in gateway.operations.values()]
        check(len(carried) > 1 and len(carried) == len(set(carried)), (begun, carried))
        check(len(begun) == len(carried) + 1, (begun, carried))


def check_closing_the_page_does_not_stop_an_operation(page):
    with opened(page, "large", "#/failures", "failures") as gateway:
        page.click('[data-action="retry"]')
        page.wait("dialog[data-matched]")
        page.click('dialog [data-action="confirm"]')
        page.wait_gone("dialog")
        page.until(lambda: gateway.operations, "it has begun")
        page.driver.get("about:blank")
        page.until(lambda: gateway.operations["op-1"]["finishedAt"], "it is carried out")
        check(not gateway.operations["op-1"]["stopped"], "it was stopped")
        check(all(method != "DELETE" for _, method, *_ in gateway.requests), "it was deleted")


def check_chosen_rows_of_several_states_are_counted_by_the_gateway(page):
    with opened(page, "healthy", "#/messages", "messages"):
        page.wait("[data-message]")
        page.click("thead input")
        failed = len(page.all('[data-message][data-state="failed"]')) + len(
            page.all('[data-message][data-state="dropped"]')
        )
        page.click('.chosen-bar [data-action="retry"]')
        page.wait(f'dialog[data-confirm="retry"][data-matched="{failed}"]')


def check_single_message_is_retried_and_cancelled(page):
    with opened(page, "troubled") as gateway:
        failed = next(entry["message"] for entry in gateway.messages if entry["message"]["state"] == "failed")
        page.go(f"#/messages/{failed['id']}")
        page.click('main [data-action="retry"]')
        page.until(lambda: failed["state"] == "queued", "it is queued again")
        page.wait('main[data-state="queued"]')
        page.click('main [data-action="cancel"]')
        page.wait('dialog[data-confirm="cancel"][data-matched="1"]')
        page.click('dialog [data-action="confirm"]')
        page.until(lambda: failed["state"] == "cancelled", "it is cancelled")


def check_credentials_are_tested(page):
    with opened(page, "troubled", "#/upstreams/streamone", "upstream"):
        page.click('[data-action="probe"]')
        page.until(lambda: "rejects the credentials" in page.text("main"), "the result is said")
