#!/usr/bin/env python3
"""Decides from a recorded history whether a gateway has kept its promises, without knowing how the gateway works.

usage: scripts/history.py FILE

FILE has one JSON object per line, in any order. Callers and stand-ins for upstreams write what they saw:

  {"time": 12.000104, "event": "invoke", "op": 7, "items": [["source-1", "41"], ["source-1", "42"]]}
  {"time": 12.004310, "event": "ok", "op": 7}
  {"time": 12.031872, "event": "arrive", "item": ["source-1", "41"], "response": "accepted"}

`time` is in seconds of one monotonic clock. An item is what a caller sends and a stand-in recognizes: a pair of a lane,
in which order matters, and a name in this lane. The events are:

  invoke   op, items   A caller begins a request. If it repeats the request in a way that the gateway recognizes, for
                       example with an idempotency key, this is still the same op, and is not written again.
                       With "traced": false, no stand-in can recognize the items; only their outcomes are judged.
  ok       op          The request was acknowledged: all of its items are stored.
  unknown  op          The caller gave up without a response. An op without any of these three events is the same.
  refused  op          The response said that nothing was stored.
  cancel   item        An operator is about to cancel the item.
  arrive   item        A stand-in has received the item. `response` is how it answered:
           response      accepted: it took the item, and sent the whole response;
                         lost: it took the item, and the response was not sent, or only in part;
                         rejected: it found the item to be bad, and took nothing of the request;
                         failed: it took nothing, and no item is to blame.
  outcome  item        What the gateway said last of the item: `state` is delivered, failed, cancelled, or another one.
           state       `detail` is optional, and shown if the outcome is wrong.
  kill     until       From `time` to `until`, a gateway may have forgotten what it knew of the requests that it sent.

What is wrong is one of these:

  LOST          acknowledged, and never arrived, or without an outcome although others have one. Excused are items that
                were rejected, and those that the gateway reports as cancelled after an operator cancelled them.
  REPEATED      taken more often than it was sent. A repeat is justified by an earlier arrival that was `lost`, or after
                which the gateway was killed. Each arrival justifies one repeat.
  OUT OF ORDER  acknowledged before another item of its lane was sent, and first taken after that one. Items of one
                request have the order of the request.
  BLAMED        reported as failed, and never rejected; or rejected, never taken, and reported as delivered.
  NEVER SENT    arrived, and in no request that may have been stored.
  TORN          arrived, while other items of its request, which got no response, have not.

Exit code 1 if anything is wrong. A history in which nothing was acknowledged, or nothing arrived, shows nothing, and is
wrong, too.
"""

import collections
import json
import math
import sys

SHOWN = 10  # examples of each finding
KINDS = ["LOST", "REPEATED", "OUT OF ORDER", "BLAMED", "NEVER SENT", "TORN"]


class Op:
    """A request of a caller."""

    def __init__(self, invoked, items, traced):
        self.invoked, self.items, self.traced = invoked, items, traced
        self.result, self.ended = "unknown", math.inf


class Item:
    """What is known of one item."""

    def __init__(self):
        self.ops = []  # that may have stored it
        self.taken = []  # (time, number of the event, whether the response was sent as a whole), in order
        self.rejected = self.is_cancelled = False
        self.states = {}  # with the detail of each

    @property
    def arrived(self):
        return bool(self.taken) or self.rejected


class History:
    """All events, by request and by item."""

    def __init__(self, lines):
        self.ops, self.items, self.kills = {}, collections.defaultdict(Item), []
        events = [json.loads(line) for line in lines if line.strip()]
        # Stable: events of the same time stay in their order.
        for number, event in enumerate(sorted(events, key=lambda event: event["time"])):
            self.add(number, event)
        for op in self.ops.values():
            for item in op.items if op.result != "refused" else ():
                self.items[item].ops.append(op)
        self.has_outcomes = any(item.states for item in self.items.values())

    def add(self, number, event):
        time, what = event["time"], event["event"]
        item = self.items[tuple(event["item"])] if "item" in event else None
        if what == "invoke":
            if event["op"] in self.ops:
                raise ValueError(f"two requests have the number {event['op']}")
            self.ops[event["op"]] = Op(time, [tuple(item) for item in event["items"]], event.get("traced", True))
        elif what in ("ok", "unknown", "refused"):
            self.ops[event["op"]].result, self.ops[event["op"]].ended = what, time
        elif what == "cancel":
            item.is_cancelled = True
        elif what == "outcome":
            item.states[event["state"]] = event.get("detail", "")
        elif what == "kill":
            self.kills.append((time, event["until"]))
        elif what == "arrive" and event["response"] in ("accepted", "lost"):
            item.taken.append((time, number, event["response"] == "accepted"))
        elif what == "arrive" and event["response"] in ("rejected", "failed"):
            item.rejected |= event["response"] == "rejected"
        else:
            raise ValueError(f"not an event of a history: {event}")

    def findings(self):
        """(kind, item, detail) of all that is wrong."""
        for op in self.ops.values():
            yield from self.lost(op) if op.result == "ok" else self.torn(op)
        lanes = collections.defaultdict(list)
        for name, item in self.items.items():
            if item.arrived and not item.ops:
                yield "NEVER SENT", name, "refused, or in no request"
            yield from self.repeated(name, item)
            yield from self.blamed(name, item)
            if item.taken and item.ops:
                lanes[name[0]].append((name, item))
        for lane in lanes.values():
            yield from self.out_of_order(lane)

    def lost(self, op):
        for name in op.items:
            item = self.items[name]
            if self.has_outcomes and not item.states:
                yield "LOST", name, "acknowledged, and has no outcome"
            elif op.traced and not item.arrived and "cancelled" in item.states and not item.is_cancelled:
                yield "LOST", name, "cancelled, and not by an operator"
            # One that failed and was not rejected is BLAMED.
            elif op.traced and not item.arrived and not {"cancelled", "failed"} & set(item.states):
                yield "LOST", name, "acknowledged, and never arrived"

    def torn(self, op):
        present = [name for name in op.items if self.items[name].arrived]
        if op.result == "unknown" and 0 < len(present) < len(op.items):
            yield "TORN", present[0], f"{len(present)} of {len(op.items)} have arrived"

    def repeated(self, name, item):
        earlier, excess = [], 0
        for count, arrival in enumerate(item.taken):
            if count >= len(item.ops) > 0:
                reason = next((one for one in earlier if self.justifies(one, arrival)), None)
                if reason:
                    earlier.remove(reason)
                excess += reason is None
            earlier.append(arrival)
        if excess:
            yield "REPEATED", name, f"taken {len(item.taken)} times, {excess} of them without a reason"

    def justifies(self, arrival, repeat):
        time, _, is_whole = arrival
        return not is_whole or any(begin <= repeat[0] and time <= end for begin, end in self.kills)

    @staticmethod
    def blamed(name, item):
        if "failed" in item.states and not item.rejected:
            yield "BLAMED", name, f"failed, and was never rejected {item.states['failed']}".rstrip()
        if "delivered" in item.states and item.rejected and not item.taken:
            yield "BLAMED", name, "rejected, and reported as delivered"

    @staticmethod
    def out_of_order(lane):
        """`lane` is (name, item) of one lane; all have arrived."""
        newest, begun, last = None, -math.inf, {}  # the item that was sent last, when, and the last one of each request
        for name, item in sorted(lane, key=lambda pair: pair[1].taken[0]):
            acknowledged = min((op.ended for op in item.ops if op.result == "ok"), default=math.inf)
            position = item.ops[0].items.index(name)
            if acknowledged < begun:
                yield "OUT OF ORDER", name, f"taken after {newest[1]}, which was sent after its acknowledgement"
            elif position < last.get(item.ops[0], -1):
                yield "OUT OF ORDER", name, "taken after a later item of its request"
            last[item.ops[0]] = max(position, last.get(item.ops[0], -1))
            if (invoked := min(op.invoked for op in item.ops)) > begun:
                newest, begun = name, invoked


def check(path):
    """What is wrong in the history in that file: a text for each kind, with examples."""
    with open(path) as lines:
        history = History(lines)
    if all(op.result != "ok" for op in history.ops.values()) or not any(item.taken for item in history.items.values()):
        return ["EMPTY: nothing was acknowledged, or nothing arrived"]
    found = collections.defaultdict(list)
    for kind, name, detail in history.findings():
        found[kind].append(f"{'/'.join(map(str, name))}: {detail}")
    return [f"{kind}: {len(found[kind])}, e.g. {'; '.join(found[kind][:SHOWN])}" for kind in KINDS if kind in found]


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    problems = check(sys.argv[1])
    print("\n".join(problems) or "ok: nothing is wrong in this history")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
