from storm_scenarios import StormScenario


class SamsaraScenario(StormScenario):
    """Events of one source each."""

    upstream = "samsara"
    poison = "poison=eventName:poison"
    field = "seq"
    may_cancel = True

    @staticmethod
    def settings(simulator):
        return {"url": simulator.url("samsara")}

    @staticmethod
    def filler():
        return "/v1/samsara/event", '{"timestamp":1,"sourceId":"healthy","eventName":"storm.over"}'

    def next(self):
        self.done += 1
        poison = self.dice.random() < 0.004
        name = "poison" if poison else "storm.event"
        source = f"source-{self.number}"
        body = f'{{"timestamp":{1479988864057 + self.done},"sourceId":"{source}","eventName":"{name}","seq":{self.done}}}'
        return "/v1/samsara/event", body, (source, str(self.done)), poison
