import time

from storm_scenarios import StormScenario


class CurioScenario(StormScenario):
    """A visitor with sessions of 40 actions."""

    upstream = "curio"
    weather = ["status=404@/api/v2/event", "status=503/1@/api/v2/event", "status=503@/api/v2/offline"]
    field = "/eventKey"
    DEVICE = ('"screenWidth":750,"screenHeight":1334,"lang":"tr-TR","simOperator":"","simOpCountry":"","networkOpName":"",'
              '"connType":"wifi","brand":"Apple","model":"iPhone","osType":"iOS","osVer":"9","curioSdkVer":"1.2.4","appVer":"2"')

    @staticmethod
    def settings(simulator):
        return {
            "serverURL": simulator.url("curio") + "/api/v2", "apiKey": "key", "trackingCode": "GW7DEM01",
            # More than a visitor writes while Curio is paused: the SDK's own cap is not what is tried here.
            "maxCachedActivityCount": 4000,
        }

    def __init__(self, number, dice):
        super().__init__(number, dice)
        self.visitor = f"visitor-{number}"
        self.session = None
        self.sessions = 0

    def act(self, kind, members=""):
        common = f'"visitorCode":"{self.visitor}","sessionCode":"{self.session}","timestamp":{int(time.time() * 1000)}'
        return f"/v1/curio/{kind}", "{" + common + ("," + members if members else "") + "}"

    def next(self):
        self.done += 1
        if self.session is None:
            self.sessions += 1
            self.session = f"6d551000-a21d-11e4-8{self.sessions % 1000:03d}-{self.number + 0x100000000000:012x}"
            return *self.act("session_start", self.DEVICE), None, False
        if self.done % 40 == 0:
            path, body = self.act("session_end")
            self.session = None
            return path, body, None, False
        key = f"{self.number}/{self.done}"
        return *self.act("event", f'"eventKey":"{key}","eventValue":"1"'), (self.visitor, key), False
