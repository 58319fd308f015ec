"""The rule about secrets: the settings contain none, because they are shown, stored with a run, and sent to W&B."""

from typing import Any

from slimrl.config.base import SECRET
from slimrl.config.checks.faults import ConfigError
from slimrl.config.reading.formats import flatten
from slimrl.io.secrets import has_secret, names_secret
from slimrl.io.urls import fault_of_base_url, is_variable_name

ADVICE = (
    "Remove it, or rename it if it is no key: a key goes into a variable of the environment, which `api_key_variable` "
    "beside a `base_url` names, and which an environment of yours reads by itself"
)


def check_secrets(settings: dict[str, Any]) -> None:
    """Refuse a text under the name of a secret, a text in the form of a key, and an address with a key in it, also in
    the arguments of an environment. Raise ConfigError, which does not repeat the text."""
    for path, value in flatten(settings):
        if isinstance(value, str) and value and path != (SECRET,):
            name = next(key for key in reversed(path) if not key.isdecimal())  # items of a list have the list's name
            if found := _secret_in(name, value):
                key = ".".join(path)
                raise ConfigError(f"{key} has {found}. {ADVICE}.", key)


def _secret_in(name: str, text: str) -> str:
    if names_secret(name):
        return "the name of a secret, and would be written to files"
    if name.endswith("key_variable") and not is_variable_name(text):
        return "what is no name of a variable, such as TEACHER_API_KEY, and may be the key itself"
    if name == "base_url" and (fault := fault_of_base_url(text)):
        return fault
    return has_secret(text)
