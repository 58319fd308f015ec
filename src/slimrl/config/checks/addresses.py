"""The rule about the addresses of servers: none has a password in it."""

from collections.abc import Iterable
from typing import Any

from slimrl.config.checks.error import ConfigError
from slimrl.io.urls import has_password


def check_addresses(settings: Any, key: str = "") -> None:
    """Refuses a user or a password in any `base_url`, also in the arguments of an environment: every file and message
    that names the address would repeat it. Raises ConfigError."""
    # Which arguments of an environment are addresses is unknown here, so every level of the settings is searched.
    match settings:
        case dict():
            entries: Iterable[tuple[Any, Any]] = settings.items()
        case list():
            entries = enumerate(settings)
        case _:
            return
    for name, value in entries:
        place = f"{key}.{name}" if key else str(name)
        if name == "base_url" and isinstance(value, str) and has_password(value):  # the message does not repeat it
            raise ConfigError(
                f"{place} has a user or a password in it (`...@...`). Remove it: a key goes into the variable of the "
                "environment that `api_key_variable` beside it names.",
                place,
            )
        check_addresses(value, place)
