"""The rules of each command: which checks apply to which configuration."""

from slimrl.config.base import CommandConfig
from slimrl.config.checks.eval import check_eval
from slimrl.config.checks.secrets import check_secrets
from slimrl.config.checks.serve import check_play, check_serve
from slimrl.config.checks.teacher import check_probe
from slimrl.config.checks.training import check_rl, check_sft, check_trainer
from slimrl.config.play import PlayConfig
from slimrl.config.run import EvalRunConfig, ProbeConfig, RLConfig, SFTConfig, TrainerOnlyConfig
from slimrl.config.serve import ServeConfig


def check(config: CommandConfig) -> None:
    """Applies every rule of the command. Raises ConfigError for the first one that is broken."""
    check_secrets(config.model_dump())
    match config:
        case ProbeConfig():  # before RLConfig, whose subclass it is
            check_rl(config)
            check_probe(config)
        case RLConfig():
            check_rl(config)
        case TrainerOnlyConfig():
            check_trainer(config)
        case SFTConfig():
            check_sft(config)
        case EvalRunConfig():
            check_eval(config)
        case ServeConfig():
            check_serve(config)
        case PlayConfig():
            check_play(config)
