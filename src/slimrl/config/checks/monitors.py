"""Rules of `[monitors]`: names that contradict each other, and settings of a monitor without effect."""

from slimrl.config.checks.faults import Faults, find_changed
from slimrl.config.monitors import BOUNDS
from slimrl.config.run import RLConfig


def monitor_faults(config: RLConfig) -> Faults:
    """Yield bounds of a monitor that is off, and stops for alarms that cannot occur. If all monitors are switched off,
    accept their settings, so that a flag can switch them on."""
    monitors = config.monitors
    if not monitors.enabled:
        return
    for key, names in (("stop", monitors.stop), ("off", monitors.off)):
        for name in {name for name in names if names.count(name) > 1}:
            yield f'<monitors.{key}> names "{name}" twice. Remove one.'
    for name in monitors.stop:
        if name in monitors.off:
            yield f'<monitors.stop> has "{name}", which cannot act: <monitors.off> has it too. Remove one of the two.'
        if why := _never_raised(config, name):
            yield f'<monitors.stop> has "{name}", which cannot act: {why}'
    for key in find_changed(monitors, list(BOUNDS)):
        if BOUNDS[key] in monitors.off:
            yield f'<monitors.{key}=> cannot act: its monitor "{BOUNDS[key]}" is in <monitors.off>. Remove either.'


def _never_raised(config: RLConfig, name: str) -> str:
    """Return why a monitor can never end the run; empty if it can."""
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
