"""Rules about the command `eval`."""

from slimrl.config.checks.error import ConfigError
from slimrl.config.checks.sections import check_fits, check_model, check_nothing_trained, check_temperatures
from slimrl.config.run import EvalRunConfig


def check_eval(config: EvalRunConfig) -> None:
    check_model(config.model)
    check_nothing_trained(config.model)
    check_fits(config.max_tokens, config.seq_len, "max_tokens")
    check_temperatures(config.temperatures, "temperatures")
    if any(config.temperatures):
        return
    for key, value, neutral in (("top_p", config.top_p, 1.0), ("top_k", config.top_k, 0), ("min_p", config.min_p, 0.0)):
        if value != neutral:
            raise ConfigError(
                f"{key} = {value} cannot act, because temperature 0 always takes the likeliest token. Remove it, or "
                "add a temperature above 0.",
                key,
                "temperatures",
            )
