"""The error of a broken rule."""

from slimrl.config.reading.schema import Path
from slimrl.errors import UserError


class ConfigError(UserError):
    """Settings that are valid one by one and not together. `paths` are the settings, so that `load` can add to the
    message where each was set."""

    def __init__(self, text: str, *keys: str) -> None:
        super().__init__(text)
        self.paths: tuple[Path, ...] = tuple(tuple(key.split(".")) for key in keys)
