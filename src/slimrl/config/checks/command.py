"""The rules of each command: which checks apply to which configuration."""

from collections.abc import Callable
from typing import Any

from slimrl.config.base import CommandConfig
from slimrl.config.checks.deployment import sampler_faults
from slimrl.config.checks.faults import Faults, error_of, find_changed, idle
from slimrl.config.checks.secrets import check_secrets
from slimrl.config.checks.sections import length_faults, model_faults, temperature_faults
from slimrl.config.checks.training import probe_faults, rl_faults, sft_faults, trainer_faults
from slimrl.config.play import PlayConfig
from slimrl.config.run import EvalRunConfig, ProbeConfig, RLConfig, SFTConfig, TrainerOnlyConfig
from slimrl.config.serve import ServeConfig
from slimrl.io.urls import is_loopback


def check(config: CommandConfig) -> None:
    """Apply every rule of the command. Raise ConfigError for the first broken one."""
    check_secrets(config.model_dump())
    if type(config) in RULES:
        for fault in RULES[type(config)](config):
            raise error_of(fault, config)


def _eval_faults(config: EvalRunConfig) -> Faults:
    yield from model_faults(config.model, is_trained=False)
    elsewhere = ["backend", "base_url", "timeout_s", "port"]
    yield from idle(config.inference, "inference", elsewhere, "`eval` samples in its own process")
    yield from sampler_faults(config.inference)
    yield from length_faults(config.sampling.max_tokens, config.seq_len, "sampling.max_tokens")
    yield from temperature_faults(config.temperatures, "temperatures")
    if not any(config.temperatures):
        why = "with <temperatures=> the likeliest token is always taken"
        yield from idle(config.sampling, "sampling", ["top_p", "top_k", "min_p"], why)


def _serve_faults(config: ServeConfig) -> Faults:
    yield from model_faults(config.model, is_trained=False)
    if not config.api_key and not is_loopback(config.host):
        yield (
            "<host=> can be reached from other machines, and without an <api_key> everyone there could use the server "
            "and replace its weights. Set the variable SLIMRL_API_KEY, or leave host at 127.0.0.1."
        )


def _play_faults(config: PlayConfig) -> Faults:
    if config.model.name:
        yield from model_faults(config.model, is_trained=False)
        yield from length_faults(config.sampling.max_tokens, config.seq_len, "sampling.max_tokens")
    elif given := find_changed(config, ["model", "sampling", "seq_len"]):
        yield (
            f"{' and '.join(f'<{key}>' for key in given)} cannot act, because no model plays. Name one with model.name "
            "to seat it at the other side, or remove it."
        )


RULES: dict[type[CommandConfig], Callable[[Any], Faults]] = {
    RLConfig: rl_faults,
    ProbeConfig: probe_faults,
    TrainerOnlyConfig: trainer_faults,
    SFTConfig: sft_faults,
    EvalRunConfig: _eval_faults,
    ServeConfig: _serve_faults,
    PlayConfig: _play_faults,
}
