import json

from storm_scenarios import StormScenario


class AppServicesScenario(StormScenario):
    """A user with a device who joins and leaves groups and changes preferences."""

    upstream = "appservices"
    has_state = True

    @staticmethod
    def settings(simulator):
        return {
            "baseURL": simulator.url("appservices") + "/appservices", "organization": "acme", "application": "campus",
            "apiKey": "KEY",
        }

    def __init__(self, number, dice):
        super().__init__(number, dice)
        self.user = "ffffffff" + f"{number:024x}"
        self.device = f"c0ffee11-2233-4455-8677-{number:012x}"
        self.groups, self.preferences, self.registered = set(), None, False

    def item(self, kind, members):
        body = f'{{"userId":"{self.user}",{members},"auth":{{"token":"PiTok-{self.number}"}}}}'
        return f"/v1/appservices/{kind}", body, None, False

    def next(self):
        self.done += 1
        on = f'"deviceId":"{self.device}"'
        if not self.registered:
            self.registered = True
            return self.item("register", f'{on},"deviceToken":"{self.number:064x}"')
        if self.dice.random() < 0.5:
            return self.item("preferences", f'{on},"preferences":{json.dumps(self.change())}')
        group = f"g{self.dice.randrange(4)}"
        if group in self.groups:
            self.groups.remove(group)
            return self.item("group_remove", f'"group":"{group}"')
        self.groups.add(group)
        return self.item("group_add", f'"group":"{group}"')

    def change(self):
        """The lists as a whole, an addition, a removal, or the last ones again."""
        kind = self.dice.random() if self.preferences is not None else 0
        if kind < 0.25:
            self.preferences = {f"t{self.done}": []}
            return {"whitelist": self.preferences}
        if kind < 0.6:
            self.preferences = {**self.preferences, f"t{self.done % 5}": ["x"]}
            return {"add": {"whitelist": {f"t{self.done % 5}": ["x"]}}}
        if kind < 0.9:
            removed = self.dice.sample(sorted(self.preferences), min(1, len(self.preferences)))
            self.preferences = {name: value for name, value in self.preferences.items() if name not in removed}
            return {"remove": {"whitelist": removed}}
        return None

    def check(self, state):
        if not self.registered:
            return []
        wrong = []
        groups = {name for name, users in state["groups"].items() if self.user in users}
        if groups != self.groups:
            wrong.append(f"{self.user} is in {sorted(groups)} instead of {sorted(self.groups)}")
        device = state["devices"].get(self.device, {})
        lists = device.get("mobileplatform", {}).get("preferences", {}).get("whitelist")
        if self.preferences is not None and lists != self.preferences:
            wrong.append(f"{self.device} has {lists} instead of {self.preferences}")
        if state["connections"].get(self.device) != [self.user]:
            wrong.append(f"{self.device} is connected to {state['connections'].get(self.device)}")
        return wrong
