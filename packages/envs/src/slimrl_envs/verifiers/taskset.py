"""`verifiers:ID`: the tasksets of the package `verifiers` 0.4 (its interface v1). ID names a package that exports a
`Taskset`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from slimrl.environments.splits import split_by_hash
from slimrl.errors import UserError, require
from slimrl.types import Environment, Split, Task, Taskset
from slimrl_envs.verifiers.conversation import Conversation


class Verifiers(Taskset):
    """The tasks of a verifiers taskset. The args are the fields of the env's config: `taskset`, and one field for each
    agent.

    `num_tasks` is the number of tasks to load, 0 for all. `test` has the fields that differ for the test split, such as
    `{taskset = {split = "test"}}`. Without `test`, a hash of a task's content decides whether the task is held out.
    """

    def __init__(
        self, name: str, num_tasks: int = 0, test: Mapping[str, Any] | None = None, **config: Mapping[str, Any]
    ) -> None:
        if not name:
            raise UserError("verifiers: name a taskset, as `verifiers:ID`.")
        serve = require("slimrl_envs.verifiers.v1", "verifiers", f"environment `verifiers:{name}`").Served
        self._num_tasks = num_tasks
        self._served = {"train": serve(name, config)}
        if test is not None:
            self._served["test"] = serve(name, merge(config, test))
        if num_tasks < 0 or (not num_tasks and not self._served["train"].env.taskset.bounded):
            raise UserError(
                f"verifiers:{name}: its tasks never end; say how many to take of them, as `num_tasks = 1000`."
            )

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split, named by their index in the taskset. The split `validation` has no tasks."""
        if split == "validation":
            return []
        taskset = self._served.get(split, self._served["train"]).env.taskset
        loaded = taskset.take(self._num_tasks) if self._num_tasks else taskset
        found = [Task(f"{split}/{one.data.idx}", one.data.model_dump(mode="json")) for one in loaded]
        return found if "test" in self._served else [task for task in found if split_of(task.data) == split]

    def environment(self, task: Task) -> Environment:
        """Return a fresh rollout on the task."""
        served = self._served.get(task.id.partition("/")[0], self._served["train"])
        return Conversation(lambda ask: served.play(task, ask))


def split_of(data: Mapping[str, Any]) -> Split:
    """Return the split of a task. The split depends on the task's content, and not on its index."""
    return split_by_hash(json.dumps({key: value for key, value in data.items() if key != "idx"}, sort_keys=True))


def merge(config: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with the fields of `change`. Nested tables are merged."""
    merged = dict(config)
    for key, value in change.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
