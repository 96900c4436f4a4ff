import json

from storm_scenarios import StormScenario


class ToyScenario(StormScenario):
    """Notes of an author."""

    upstream = "toy"
    field = "text"

    @staticmethod
    def settings(simulator):
        return {"url": simulator.url("toy"), "apiKey": "toy-key"}

    def next(self):
        self.done += 1
        author, text = f"author-{self.number}", f"{self.number}/{self.done}"
        return "/v1/toy/note", json.dumps({"author": author, "text": text}), (author, text), False
