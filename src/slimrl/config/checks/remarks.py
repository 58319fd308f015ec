"""Settings that are taken and act otherwise than their name says, in this version: a line about each at the start."""

from collections.abc import Iterator

from slimrl.config.base import CommandConfig
from slimrl.config.run import RLConfig


def remarks(config: CommandConfig) -> Iterator[str]:
    """The lines to print about a configuration."""
    if isinstance(config, RLConfig) and config.max_async_level > 0:
        yield (
            f"max_async_level = {config.max_async_level}: sampling and training take turns in this version, so no "
            "rollout is older than the weights that it trains"
        )
