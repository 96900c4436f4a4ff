import json

from storm_scenarios import StormScenario


class StreamOneScenario(StormScenario):
    """Writes to an account."""

    upstream = "streamone"
    field = "/arguments/seq"
    may_cancel = True

    @staticmethod
    def settings(simulator):
        return {
            "apiUrl": simulator.url("streamone"), "id": "9yC-4pQxT_2a", "psk": "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu",
            "rateLimitPauseSeconds": 1, "readOnlyPauseSeconds": 1,
        }

    @staticmethod
    def control(actors):
        return {"accounts": [f"A{number}" for number in range(actors)], "failuresUntilRateLimited": 0}

    def next(self):
        self.done += 1
        poison = self.dice.random() < 0.01
        account = "unknown" if poison else f"A{self.number}"
        mark = f"{self.number}/{self.done}"
        body = json.dumps({"command": "item", "action": "edit", "account": account, "arguments": {"seq": mark}})
        return "/v1/streamone/call", body, (account, mark), poison
