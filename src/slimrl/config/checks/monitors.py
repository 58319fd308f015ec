"""Rules of `[monitors]`: names that contradict each other, and settings of a monitor that cannot act."""

from slimrl.config.checks.error import ConfigError
from slimrl.config.monitors import BOUNDS
from slimrl.config.run import RLConfig


def check_monitors(config: RLConfig) -> None:
    """Refuses bounds of a monitor that is off, and ending a run on what can never be raised in it. Raises
    ConfigError. Where all monitors are switched off, their settings are left for a flag to switch them on."""
    monitors = config.monitors
    if not monitors.enabled:
        return
    for key in ("stop", "off"):
        names: list[str] = getattr(monitors, key)
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise ConfigError(f'monitors.{key} names "{twice[0]}" twice. Remove one.', f"monitors.{key}")
    for name in monitors.stop:
        if name in monitors.off:
            raise ConfigError(
                f'monitors.stop has "{name}", which cannot act: monitors.off has it too. Remove it from one of the '
                "two.",
                "monitors.stop",
                "monitors.off",
            )
        if why := _never_raised(config, name):
            raise ConfigError(f'monitors.stop has "{name}", which cannot act: {why}', "monitors.stop")
    for key, name in BOUNDS.items():
        if name in monitors.off and getattr(monitors, key) != type(monitors).model_fields[key].default:
            raise ConfigError(
                f'monitors.{key} cannot act: its monitor "{name}" is in monitors.off. Remove one of the two.',
                f"monitors.{key}",
                "monitors.off",
            )


def _never_raised(config: RLConfig, name: str) -> str:
    """Why a monitor can never end the run; empty if it can."""
    loss, num = config.trainer.loss.resolve(config.has_teacher), config.orchestrator.rollouts_per_example
    match name:
        case "held_out_gap" if not 0 < config.eval.interval_steps < config.max_steps:
            return "held-out tasks are measured before and after training alone. Set eval.interval_steps."
        case "zero_signal" if loss.has_critic or loss.teacher_tau > 0 or loss.student_tau > 0:
            return "with a value head or distillation every group carries a signal. Remove it."
        case "reward_spread" if config.has_teacher:
            return "a policy that learns from a teacher needs no spread of rewards. Remove it."
        case "duplicates" if num == 1:
            return "orchestrator.rollouts_per_example = 1 leaves no two rollouts to compare. Remove it."
    return ""
