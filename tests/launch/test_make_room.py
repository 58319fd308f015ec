"""Before training, everything else lets go of the device."""

from types import SimpleNamespace
from typing import cast

from slimrl.launch.parts import Parts
from slimrl.launch.stages import make_room


class Noting:
    def __init__(self) -> None:
        self.rested = 0

    def offload(self) -> None:
        self.rested += 1


def test_the_engine_and_those_tasksets_that_hold_something_rest():
    engine, holding, plain = Noting(), Noting(), object()
    make_room(cast(Parts, SimpleNamespace(engine=engine, tasksets=[plain, holding])))
    assert (engine.rested, holding.rested) == (1, 1)
