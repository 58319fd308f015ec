"""The rule about secrets: none is in the settings, which are shown, kept with a run, and sent to W&B."""

from collections.abc import Iterable
from typing import Any

from slimrl.config.base import SECRET
from slimrl.config.checks.error import ConfigError
from slimrl.io.secrets import has_secret, names_secret
from slimrl.io.urls import fault_of_base_url, is_variable_name

ADVICE = (
    "Remove it, or rename it if it is no key: a key goes into a variable of the environment, which `api_key_variable` "
    "beside a `base_url` names, and which an environment of yours reads by itself"
)


def check_secrets(settings: Any, key: str = "", name: str = "") -> None:
    """Refuses a text under the name of a secret, one that has the form of a key, and an address with a key in it, also
    in the arguments of an environment. Raises ConfigError, which does not repeat it."""
    # Which arguments of an environment are secrets is unknown here, so every level of the settings is searched.
    match settings:
        case dict():
            entries: Iterable[tuple[Any, Any]] = settings.items()
        case list():
            entries = enumerate(settings)
        case str() if settings and key != SECRET:
            if found := _secret_in(name, settings):
                raise ConfigError(f"{key} has {found}. {ADVICE}.", key)
            return
        case _:
            return
    for below, value in entries:
        here = name if isinstance(settings, list) else str(below)  # what is in a list has the name of the list
        check_secrets(value, f"{key}.{below}" if key else str(below), here)


def _secret_in(name: str, text: str) -> str:
    if names_secret(name):
        return "the name of a secret, and would be written to files"
    if name.endswith("key_variable") and not is_variable_name(text):
        return "what is no name of a variable, such as TEACHER_API_KEY, and may be the key itself"
    if name == "base_url" and (fault := fault_of_base_url(text)):
        return fault
    return has_secret(text)
