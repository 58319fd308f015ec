"""Rules of the command `eval`: lengths that fit, and truncation that can act."""

from slimrl.config.checks.error import ConfigError
from slimrl.config.checks.inference import check_own_engine
from slimrl.config.checks.sections import check_fits, check_model, check_nothing_trained, check_temperatures
from slimrl.config.rollout import EvalSamplingConfig
from slimrl.config.run import EvalRunConfig


def check_eval(config: EvalRunConfig) -> None:
    """Applies the rules of `eval`. Raises ConfigError."""
    check_model(config.model)
    check_nothing_trained(config.model)
    check_own_engine(config.inference, "eval")
    check_fits(config.sampling.max_tokens, config.seq_len, "sampling.max_tokens")
    check_temperatures(config.temperatures, "temperatures")
    if any(config.temperatures):
        return
    for name in ("top_p", "top_k", "min_p"):
        value, default = getattr(config.sampling, name), EvalSamplingConfig.model_fields[name].default
        if value != default:
            key = f"sampling.{name}"
            raise ConfigError(
                f"{key} = {value} cannot act, because temperature 0 always takes the likeliest token. Remove it, or "
                "add a temperature above 0.",
                key,
                "temperatures",
            )
