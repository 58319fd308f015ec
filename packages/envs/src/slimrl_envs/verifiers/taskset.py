"""`verifiers:ID`: the tasksets of the package `verifiers`, of its interface v1 (0.4) and of the classic one (0.1).

The version that is installed decides. ID is that of verifiers: a package that exports a `Taskset`, or one with
`load_environment`.
"""

import re
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from slimrl.errors import UserError, install_hint, require
from slimrl.types import Environment, Split, Task, Taskset

# The beginnings of versions, each with what reads it.
INTERFACES = {
    "0.4": "slimrl_envs.verifiers.v1:TasksetV1",
    "0.1": "slimrl_envs.verifiers.classic:ClassicTaskset",
}


class Verifiers(Taskset):
    """A taskset of verifiers. The args are its own, and those that `TasksetV1` or `ClassicTaskset` names."""

    def __init__(self, name: str, **args: Any) -> None:
        if not name:
            raise UserError("verifiers: name a taskset, as `verifiers:ID`.")
        module, _, class_name = interface_of(installed_version()).partition(":")
        load = vars(require(module, "verifiers", f"environment `verifiers:{name}`"))[class_name]
        self._taskset: Taskset = load(name, **args)

    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of a split."""
        return self._taskset.tasks(split)

    def environment(self, task: Task) -> Environment:
        """A fresh rollout on the task."""
        return self._taskset.environment(task)


def installed_version() -> str:
    """The version of verifiers. Raises UserError if it is not installed."""
    try:
        return metadata.version("verifiers")
    except metadata.PackageNotFoundError as error:
        raise UserError(
            f"an environment of verifiers needs the extra [verifiers]: {install_hint('verifiers')}."
        ) from error


def interface_of(version: str) -> str:
    """Where the class is that reads this version's tasksets. Raises UserError for a version of another interface."""
    found = re.match(r"\d+\.\d+", version)
    try:
        return INTERFACES[found[0] if found else ""]
    except KeyError:
        known = " and ".join(INTERFACES)
        raise UserError(
            f"verifiers {version} is installed, and its interface is not known here: {known} are. Install one of "
            "these: `pip install verifiers==0.4.0`."
        ) from None
