import json

from storm_scenarios import StormScenario


class WebhookScenario(StormScenario):
    """Orders of a customer, in batches."""

    upstream = "webhook"
    # The latter look as if the credentials or the URL were wrong.
    STATUSES = [400, 401, 403, 404]
    poison = ",".join(f"poison=name:poison{status}:{status}" for status in STATUSES)
    field = "seq"
    may_cancel = True

    @staticmethod
    def settings(simulator):
        return {"url": simulator.url("webhook"), "batch": "array", "orderBy": "/key"}

    @staticmethod
    def control(actors):
        return {"batch": "array"}

    @staticmethod
    def filler():
        return "/v1/webhook/event", '{"key":"healthy","name":"storm.over"}'

    def next(self):
        self.done += 1
        poison = self.dice.random() < 0.004
        key, mark = f"customer-{self.number}", f"{self.number}/{self.done}"
        name = f"poison{self.dice.choice(self.STATUSES)}" if poison else "storm"
        body = json.dumps({"key": key, "name": name, "seq": mark})
        return "/v1/webhook/event", body, (key, mark), poison
