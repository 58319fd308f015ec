"""`verifiers:ID`: the tasksets of the package `verifiers` 0.4 (its interface v1). ID names a package that exports a
`Taskset`.
"""

from collections.abc import Sequence
from importlib import metadata
from typing import Any

from slimrl.errors import UserError, install_hint, require
from slimrl.types import Environment, Split, Task, Taskset

VERSION = "0.4."


class Verifiers(Taskset):
    """A taskset of verifiers, whose args `TasksetV1` describes."""

    def __init__(self, name: str, **args: Any) -> None:
        if not name:
            raise UserError("verifiers: name a taskset, as `verifiers:ID`.")
        check_version()
        module = require("slimrl_envs.verifiers.v1", "verifiers", f"environment `verifiers:{name}`")
        self._taskset: Taskset = module.TasksetV1(name, **args)

    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of a split."""
        return self._taskset.tasks(split)

    def environment(self, task: Task) -> Environment:
        """A fresh rollout on the task."""
        return self._taskset.environment(task)


def check_version() -> None:
    """Raise UserError unless verifiers 0.4 is installed: `v1.py` is written for its interface."""
    try:
        version = metadata.version("verifiers")
    except metadata.PackageNotFoundError as error:
        raise UserError(
            f"an environment of verifiers needs the extra [verifiers]: {install_hint('verifiers')}."
        ) from error
    if not version.startswith(VERSION):
        raise UserError(
            f"verifiers {version} is installed, and slimrl plays the interface v1 of verifiers 0.4 alone. Install it: "
            "`pip install verifiers==0.4.0`."
        )
