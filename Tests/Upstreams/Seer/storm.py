from storm_scenarios import StormScenario


class SeerScenario(StormScenario):
    """Activities, statements or instrumentation."""

    upstream = "seer"
    poison = "poison=verb:poison:400,poison=/verb/id:poison:400"
    weather = ["status=503@/tincan", "status=404@/sinstrumentation", "status=429/2@/sactivity", "status=401:0.2",
               "status=403@/tincan"]
    field = "/seq"
    PATHS = {"activity": "/sactivity", "tincan": "/tincan", "instrumentation": "/sinstrumentation"}

    def __init__(self, number, dice):
        super().__init__(number, dice)
        self.kind = list(self.PATHS)[number % 3]
        self.endpoint = self.PATHS[self.kind]

    @staticmethod
    def settings(simulator):
        return {"baseURL": simulator.url("seer"), "clientId": "storm", "clientSecret": "storm-secret"}

    def next(self):
        self.done += 1
        poison = self.dice.random() < 0.004
        verb = "poison" if poison else "did"
        if self.kind == "tincan":
            body = ('{"actor":{"mbox":"m"},"verb":{"id":"' + verb + '"},"object":{"id":"o","definition":{"type":"t"}},'
                    f'"context":{{"extensions":{{"appId":"a"}}}},"seq":"{self.number}/{self.done}"}}')
        else:
            body = ('{"actor":{"id":"a"},"verb":"' + verb + '","object":{"id":"o","objectType":"t"},'
                    f'"generator":{{"appId":"g"}},"seq":"{self.number}/{self.done}"}}')
        return f"/v1/seer/{self.kind}", body, (self.endpoint, f"{self.number}/{self.done}"), poison
