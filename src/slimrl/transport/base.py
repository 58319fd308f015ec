"""What the trainer receives and what it hands back: the two halves of slimrl meet in these types and nowhere else.

In one process both are plain calls: `Receive` collects the batch there and then, and publishing is a version number,
because the engine samples from the trainer's own module.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slimrl.types import Metrics, Sample


@dataclass(frozen=True, slots=True)
class Batch:
    """One training step's samples.

    `temperature` is the one they were sampled at. `data_position` is how many tasks have been drawn once this batch was
    made, `role_means` what the rewards of each role then are on average (`orchestrator/roles.py`): the trainer keeps
    both in its checkpoints, and a resumed run goes on from there. May be empty, when no group carried a signal; the
    step then leaves the weights alone.
    """

    samples: tuple[Sample, ...]
    temperature: float
    data_position: int
    metrics: Metrics = field(default_factory=dict)
    role_means: Mapping[str, float] = field(default_factory=dict)


Receive = Callable[[int], Batch]
"""The batch for a training step, given the step's number; blocks until it is there."""

Publish = Callable[[int], None]
"""Make the module's weights the sampler's, under this version number."""
