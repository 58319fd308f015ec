"""Before training, everything else lets go of the device."""

from types import SimpleNamespace
from typing import cast

from slimrl.environments.base import complete
from slimrl.launch.parts import Parts
from slimrl.launch.sampling import make_room
from slimrl.types import Taskset


class Noting:
    def __init__(self) -> None:
        self.called: list[str] = []

    def offload(self) -> None:
        self.called.append("offload")

    def pause(self) -> None:
        self.called.append("pause")


def make_room_of(level: int) -> tuple[Noting, Noting]:
    """What an engine's side and a taskset that holds something were told."""
    sampling, holding = Noting(), Noting()
    parts = SimpleNamespace(
        engine=sampling,
        client=sampling,
        tasksets=[Taskset(), complete(holding)],
        config=SimpleNamespace(async_level=level),
    )
    make_room(cast(Parts, parts))
    return sampling, holding


def test_the_engine_and_those_tasksets_that_hold_something_rest():
    sampling, holding = make_room_of(0)
    assert (sampling.called, holding.called) == (["pause", "offload"], ["offload"])


def test_what_episodes_in_flight_may_need_stays():
    sampling, holding = make_room_of(1)
    assert (sampling.called, holding.called) == (["pause", "offload"], [])
