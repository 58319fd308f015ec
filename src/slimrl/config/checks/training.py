"""Rules of the commands that train: `rl`, `trainer` and `sft`."""

from slimrl.config.checks.deployment import check_deployment
from slimrl.config.checks.error import ConfigError
from slimrl.config.checks.inference import check_inference
from slimrl.config.checks.loss import check_loss, check_rewards_count, check_taus
from slimrl.config.checks.monitors import check_monitors
from slimrl.config.checks.sections import (
    check_fits,
    check_groups,
    check_model,
    check_schedule,
    check_temperatures,
)
from slimrl.config.checks.teacher import check_teacher
from slimrl.config.data import ExpertDataConfig, FileDataConfig, HubDataConfig
from slimrl.config.run import RLConfig, SFTConfig, TrainerOnlyConfig


def check_rl(config: RLConfig) -> None:
    """Applies the rules of `rl`. Raises ConfigError."""
    check_model(config.model)
    group = config.orchestrator.rollouts_per_example
    check_groups(config.orchestrator.batch_size, group, "orchestrator")
    check_loss(config.trainer.loss, group, "orchestrator.rollouts_per_example", config.has_teacher)
    check_teacher(config)
    check_inference(config.inference)
    check_deployment(config)
    check_schedule(config.trainer.schedule, "trainer.schedule")
    check_schedule(config.warmup.schedule, "warmup.schedule")
    check_fits(config.orchestrator.sampling.max_tokens, config.seq_len, "orchestrator.sampling.max_tokens")
    check_temperatures(config.eval.temperatures, "eval.temperatures")
    check_monitors(config)


def check_trainer(config: TrainerOnlyConfig) -> None:
    """Applies the rules of `trainer`, whose made-up samples need no reward. Raises ConfigError."""
    check_model(config.model)
    check_groups(config.data.batch_size, config.data.rollouts_per_example, "data")
    check_loss(config.trainer.loss, config.data.rollouts_per_example, "data.rollouts_per_example")
    check_taus(config.trainer.loss, teacher=False)
    check_rewards_count(config.trainer.loss, "made-up samples have made-up advantages")
    if config.trainer.loss.overrides().get("student_tau", 0.0) > 0:
        raise ConfigError(
            "trainer.loss.student_tau cannot act: made-up samples have made-up advantages. Remove it.",
            "trainer.loss.student_tau",
        )
    check_schedule(config.trainer.schedule, "trainer.schedule")
    length = config.data.prompt_len + config.data.completion_len
    if length > config.seq_len:
        raise ConfigError(
            f"data.prompt_len + data.completion_len = {length} tokens do not fit in seq_len = {config.seq_len}.",
            "data.prompt_len",
            "data.completion_len",
            "seq_len",
        )


def check_sft(config: SFTConfig) -> None:
    """Applies the rules of `sft`. Raises ConfigError."""
    check_model(config.model)
    check_schedule(config.schedule, "schedule")
    match config.data:
        case ExpertDataConfig(env=env) if env.name:
            raise ConfigError("data.env.name cannot act: there is one environment. Remove it.", "data.env.name")
        case FileDataConfig(val_path=own) if own:
            check_held_out(config.data, "val_path")
        case HubDataConfig(val_split=own) if own:
            check_held_out(config.data, "val_split")


def check_held_out(data: FileDataConfig | HubDataConfig, own: str) -> None:
    """Refuses a share to hold out beside a validation set of its own, named by the setting `own`. Raises
    ConfigError."""
    if data.val_fraction != type(data).model_fields["val_fraction"].default:
        raise ConfigError(
            f"data.val_fraction cannot act, because data.{own} names what to validate on. Remove one of the two.",
            "data.val_fraction",
            f"data.{own}",
        )
