"""The environment variables of a command. All commands share the environment, so variables of others are left out."""

import difflib
from collections.abc import Mapping

from slimrl.config.base import OTHER_VARIABLES, SECRET
from slimrl.config.reading.names import Names
from slimrl.config.reading.schema import leaves
from slimrl.config.reading.sources import Setting
from slimrl.config.run import COMMANDS
from slimrl.errors import UserError

ENV_PREFIXES = ("PRIME_", "SLIMRL_")  # in order of precedence, the lowest first
# A variable with a section in its name must name a setting, or it is refused. One without a section may belong to
# another program of prime-rl's makers, and is refused only if it looks like a misspelt setting.
SECTIONS = "__"
LOOKS_LIKE = 0.8


def own_variables(environ: Mapping[str, str], prefix: str, names: Names) -> list[Setting]:
    """Return the settings of the command of `names` in variables with this prefix: `SLIMRL_TRAINER__OPTIM__LR=1e-5` is
    `trainer.optim.lr`. For a variable that no command has, raise UserError with the nearest known one."""
    settings = [
        Setting(tuple(name.removeprefix(prefix).lower().split(SECTIONS)), text, name, "variable")
        for name, text in environ.items()
        if name.startswith(prefix) and name not in OTHER_VARIABLES
    ]
    # A list before its elements, and element 2 before element 10.
    settings.sort(key=lambda setting: [(len(key) * key.isdecimal(), key) for key in setting.path])
    return [one for one in settings if _is_own(one, prefix, names)]


def _is_own(setting: Setting, prefix: str, names: Names) -> bool:
    # PRIME_API_KEY is the secret of another service, and must not become the key of our server.
    if prefix == "PRIME_" and setting.path == (SECRET,):
        return False
    commands = (names, *map(names.of, COMMANDS.values()))
    if found := next((one for one in commands if one.is_known(setting.path) or one.is_foreign(setting.path)), None):
        return found is names
    close = _nearest(setting.origin, prefix, names)
    if prefix == "PRIME_" and SECTIONS not in setting.origin and close is None:
        return False
    hint = f" The nearest is `{close}`." if close else ""
    raise UserError(
        f"{setting.origin}: this environment variable sets nothing that exists.{hint} Correct it, or unset it."
    )


def _nearest(name: str, prefix: str, names: Names) -> str | None:
    """Return the variable most similar to the name; None if none is similar."""
    known = [f"{prefix}{SECTIONS.join(path).upper()}" for path, _ in leaves(names.root)]
    known += OTHER_VARIABLES if prefix == "SLIMRL_" else []
    # A forgotten section is likelier than a misspelling: SLIMRL_OPTIM__LR matches SLIMRL_TRAINER__OPTIM__LR.
    ending = name.removeprefix(prefix.rstrip("_"))
    if (prefix == "SLIMRL_" or SECTIONS in ending) and (same := [one for one in known if one.endswith(ending)]):
        return same[0]
    return next(iter(difflib.get_close_matches(name, known, 1, LOOKS_LIKE)), None)
