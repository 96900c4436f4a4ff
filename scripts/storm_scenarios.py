"""What the storm has to know of each type of upstream: `Tests/Upstreams/<Type>/storm.py`, a subclass of `StormScenario`."""

import importlib.util
import pathlib

TREE = pathlib.Path(__file__).resolve().parent.parent


class StormScenario:
    """What one actor does, one request after the other; each is repeated until it is answered."""

    upstream = None  # The name of the type.
    poison = ""  # Which messages its simulator refuses, as a fault.
    weather = []  # Faults that only this type has, besides those of all.
    field = None  # The member of what arrives that holds the number of a message; None: `check` looks at what arrived.
    endpoint = None  # The path that all messages of an actor go to, if those of others go to other ones.
    may_cancel = False  # Whether no later message of an actor depends on an earlier one.

    def __init__(self, number, dice):
        self.number, self.dice = number, dice
        self.done = 0
        self.accepted = []  # (mark, id, is poison, item of the history)

    @staticmethod
    def settings(simulator):
        """Its settings in the configuration."""
        raise NotImplementedError

    @staticmethod
    def control(actors):
        """What its simulator is told before the storm."""
        return None

    @staticmethod
    def filler():
        """(path, body) of a message that nothing is wrong with, if doubtful answers can hold up all others."""
        return None

    def next(self):
        """(path, body, mark, is poison); the mark is the pair of order and number that the simulator shows."""
        raise NotImplementedError

    def check(self, state):
        """What is wrong at the end with what the simulator's `/control/state` shows of this actor, as texts."""
        return []

    has_state = False  # Whether `check` needs that.


def item(upstream, key, mark):
    """The item of the history that a simulator shows with this order key and this text; None if the text is empty.

    What one actor writes is in order. The text of a Samsara event does not name the actor, but its key does.
    """
    actor, _, number = mark.rpartition("/")
    return (f"{upstream}/{actor or key}", int(number)) if mark else None


def load(types):
    """The scenarios of types that have one."""
    scenarios = []
    for file in sorted(TREE.glob("Tests/Upstreams/*/storm.py")):
        if file.parent.name.lower() not in types:
            continue
        specification = importlib.util.spec_from_file_location(f"storm_{file.parent.name}", file)
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        scenarios += [
            value for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, StormScenario) and value is not StormScenario
        ]
    return scenarios
