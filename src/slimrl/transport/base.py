"""The types that the orchestrator and the trainer exchange. The two share nothing else.

In one process both directions are plain calls. `Receive` collects the batch when it is called. Publishing only sends a
version number, because the engine samples from the trainer's own module.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from slimrl.types import Metrics, Sample


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of one training step, and the temperature at which they were sampled.

    `orchestrator_state` is the orchestrator's state after this batch, as JSON. The trainer stores this state in its
    checkpoints and returns it when a run is resumed, but never reads it. If no group gives a training signal, the batch
    has no samples and leaves the weights unchanged.
    """

    samples: tuple[Sample, ...]
    temperature: float
    metrics: Metrics = field(default_factory=dict)
    orchestrator_state: Mapping[str, Any] = field(default_factory=dict)

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # for batches in files


Receive = Callable[[int], Batch]
"""Returns the batch of a training step, given the step's number. The call blocks until the batch is there."""

Publish = Callable[[int], None]
"""Gives the module's weights to the sampler, with this version number."""
