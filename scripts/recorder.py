"""Writes the history of a campaign, in the form that `history.py` describes."""

import itertools
import json
import threading
import time


class Recorder:
    """The history of one campaign. Called from several threads at once."""

    def __init__(self, path):
        self.path = path
        self.file = open(path, "w")
        self.lock, self.numbers = threading.Lock(), itertools.count(1)

    def write(self, event, at=None, **members):
        line = json.dumps({"time": round(at or time.monotonic(), 6), "event": event, **members})
        with self.lock:
            self.file.write(line + "\n")

    def invoke(self, items, traced=True):
        """Begins a request with these items, and returns its number."""
        number = next(self.numbers)
        self.write("invoke", op=number, items=items, **({} if traced else {"traced": False}))
        return number

    def end(self, number, result):
        """The result is ok, unknown or refused."""
        self.write(result, op=number)

    def arrivals(self, log, item):
        """What a simulator has received, from `Simulator.arrival_log`; `item(key, text)` names it, or is None."""
        for key, text, is_accepted, answer, at in log:
            if name := item(key, text):
                # A response that a fault replaced is named after the fault.
                taken = "accepted" if answer.isdigit() else "lost"
                self.write("arrive", at, item=name, response=taken if is_accepted else "rejected")

    def outcome(self, item, message):
        """What the API says of a message, `message`; nothing until it is final."""
        if message["state"] != "queued":
            error = message.get("lastError") or {}
            self.write("outcome", item=item, state=message["state"], detail=error.get("detail", ""))

    def close(self):
        """Returns the path of the file, which is complete."""
        self.file.close()
        return self.path
