"""Logs notes about a run that cannot learn, or that mostly waits for its environment. The run continues."""

from collections.abc import Callable, Mapping, Sequence

from slimrl.config.run import RLConfig
from slimrl.environments.scripts import EXPERT
from slimrl.errors import nearest
from slimrl.monitor.console import RunConsole
from slimrl.monitor.health.measure import AUTO
from slimrl.monitor.metrics import select_held_out_rewards
from slimrl.types import Metrics, Taskset

SHARE_STEPS = 3  # number of training steps that are measured
LARGE_SHARE = 0.2  # smallest share of a step that is reported


def advise(config: RLConfig, tasksets: Sequence[Taskset], metrics: Metrics, console: RunConsole) -> None:
    """Log advice if no reward of the first step is above 0, or if no environment reports right answers. `metrics` are
    the metrics of the first step and of the held-out evaluation."""
    for advice in (_nothing_earned(config, tasksets, metrics), _unknown_right_metric(config, metrics)):
        if advice:
            console.note(f"step 0: {advice}", "yellow")


class EnvironmentShare:
    """A sink that measures the share of a step's time in which all episodes wait for their environment. The sink
    reports a large share once in a run. It is used only at `max_async_level = 0`: at higher levels, training continues
    while episodes wait."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._num, self._wait_s, self._step_s = 0, 0.0, 0.0

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the times of a training step. After `SHARE_STEPS` steps, report the share if it is large."""
        if "time/env_wait_s" not in metrics or "time/step_s" not in metrics or self._num == SHARE_STEPS:
            return
        self._num += 1
        self._wait_s += metrics["time/env_wait_s"]
        self._step_s += metrics["time/step_s"]
        share = self._wait_s / max(self._step_s, 1e-9)
        if self._num == SHARE_STEPS and share >= LARGE_SHARE:
            self._note(
                f"the environment takes {share:.0%} of a step, in which nothing is sampled or trained: "
                "`--max_async_level 1` trains meanwhile (`slimrl plan --run DIR` predicts the gain)"
            )

    def close(self, failed: bool = False) -> None:
        """No-op."""


def _nothing_earned(config: RLConfig, tasksets: Sequence[Taskset], metrics: Metrics) -> str:
    """Return a remedy if no reward of the first step and no held-out reward is above 0; otherwise an empty text. With a
    teacher, return an empty text, because the run can learn without rewards."""
    held_out = [metrics[name] for name in select_held_out_rewards(metrics)]
    if config.has_teacher or max(metrics["reward/max"], *held_out, 0.0) > 0.0:
        return ""
    if not all(EXPERT in taskset.scripts for taskset in tasksets):
        remedy = "fine-tune it first by `slimrl sft` on conversations that succeed, or take easier tasks"
    elif config.warmup.max_steps:
        remedy = f"its warm-up was too short: raise --warmup.max_steps, which is {config.warmup.max_steps}"
    else:
        remedy = "warm it up on what the environment's expert does, by adding --warmup.max_steps 20"
    return (
        "the model earns nothing yet, in no rollout and on no held-out task, and reinforcement only strengthens what "
        f"succeeds now and then: {remedy}"
    )


def _unknown_right_metric(config: RLConfig, metrics: Metrics) -> str:
    """Return a note if no environment reported the metric `monitors.right_metric` in this step; otherwise an empty
    text. Later steps may report the metric, when the first episodes finish."""
    name = config.monitors.right_metric
    if not config.monitors.enabled or name == AUTO or "monitor/right" in metrics:
        return ""
    known = [metric.removeprefix("env/") for metric in metrics if metric.startswith("env/")]
    return (
        f'monitors.right_metric = "{name}": no environment reports it in the first step.{nearest(name, known)} While '
        "none does, right answers are not watched."
    )
