"""The reports of broken rules, and their error."""

import json
import re
from collections.abc import Iterator, Sequence
from operator import attrgetter

from slimrl.config.base import Config
from slimrl.config.reading.schema import Path
from slimrl.errors import UserError

Faults = Iterator[str]
"""One text per broken rule. A text names its settings as `<seq_len>`, or as `<seq_len=>` with the value."""

KEY = re.compile(r"<([a-z_0-9.]+)(=?)>")


class ConfigError(UserError):
    """Settings that are valid one by one but not together. `paths` are the settings, so that `load` can add to the
    message where each was set."""

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
    """Yield the faults of changed settings without effect, for the reason `why`. The section is at `prefix`."""
    mend = "Remove it, or change the other" if "<" in why else "Remove it"
    for name in find_changed(section, names):
        yield f"<{f'{prefix}.{name}'.lstrip('.')}=> cannot act: {why}. {mend}."
