"""Reports of broken rules, the error made from a report, and the rule about secrets. Settings must not contain secrets,
because settings are shown, stored with a run, and sent to W&B."""

import json
import re
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from slimrl.config.base import SECRET, Config
from slimrl.config.reading.formats import flatten
from slimrl.config.reading.schema import Path
from slimrl.errors import UserError
from slimrl.io.secrets import has_secret, names_secret
from slimrl.io.urls import fault_of_base_url, is_variable_name

Faults = Iterator[str]
"""One text per broken rule. A text names its settings as `<seq_len>`, or as `<seq_len=>` with the value."""

ADVICE = (
    "Remove it, or rename it if it is no key: a key goes into a variable of the environment, which `api_key_variable` "
    "beside a `base_url` names, and which an environment of yours reads by itself"
)
KEY = re.compile(r"<([a-z_0-9.]+)(=?)>")


class ConfigError(UserError):
    """Settings that are valid one by one but not together. `paths` are the paths of these settings. `load` adds the
    origin of each setting to the message."""

    def __init__(self, text: str, *keys: str) -> None:
        super().__init__(text)
        self.paths: tuple[Path, ...] = tuple(tuple(key.split(".")) for key in keys)


def error_of(fault: str, config: Config) -> ConfigError:
    """Build the error of a fault: its text with the names and values of the settings filled in.

    >>> from slimrl.config.train import OptimConfig
    >>> str(error_of("<lr=> is higher than <beta1>.", OptimConfig(lr=2.0)))
    'lr = 2.0 is higher than beta1.'
    """

    def spell(found: re.Match[str]) -> str:
        return f"{found[1]} = {json.dumps(attrgetter(found[1])(config), ensure_ascii=False)}" if found[2] else found[1]

    keys = dict.fromkeys(found[1] for found in KEY.finditer(fault))
    return ConfigError(KEY.sub(spell, fault), *keys)


def find_changed(section: Config, names: Sequence[str]) -> list[str]:
    """Return the settings of a section that differ from their defaults."""
    return [name for name in names if vars(section)[name] != type(section).model_fields[name].default]


def idle(section: Config, prefix: str, names: Sequence[str], why: str) -> Faults:
    """Yield a fault for each setting in `names` that was changed but has no effect. `why` is the reason, and `prefix`
    is the path of the section."""
    mend = "Remove it, or change the other" if "<" in why else "Remove it"
    for name in find_changed(section, names):
        yield f"<{f'{prefix}.{name}'.lstrip('.')}=> cannot act: {why}. {mend}."


def check_secrets(settings: dict[str, Any]) -> None:
    """Raise ConfigError if a setting has the name of a secret, looks like a key, or is an address that contains a key.
    Also check the arguments of environments. The message does not repeat the value."""
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
