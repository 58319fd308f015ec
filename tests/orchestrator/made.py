"""An orchestrator for tests, with the settings that most of them share."""

from collections.abc import Sequence
from typing import Any

from slimrl.config.loss import LossConfig
from slimrl.config.rollout import EnvConfig, OrchestratorConfig, SamplingConfig
from slimrl.monitor.rollouts import RolloutRecord
from slimrl.orchestrator.distill import Distillation
from slimrl.orchestrator.orchestrator import Orchestrator
from tests.rollout.scripted import DigitClient, make_context

Records = dict[int, list[RolloutRecord]]


def make_orchestrator(
    tasksets: Sequence[Any],
    records: Records,
    context: Any = None,
    loss: Any = None,
    distillation: Distillation | None = None,
    **settings: Any,
) -> Orchestrator:
    """Make an orchestrator whose rollouts are kept in `records`, by step. `settings` are `seed`, `level`, the `names`
    of the environments, and those of the section."""
    seed, level, names = settings.pop("seed", 0), settings.pop("level", 0), settings.pop("names", ["digits"])
    defaults = {
        "env": [EnvConfig(id="digits", name=name) for name in names],
        "batch_size": 12,
        "rollouts_per_example": 4,
        "sampling": SamplingConfig(max_tokens=8, temperature=0.9),
    }
    config = OrchestratorConfig.model_validate(defaults | settings)
    context, loss = context or make_context(DigitClient()), loss or LossConfig().resolve()

    def record(step: int, found: Sequence[RolloutRecord]) -> None:
        records[step] = list(found)

    return Orchestrator(tasksets, context, config, loss, seed, record, distillation, level)
