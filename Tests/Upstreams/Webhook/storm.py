import json

from stories import Story


class WebhookStory(Story):
    """Orders of a customer, in batches."""

    upstream = "webhook"
    poison = "poison=name:poison:400"
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
        body = json.dumps({"key": key, "name": "poison" if poison else "storm", "seq": mark})
        return "/v1/webhook/event", body, (key, mark), poison
