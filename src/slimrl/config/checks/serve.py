"""Rules of the commands `inference` and `play`: a public server has a key, and a model's settings need a model."""

from slimrl.config.checks.error import ConfigError
from slimrl.config.checks.sections import check_fits, check_model, check_nothing_trained
from slimrl.config.play import PlayConfig
from slimrl.config.serve import ServeConfig
from slimrl.io.urls import is_loopback


def check_serve(config: ServeConfig) -> None:
    """Refuses a server that other machines can reach without a key. Raises ConfigError."""
    check_model(config.model)
    check_nothing_trained(config.model)
    if not config.api_key and not is_loopback(config.host):
        raise ConfigError(
            f"host = {config.host} can be reached from other machines, and without an api_key everyone there could use "
            "the server and replace its weights. Set the variable SLIMRL_API_KEY, or leave host at 127.0.0.1.",
            "host",
            "api_key",
        )


def check_play(config: PlayConfig) -> None:
    """Refuses settings of a model where none is named. Raises ConfigError."""
    if config.model.name:
        check_model(config.model)
        check_nothing_trained(config.model)
        check_fits(config.sampling.max_tokens, config.seq_len, "sampling.max_tokens")
        return
    defaults = PlayConfig.model_fields
    given = [key for key in ("model", "sampling", "seq_len") if vars(config)[key] != defaults[key].default]
    if given:
        raise ConfigError(
            f"{' and '.join(given)} cannot act, because no model plays. Name one with model.name to seat it at the "
            "other side, or remove it.",
            *given,
        )
