"""`openenv:URL_OR_PACKAGE`: an environment server of OpenEnv, whose tasks are seeds or arguments of its `reset`.

The server runs already, or is started here: from an environment's class in a process of its own, or from an image in a
container. slimrl has its own client of the protocol and needs no package of OpenEnv's.
"""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from slimrl.environments.held_out import split_by_hash
from slimrl.errors import UserError, nearest, require
from slimrl.io.rows import file_rows
from slimrl.io.settings import refuse_idle
from slimrl.types import Split, Task, Taskset
from slimrl_envs.openenv.actions import FORMATS
from slimrl_envs.openenv.address import read_address
from slimrl_envs.openenv.connection import Connection, Style
from slimrl_envs.openenv.containers import start_container
from slimrl_envs.openenv.episode import OpenEnvEpisode, View
from slimrl_envs.openenv.processes import start_process
from slimrl_envs.openenv.server import Running, Server

OWN_SESSIONS = 1024  # of a server that is started here, where its environment allows several
BLOCK = 1 << 28  # seeds for each split; all of them are below 2**32
FIRST_SEED: dict[Split, int] = {"train": 0, "validation": BLOCK, "test": 2 * BLOCK}
NUMBERS = ("num_train", "num_validation", "num_test", "seed")
TAG = re.compile(r"[A-Za-z_][\w.-]*")


@dataclass
class OpenEnv(Taskset):
    """The tasks of an environment server. The fields behind `name` are the `args` of the config section.

    Tasks are `num_train`, `num_validation` and `num_test` seeds, from `seed` on. With `task_file`, a JSONL file, they
    are the arguments of `reset` in its rows: one in five is held out, or all of `test_file` are. `reset_args` are
    arguments that all tasks have.

    `format` is how the policy acts: `text` (the reply is the action's one text), `json` (an object in a tag), `native`
    (a call as the model's chat template has it), or `auto`, by the schema of the action. `tag` encloses
    the action, and `text_field` is the action's text where it has several. `instructions` replace the server's own
    description. The policy reads the fields `observe` of an observation, or all, and at most
    `max_observation_tokens` tokens.

    At most `max_concurrent` sessions are open, where it is not 0; an episode waits `connect_timeout_s` for one. A class
    is served by `python`, empty for the Python of the run.
    """

    name: str
    _: KW_ONLY
    num_train: int = 1000
    num_validation: int = 0
    num_test: int = 200
    seed: int = 0
    task_file: str = ""
    test_file: str = ""
    reset_args: dict[str, Any] = field(default_factory=dict)
    format: str = "auto"
    tag: str = ""
    text_field: str = ""
    instructions: str = ""
    observe: list[str] = field(default_factory=list)
    max_observation_tokens: int = 1000
    max_concurrent: int = 0
    connect_timeout_s: float = 45.0
    python: str = ""

    def __post_init__(self) -> None:
        self._address = read_address(self.name)
        require("websockets", "openenv", "an OpenEnv server")
        if self.format not in FORMATS:
            raise UserError(f"openenv: there is no `format` {self.format!r}.{nearest(self.format, FORMATS)}")
        if self.tag and not TAG.fullmatch(self.tag):
            raise UserError(f"openenv: `tag` = {self.tag!r} is no name of a tag: letters, digits, `_`, `.` and `-`.")
        if self.test_file and not self.task_file:
            raise UserError("openenv: `test_file` needs `task_file`; without it the tasks are seeds.")
        if self.python and self._address.kind != "module":
            raise UserError("openenv: `python` is for `openenv:module:factory`; this server has its own.")
        if self.format in ("json", "native"):
            refuse_idle(self, ["text_field"], "openenv", f'with `format = "{self.format}"`')
        if self.task_file:
            refuse_idle(self, NUMBERS, "openenv", "with `task_file`, whose rows are the tasks")
        self._check_numbers()

    def _check_numbers(self) -> None:
        for name in (*NUMBERS, "max_concurrent"):
            if not 0 <= (number := getattr(self, name)) < BLOCK // 2:
                raise UserError(f"openenv: `{name}` must be from 0 to {BLOCK // 2 - 1}, not {number}.")
        for name in ("max_observation_tokens", "connect_timeout_s"):
            if getattr(self, name) <= 0:
                raise UserError(f"openenv: `{name}` must be more than 0, not {getattr(self, name)}.")

    def prepare(self) -> None:
        """Start the server, if it is ours, and read the schema of its actions. Raises UserError if it cannot."""
        self._connection.prepare()

    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of a split. Raises UserError for a file that cannot be read."""
        if self.task_file:
            rows = self._rows(split)
        else:
            number = {"train": self.num_train, "validation": self.num_validation, "test": self.num_test}[split]
            first = FIRST_SEED[split] + self.seed
            rows = [{"seed": first + place} for place in range(number)]
        return [Task(f"{split}/{place}", {**self.reset_args, **row}) for place, row in enumerate(rows)]

    def environment(self, task: Task) -> OpenEnvEpisode:
        """A fresh episode on the task, in a session of its own."""
        return OpenEnvEpisode(self._connection, task.data, View(self.observe, self.max_observation_tokens))

    def close(self) -> None:
        """Stop a server that was started here. Without it the server stops with this process."""
        self._server.close()

    @cached_property
    def _server(self) -> Server:
        place = self._address.text
        if self._address.kind == "url":
            return Server("server", lambda: Running(place))
        if self._address.kind == "image":
            return Server("container", lambda: start_container(place))
        python, sessions = self.python or sys.executable, self.max_concurrent or OWN_SESSIONS
        return Server("server", lambda: start_process(place, python, sessions))

    @cached_property
    def _connection(self) -> Connection:
        style = Style(self.format, self.tag, self.text_field, self.instructions)
        return Connection(self._server, style, self.max_concurrent, self.connect_timeout_s)

    def _rows(self, split: Split) -> list[dict[str, Any]]:
        """The rows of the files that belong to a split."""
        if split == "validation":
            return []
        if self.test_file:
            return _read(self.test_file if split == "test" else self.task_file)
        return [row for row in _read(self.task_file) if split_by_hash(json.dumps(row, sort_keys=True)) == split]


def _read(path: str) -> list[dict[str, Any]]:
    rows = []
    for row, place in file_rows(Path(path), "`task_file` and `test_file`"):
        if not isinstance(row, dict):
            raise UserError(f"openenv: {place} is no JSON object with arguments of `reset`: {row!r:.100}")
        rows.append(row)
    return rows
