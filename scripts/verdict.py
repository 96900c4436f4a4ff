"""What clients know of their requests, and what has to hold for what arrived; the campaigns share it."""

import collections
import json

SHOWN = 10  # examples in a report


class Write:
    """One request of a client: its events, pairs of a lane and a number there, and what is known of it."""

    def __init__(self, path, body, events, key=None):
        self.path, self.body, self.events, self.key = path, body, events, key
        self.ids = None  # until it is answered 2xx

    @property
    def headers(self):
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Idempotency-Key"] = f'"{self.key}"'
        return headers

    @staticmethod
    def ids_in(body):
        answer = json.loads(body)
        return answer["ids"] if "ids" in answer else [answer.get("id")]


class Verdict:
    """Compares the requests of clients with what arrived, in its order and as often as it did."""

    def __init__(self, writes, arrivals, problems=()):
        self.problems = list(problems)
        self.writes, self.arrivals = writes, arrivals
        self.acknowledged = [write for write in writes if write.ids]
        self.times = collections.Counter(arrivals)

    def complain(self, what, examples):
        if examples:
            listed = ", ".join(str(example) for example in examples[:SHOWN])
            self.problems.append(f"{what}: {len(examples)}, e.g. {listed}")

    def check_losses(self, removed=frozenset()):
        """`removed` are the events that an operator cancelled, or that their upstream rejects."""
        lost = [
            event for write in self.acknowledged for event in write.events
            if event not in self.times and event not in removed
        ]
        self.complain("LOST: answered 202, never arrived", lost)
        sent = {event for write in self.writes for event in write.events}
        self.complain("arrived, but was not sent", [event for event in self.times if event not in sent])
        wrong = [
            write.key or write.events for write in self.acknowledged if len(write.ids) != max(1, len(write.events))]
        self.complain("answered 202 with a wrong number of ids", wrong)
        ids = collections.Counter(identifier for write in self.acknowledged for identifier in write.ids)
        self.complain("id given to two messages", [identifier for identifier, count in ids.items() if count > 1])

    def check_order(self, unordered=frozenset()):
        """First arrivals, in order. `unordered` are events that may have been stored after later ones of their lane."""
        newest, late = {}, []
        for lane, number in dict.fromkeys(self.arrivals):
            if number < newest.get(lane, -1) and (lane, number) not in unordered:
                late.append((lane, number, f"after {newest[lane]}"))
            newest[lane] = max(number, newest.get(lane, -1))
        self.complain("OUT OF ORDER within a lane", late)

    def check_wholeness(self, present):
        """Of a request, all events or none are in `present`."""
        torn = []
        for write in self.writes:
            count = sum(event in present for event in write.events)
            if count not in (0, len(write.events)):
                torn.append((*write.events[0], f"{count} of {len(write.events)}"))
        self.complain("TORN: part of a request", torn)

    def check_replays(self, ask, writes):
        """Each of these requests, sent again by `ask(write)`, gets the ids of the first response."""
        wrong = []
        for write in writes:
            status, answered, body = ask(write)
            if status // 100 != 2 or Write.ids_in(body) != write.ids or answered.get("Idempotent-Replay") != "true":
                wrong.append((write.key, status, answered.get("Postern-Node"), answered.get("Idempotent-Replay")))
        self.complain("a repeated Idempotency-Key did not give the first answer", wrong)

    def check_manners(self, received):
        self.complain("the upstream was sent what it should never be sent", received["violations"])

    def check_audit(self, code, answer):
        if code != 0:
            self.problems.append(f"`postern outbox audit` exits with {code}: {answer}")
        self.audit = answer
