"""What a resumed run says of its learning rate where other settings would make it jump."""

from pathlib import Path

from slimrl.config.base import CommandConfig
from slimrl.config.run import SFTConfig, TrainingRunConfig
from slimrl.config.train import OptimConfig, ScheduleConfig, TrainerConfig
from slimrl.trainer.checkpoint import read_progress
from slimrl.trainer.optim import schedule_factor


def describe_jump(before: CommandConfig, now: CommandConfig, output_dir: Path) -> str:
    """One line if the next step has another learning rate than it would have had with the settings from before; else
    empty. A schedule runs over all of `max_steps`, so raising these stretches it."""
    progress = read_progress(output_dir)
    if progress is None or progress.step == 0:
        return ""
    step = progress.step
    was, planned, new = _lr(before, step - 1), _lr(before, step), _lr(now, step)
    if abs(new - planned) <= 1e-9 * max(new, planned):
        return ""
    return (
        f"the learning rate jumps: step {step} had {was:.3g}, and step {step + 1} has {new:.3g}, where the settings "
        f"from before give {planned:.3g}; a schedule runs over all of max_steps"
    )


def _lr(config: CommandConfig, step: int) -> float:
    """The learning rate of a 0-based step."""
    assert isinstance(config, TrainingRunConfig)
    optim, schedule = _sections(config)
    return optim.lr * schedule_factor(step, config.max_steps, schedule)


def _sections(config: TrainingRunConfig) -> tuple[OptimConfig, ScheduleConfig]:
    if isinstance(config, SFTConfig):
        return config.optim, config.schedule
    trainer = vars(config)["trainer"]
    assert isinstance(trainer, TrainerConfig)
    return trainer.optim, trainer.schedule
