"""What clients know of their requests, and what has to hold apart from the history, which `history.py` judges."""

import collections
import json

SHOWN = 10  # examples in a report


class Write:
    """One request of a client: its events, pairs of a lane and a number there, and what is known of it."""

    def __init__(self, path, body, events, key=None):
        self.path, self.body, self.events, self.key = path, body, events, key
        self.ids = None  # until it is answered 2xx
        self.is_unknown = False  # A gateway may have stored it.

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
    """Collects what is wrong with the requests of clients and with what arrived."""

    def __init__(self, writes, arrivals, problems=()):
        self.problems = list(problems)
        self.writes, self.arrivals = writes, arrivals
        self.acknowledged = [write for write in writes if write.ids]
        self.times = collections.Counter(arrivals)

    def complain(self, what, examples):
        if examples:
            listed = ", ".join(str(example) for example in examples[:SHOWN])
            self.problems.append(f"{what}: {len(examples)}, e.g. {listed}")

    def check_ids(self):
        """Each message has an id of its own."""
        wrong = [
            write.key or write.events for write in self.acknowledged if len(write.ids) != max(1, len(write.events))]
        self.complain("answered 202 with a wrong number of ids", wrong)
        ids = collections.Counter(identifier for write in self.acknowledged for identifier in write.ids)
        self.complain("id given to two messages", [identifier for identifier, count in ids.items() if count > 1])

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
