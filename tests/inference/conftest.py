"""A recorder of graphs for machines without a GPU, by which every engine of a test decodes.

A recording is a function that is called again and writes into the same tensor; that, too, only sees what stands in the
graph's own tensors.
"""

from collections.abc import Callable

import pytest
from torch import Tensor

from slimrl.inference import engine as engine_module
from slimrl.inference.graphs import DecodeGraphs
from slimrl.models.forward.module import ModuleForward


class Repeated:
    """A recorder that keeps the function, and counts its recordings, its replays, and how often it was made."""

    def __init__(self) -> None:
        self.made = self.recorded = self.replayed = 0

    def make(self) -> "Repeated":
        self.made += 1
        return self

    def __call__(self, work: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        self.recorded += 1
        result = work().clone()

        def replay() -> None:
            self.replayed += 1
            result.copy_(work())

        return result, replay


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Repeated:
    repeated = Repeated()
    monkeypatch.setattr(engine_module, "decode_graphs", lambda *parts: DecodeGraphs(*parts, repeated.make))
    monkeypatch.setattr(engine_module, "sampling_forward", ModuleForward)
    return repeated
