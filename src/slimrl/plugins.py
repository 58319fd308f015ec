"""Finds plug-ins: extensions of slimrl, such as commands, that installed distributions declare as entry points.

Each group of entry points has one type of extension. An entry maps a name to a location, `module:name`. The module is
imported when the entry is requested. docs/plugins.md lists the groups. This module names no module of a plug-in.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from slimrl.errors import UserError, describe

COMMANDS = "slimrl.commands"
ENVIRONMENTS = "slimrl.environments"
DEPLOYMENTS = "slimrl.deployments"
FORMATS = "slimrl.formats"
HOOKS = "slimrl.hooks"
DIALECTS = "slimrl.dialects"
INTEGRATIONS = "slimrl.integrations"
REFERENCES = "slimrl.references"

# The distributions of slimrl's own entries, for the error about a missing one: of all commands, in the order of the
# overview, and of the plug-ins' other entries.
CORE = "slimrl"
OURS = {
    COMMANDS: {
        **dict.fromkeys(("init", "rl", "sft", "eval"), CORE),
        "probe": "slimrl-tools",
        "launch": "slimrl-cluster",
        **dict.fromkeys(("plan", "doctor"), "slimrl-tools"),
        "compare": CORE,
        "view": "slimrl-view",
        **dict.fromkeys(("status", "scale"), "slimrl-cluster"),
        **dict.fromkeys(("plot", "check-curve", "push", "play", "check"), "slimrl-tools"),
        "trainer": CORE,
        "inference": "slimrl-serve",
        "orchestrator": "slimrl-cluster",
        "judge": "slimrl-search",
        "translate": "slimrl-tools",
    },
    ENVIRONMENTS: {
        **dict.fromkeys(("alphabet-sort", "matching-game", "wordle"), "slimrl-envs"),
        **dict.fromkeys(("bfcl:", "openenv:", "reasoning-gym:", "textarena:", "verifiers:"), "slimrl-envs"),
        "code": "slimrl-sandbox",
        "wiki-search": "slimrl-search",
    },
    DEPLOYMENTS: dict.fromkeys(("processes", "ray"), "slimrl-cluster"),
    FORMATS: {"code": "slimrl-sandbox"},
    INTEGRATIONS: dict.fromkeys(("slime", "slime.env", "slime.filter"), "slimrl-envs"),
}


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `slimrl`, an entry of `slimrl.commands`. Its module must import little, because `slimrl --help`
    loads all commands."""

    about: str
    """The line of the command in `slimrl --help`."""

    run: str = ""
    """`module:function`, which returns the exit status. It is called with the settings (`Resolved`), or if `settings`
    is empty, with the words of the command line."""

    settings: str = ""
    """`module:class` of the command's settings, a `CommandConfig`."""

    switches: tuple[str, ...] = ()
    """Flags that are not settings. If the command has any, `run` gets the given flags as its second argument."""

    is_part: bool = False
    """True if an `rl` run in several processes also starts this command, with the same settings file."""

    again: str = "start over"
    """The effect of repeating the command line after Ctrl-C; empty if `--resume` continues the run."""

    computes: bool = False
    """True if Ctrl-C may end the process during a computation, because nothing is lost."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A way to run `rl` as several processes. Functions are given as `module:function` and imported when called."""

    run: str
    """Starts and watches the processes of the run. Takes the config with its placement, the words after the command
    (None for a call from Python), and a function that logs a note. Returns the exit status."""

    parts: Mapping[str, str]
    """Maps the name of a command to the function that runs its process. The function takes the settings."""


def names(group: str) -> list[str]:
    """Return the names in a group, sorted."""
    return sorted(_entries(group))


def is_ours(group: str, name: str) -> bool:
    """Return True if an entry belongs to slimrl or to one of its own plug-ins."""
    found = _entries(group).get(name, [])
    return bool(found) and {_distribution(one) for one in found} <= {CORE, OURS.get(group, {}).get(name)}


def load(group: str, name: str, what: str) -> Any:
    """Return the object of the entry `name`. Raises UserError, prefixed with `what`, if the entry is not installed, if
    two distributions have an entry of this name, or if the module cannot be imported."""
    found = _entries(group).get(name, [])
    if not found:
        if distribution := OURS.get(group, {}).get(name):
            raise UserError(
                f"{what} `{name}` is in {distribution}, which is not installed: `pip install {distribution}`."
            )
        raise UserError(f"{what} `{name}` is not installed. Known: {', '.join(names(group))}.")
    if len(owners := sorted({_distribution(one) for one in found})) > 1:
        raise UserError(f"{what} `{name}` is in several distributions, {' and '.join(owners)}: uninstall all but one.")
    try:
        return found[0].load()
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{what} `{name}` of {owners[0]} cannot be loaded: {describe(error)}") from error


def load_all(group: str, what: str, note: Callable[[str], None]) -> list[Any]:
    """Return the objects of all entries of a group, in the order of their names. An entry that cannot be loaded is left
    out, and `note` gets the error."""
    loaded = []
    for name in names(group):
        try:
            loaded.append(load(group, name, what))
        except UserError as error:
            note(str(error))
    return loaded


def call(place: str, *arguments: Any) -> Any:
    """Import the module of `module:function`, call the function and return its result."""
    return imported(place)(*arguments)


def imported(place: str) -> Any:
    """Import the module of `module:name`, and return the object of this name."""
    module, _, name = place.partition(":")
    return vars(import_module(module))[name]


@cache
def _entries(group: str) -> dict[str, list[EntryPoint]]:
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=group):
        if entry not in found.setdefault(entry.name, []):  # a distribution may be found twice on the path
            found[entry.name].append(entry)
    return found


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an unknown distribution"
