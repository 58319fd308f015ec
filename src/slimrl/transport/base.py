"""The types in which the orchestrator and the trainer meet; they share nothing else.

In one process both directions are plain calls. `Receive` collects the batch when it is called, and publishing is a
version number, because the engine samples from the trainer's own module.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slimrl.types import Metrics, Sample


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of one training step, and the temperature that they were sampled at.

    `orchestrator_state` is where the orchestrator stands after this batch, as JSON. The trainer keeps it in its
    checkpoints and gives it back when a run is resumed; it never looks inside. A batch without samples, made when no
    group carried a signal, leaves the weights alone.
    """

    samples: tuple[Sample, ...]
    temperature: float
    metrics: Metrics = field(default_factory=dict)
    orchestrator_state: Mapping[str, Any] = field(default_factory=dict)


Receive = Callable[[int], Batch]
"""The batch of a training step, given the step's number. The call blocks until the batch is there."""

Publish = Callable[[int], None]
"""A call that makes the module's weights the sampler's, under this version number."""
