"""Rules about the addresses of servers."""

from collections.abc import Iterable
from typing import Any

from slimrl.config.checks.error import ConfigError
from slimrl.io.urls import has_password


def check_addresses(settings: Any, key: str = "") -> None:
    """No key in the address of a server, also not in what is passed on to an environment: it would stand in every file
    and message that names the address."""
    match settings:
        case dict():
            entries: Iterable[tuple[Any, Any]] = settings.items()
        case list():
            entries = enumerate(settings)
        case _:
            return
    for name, value in entries:
        place = f"{key}.{name}" if key else str(name)
        if name == "base_url" and isinstance(value, str) and has_password(value):  # it is not repeated
            raise ConfigError(
                f"{place} has a user or a password in it (`...@...`). Remove it: a key goes into the variable of the "
                "environment that `api_key_variable` beside it names.",
                place,
            )
        check_addresses(value, place)
