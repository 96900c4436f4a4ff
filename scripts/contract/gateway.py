"""The gateway whose contract is checked: all upstreams are simulated."""

import json

from harness import ROOT, Gateway, merged

# An upstream that drops messages, so that there are some to be queued again.
DROPPING = "dropping"


class SimulatedGateway(Gateway):
    def __init__(self, binary, directory, more=None):
        example = json.loads((ROOT / "config.example.json").read_text())
        changes = {
            DROPPING: {"type": "samsara", "url": "http://127.0.0.1:9", "queue": {"maxMessages": 1, "whenFull": "dropOldest"}},
            # So that no event lacks it.
            "samsara": {"sourceId": "gateway"},
            "appservices": {"monitoringEnabled": True},
            **(more or {}),
        }
        for name, upstream in example["upstreams"].items():
            if "sdk" in upstream:
                changes[name] = merged(changes.get(name, {}), {"sdk": {"enabled": True}})
        settings = {"upstreams": merged(example["upstreams"], changes)}
        super().__init__(binary, directory, settings, arguments=["--simulate"])
