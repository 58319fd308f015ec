"""Before training, everything else frees the memory of the device."""

from types import SimpleNamespace
from typing import cast

import pytest

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


@pytest.mark.parametrize(("level", "of_taskset"), [(0, ["offload"]), (1, [])])  # episodes in flight may need it
def test_the_engine_and_tasksets_that_hold_memory_rest(level: int, of_taskset: list[str]) -> None:
    sampling, holding = Noting(), Noting()
    config, tasksets = SimpleNamespace(async_level=level), [Taskset(), complete(holding)]
    make_room(cast(Parts, SimpleNamespace(engine=sampling, client=sampling, tasksets=tasksets, config=config)))
    assert (sampling.called, holding.called) == (["pause", "offload"], of_taskset)
