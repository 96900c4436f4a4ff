#!/usr/bin/env python3
"""Does `history.py` find mistakes? Plants them in a history that is valid, one at a time.

usage: scripts/history_check.py [--seed N] [FILE...]

Each mistake has to be reported as what it is, as nothing else, and for the item that it was planted in. The history as
it was has to pass. Without a file this is a small history in which everything is found that a valid one may have; the
files are histories of campaigns, in which some mistakes may have no place.
"""

import argparse
import json
import os
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import history  # noqa: E402

PLACES = 20  # in which each mistake is planted
NEXT = 1e-6  # seconds


def small_history():
    """A valid history with a repeat for each reason, a request of each result, and every outcome."""
    events, clock = [], iter(range(1, 1000))

    def add(event, **members):
        events.append({"time": float(next(clock)), "event": event, **members})

    def invoke(op, *items, **more):
        add("invoke", op=op, items=[list(item) for item in items], **more)

    def arrive(response, *items):
        at = float(next(clock))
        events.extend({"time": at, "event": "arrive", "item": list(item), "response": response} for item in items)

    def outcome(state, *items):
        for item in items:
            add("outcome", item=list(item), state=state)

    a = [("a", number) for number in range(12)]
    b = [("b", number) for number in range(8)]
    invoke(1, a[0])
    add("ok", op=1)
    invoke(2, a[1], a[2], a[3])
    arrive("accepted", a[0])
    add("ok", op=2)
    arrive("lost", a[1], a[2])  # A repeat is justified, and not required to have all of it.
    arrive("accepted", a[1])
    arrive("accepted", a[2], a[3])
    # Both at the same time: either may be first.
    invoke(3, a[4])
    invoke(4, a[5])
    add("ok", op=3)
    add("ok", op=4)
    arrive("accepted", a[5])
    arrive("accepted", a[4])
    # Without a response: stored or not, as a whole.
    invoke(5, a[6], a[7])
    add("unknown", op=5)
    invoke(6, a[8], a[9])
    add("unknown", op=6)
    arrive("failed", a[6], a[7])
    arrive("accepted", a[6], a[7])
    # Sent again after that, which may be another message.
    invoke(7, b[0])
    add("unknown", op=7)
    invoke(8, b[0])
    add("refused", op=8)
    invoke(9, b[0])
    add("ok", op=9)
    arrive("accepted", b[0])
    arrive("accepted", b[0])
    # The gateway is killed, and what it had sent arrives.
    invoke(10, b[1], b[2])
    add("ok", op=10)
    arrive("accepted", b[1])
    at = float(next(clock))
    arrive("accepted", b[2])
    events.append({"time": at, "event": "kill", "until": float(next(clock))})
    arrive("accepted", b[1], b[2])
    # A bad item, one that an operator cancels, and one that no stand-in recognizes.
    invoke(11, b[3])
    add("ok", op=11)
    arrive("rejected", b[3])
    invoke(12, b[4])
    add("ok", op=12)
    add("cancel", item=list(b[4]))
    invoke(13, b[5], traced=False)
    add("ok", op=13)
    invoke(14, b[6])
    add("refused", op=14)
    invoke(15, a[10])
    add("ok", op=15)
    arrive("accepted", a[10])
    outcome("delivered", *a[:8], a[10], b[0], b[1], b[2], b[5])
    outcome("failed", b[3])
    outcome("cancelled", b[4])
    return events


class Recorded:
    """A history to plant a mistake in, with its events by item and by request."""

    def __init__(self, events):
        self.events = events
        self.arrivals, self.outcomes, self.requests, self.results, self.carriers = {}, {}, {}, {}, {}
        for event in sorted(events, key=lambda event: event["time"]):
            if event["event"] == "arrive" and event["response"] != "failed":
                self.arrivals.setdefault(tuple(event["item"]), []).append(event)
            elif event["event"] == "outcome":
                self.outcomes.setdefault(tuple(event["item"]), []).append(event)
            elif event["event"] == "invoke":
                self.requests[event["op"]] = event
                for item in event["items"]:
                    self.carriers.setdefault(tuple(item), []).append(event["op"])
            elif event["event"] in ("ok", "unknown", "refused"):
                self.results[event["op"]] = event
        self.plain = [  # Items of one acknowledged request, taken once, and delivered.
            item for item, ops in self.carriers.items() if len(ops) == 1 and self.result(ops[0]) == "ok"
            and [one["response"] for one in self.arrivals.get(item, [])] == ["accepted"]
            and [one["state"] for one in self.outcomes.get(item, [])] == ["delivered"]
        ]

    def result(self, op):
        return self.results[op]["event"] if op in self.results else "unknown"

    def remove(self, *gone):
        numbers = {id(event) for event in gone}
        self.events[:] = [event for event in self.events if id(event) not in numbers]

    def rejected(self):
        return [
            item for item, arrivals in self.arrivals.items()
            if {one["response"] for one in arrivals} == {"rejected"} and item in self.outcomes and item in self.carriers
        ]

    # Each returns the item that has to be reported. `dice` raises IndexError if this history has no place for the mistake.

    def lost(self, dice):
        item = dice.choice(self.plain)
        self.remove(*self.arrivals[item])
        return item

    def lost_without_outcome(self, dice):
        item = dice.choice(self.plain)
        self.remove(*self.outcomes[item])
        return item

    def lost_as_cancelled(self, dice):
        item = self.lost(dice)
        self.outcomes[item][0]["state"] = "cancelled"
        return item

    def repeated(self, dice):
        kills = [(event["time"] - NEXT, event["until"]) for event in self.events if event["event"] == "kill"]
        places = [(item, self.arrivals[item][0]["time"]) for item in self.plain]
        item, at = dice.choice([
            (item, at) for item, at in places if not any(begin <= at <= end for begin, end in kills)])
        self.events.append({**self.arrivals[item][0], "time": at + NEXT})
        return item

    def repeated_without_the_reason(self, dice):
        """The responses of a repeated item were sent after all, and the gateway was not killed."""
        several = [
            item for item, arrivals in self.arrivals.items()
            if item in self.carriers and len(arrivals) > len(self.carriers[item])
            and all(one["response"] in ("accepted", "lost") for one in arrivals)
        ]
        item = dice.choice(several)
        for arrival in self.arrivals[item]:
            arrival["response"] = "accepted"
        # The kill may have been the reason of other repeats, too.
        self.remove(*(event for event in self.events if event["event"] == "kill"))
        return item

    def out_of_order(self, dice):
        """An item arrives after one that was sent after its acknowledgement."""
        lanes = {}
        for item in self.plain:
            lanes.setdefault(item[0], []).append(item)
        pairs = [
            (item, later) for lane in lanes.values() for item, later in zip(lane, lane[1:])
            if self.results[self.carriers[item][0]]["time"] < self.requests[self.carriers[later][0]]["time"]
        ]
        item, later = dice.choice(pairs)
        self.arrivals[item][0]["time"] = self.arrivals[later][0]["time"] + NEXT
        return item

    def out_of_order_in_a_request(self, dice):
        pairs = [
            (tuple(item), tuple(later)) for request in self.requests.values()
            for item, later in zip(request["items"], request["items"][1:])
            if item[0] == later[0] and {tuple(item), tuple(later)} <= self.arrivals.keys()
            and len(self.arrivals[tuple(item)]) == 1
        ]
        item, later = dice.choice(pairs)
        self.arrivals[item][0]["time"] = self.arrivals[later][0]["time"] + NEXT
        return item

    def blamed(self, dice):
        item = dice.choice(self.plain)
        self.outcomes[item][0]["state"] = "failed"
        return item

    def blamed_too_late(self, dice):
        """A rejected one is reported as delivered."""
        item = dice.choice(self.rejected())
        for outcome in self.outcomes[item]:
            outcome["state"] = "delivered"
        return item

    def blamed_without_a_rejection(self, dice):
        item = dice.choice(self.rejected())
        self.remove(*self.arrivals[item])
        return item

    def never_sent(self, dice):
        arrival = dice.choice([event for event in self.events if event["event"] == "arrive"])
        self.events.append({**arrival, "item": [arrival["item"][0], "of no one"], "response": "accepted"})
        return arrival["item"][0], "of no one"

    def never_sent_but_refused(self, dice):
        item = dice.choice([item for item in self.plain if len(self.requests[self.carriers[item][0]]["items"]) == 1])
        self.results[self.carriers[item][0]]["event"] = "refused"
        return item

    def torn(self, dice):
        """Part of a request without a response, which has arrived as a whole."""
        whole = [
            op for op, request in self.requests.items() if len(request["items"]) > 1 and self.result(op) != "refused"
            and all(tuple(item) in self.arrivals for item in request["items"])
        ]
        op = dice.choice(whole)
        first, *_, last = (tuple(item) for item in self.requests[op]["items"])
        self.remove(self.results[op], *self.arrivals[last])
        return first


PLANTED = {
    Recorded.lost: "LOST", Recorded.lost_without_outcome: "LOST", Recorded.lost_as_cancelled: "LOST",
    Recorded.repeated: "REPEATED", Recorded.repeated_without_the_reason: "REPEATED",
    Recorded.out_of_order: "OUT OF ORDER", Recorded.out_of_order_in_a_request: "OUT OF ORDER",
    Recorded.blamed: "BLAMED", Recorded.blamed_too_late: "BLAMED", Recorded.blamed_without_a_rejection: "BLAMED",
    Recorded.never_sent: "NEVER SENT", Recorded.never_sent_but_refused: "NEVER SENT", Recorded.torn: "TORN",
}


def found(events):
    """(kind, item) of what is found."""
    return {(kind, item) for kind, item, _ in history.History(json.dumps(event) for event in events).findings()}


def check(name, lines, dice, places):
    """What is wrong, as texts, and the mistakes that have no place in this history."""
    if wrong := found(map(json.loads, lines)):
        return [f"{name} as it was: {sorted(map(str, wrong))[:5]}"], []
    problems, missing = [], []
    for plant, kind in PLANTED.items():
        for _ in range(places):
            recorded = Recorded([json.loads(line) for line in lines])
            try:
                item = plant(recorded, dice)
            except IndexError:
                missing.append(plant.__name__)
                break
            reported = found(recorded.events)
            # What was done to one item may make the same mistake of another one.
            if (kind, item) not in reported or any(one != kind for one, _ in reported):
                problems.append(f"{name}, {plant.__name__} at {item}: {sorted(map(str, reported))[:5]}")
    return problems, missing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    dice = random.Random(options.seed)
    problems, missing = check("the small history", list(map(json.dumps, small_history())), dice, PLACES)
    problems += [f"the small history has no place for {name}" for name in missing]
    if not history.check(os.devnull):
        problems.append("an empty history passes")
    for file in options.files:
        wrong, missing = check(file, pathlib.Path(file).read_text().splitlines(), dice, places=3)
        problems += wrong
        print(f"{file}: planted {len(PLANTED) - len(missing)} mistakes; no place for: {', '.join(missing) or 'none'}")
    for problem in problems:
        print(f"FAIL {problem}")
    if not problems:
        print("ok: every planted mistake is found, as what it is")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
