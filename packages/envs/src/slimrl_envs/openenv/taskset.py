"""`openenv:URL_OR_PACKAGE`: an environment server of OpenEnv. The tasks are seeds or other arguments of the server's
`reset`.

The server already runs, or slimrl starts it from an app in a separate process. slimrl has its own client of the
protocol and does not need the packages of OpenEnv.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from slimrl.environments.splits import split_by_hash
from slimrl.errors import RolloutError, UserError
from slimrl.io.http import HttpError, Limits, ask_again
from slimrl.io.rows import file_rows
from slimrl.io.settings import refuse_idle
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.tools.base import Frame, ToolError
from slimrl.types import Message, Split, Task, Taskset, Turn
from slimrl_envs.openenv.actions import FormatName, Reader, act_tool, is_tool_schema, mcp_reader_of, reader_of, text_of
from slimrl_envs.openenv.server import MODULE, Server, description_of, schema_of
from slimrl_envs.openenv.session import PEER, Observed, Session

UNBOUNDED = 1 << 20  # number of sessions if `max_concurrent` is 0
BLOCK = 1 << 28  # seeds for each split; all of them are below 2**32
FIRST_SEED: dict[Split, int] = {"train": 0, "validation": BLOCK, "test": 2 * BLOCK}
NUMBERS = ("num_train", "num_validation", "num_test", "seed")
Count = Annotated[int, Field(ge=0, lt=BLOCK // 2)]
TAG = re.compile(r"[A-Za-z_][\w.-]*")


@dataclass
class OpenEnv(Taskset):
    """A taskset of an environment server. The fields after `name` are the `args` of the config section.

    Tasks are `num_train`, `num_validation` and `num_test` seeds, starting at `seed`. With `task_file`, each row of this
    JSONL file is a task, with arguments of `reset`. The test tasks are the rows of `test_file`; without it, one row in
    five of `task_file` is held out. All tasks share the arguments `reset_args`.

    `format` is the format of an action: `text` (the reply is the action's only text), `json` (a JSON object in a tag),
    `native` (a call in the format of the chat template), or `auto`, which depends on the schema of the action. `tag`
    encloses the action. `text_field` names the field for the text if an action has several fields. `instructions`
    replace the server's own description. The policy reads the fields `observe` of an observation, or all fields if
    `observe` is empty, and at most `max_observation_tokens` tokens.

    If `max_concurrent` is not 0, it limits the number of open sessions. An episode waits `connect_timeout_s` for a
    session. `python` is the interpreter that serves an app. By default it is the interpreter that runs slimrl.
    """

    name: str
    _: KW_ONLY
    num_train: Count = 1000
    num_validation: Count = 0
    num_test: Count = 200
    seed: Count = 0
    task_file: str = ""
    test_file: str = ""
    reset_args: dict[str, Any] = field(default_factory=dict)
    format: FormatName = "auto"
    tag: str = ""
    text_field: str = ""
    instructions: str = ""
    observe: list[str] = field(default_factory=list)
    max_observation_tokens: PositiveInt = 1000
    max_concurrent: Count = 0
    connect_timeout_s: PositiveFloat = 45.0
    python: str = ""

    def __post_init__(self) -> None:
        self._server = Server(self.name, self.python)
        self._description: str | None = None  # until `prepare`
        self._reader: Reader | None = None  # None if each session has its own tools
        if self.tag and not TAG.fullmatch(self.tag):
            raise UserError(f"openenv: `tag` = {self.tag!r} is no name of a tag: letters, digits, `_`, `.` and `-`.")
        if self.test_file and not self.task_file:
            raise UserError("openenv: `test_file` needs `task_file`; without it the tasks are seeds.")
        if self.python and not MODULE.fullmatch(self.name):
            raise UserError("openenv: `python` is for `openenv:module:app`; this server has its own.")
        if self.format in ("json", "native"):
            refuse_idle(self, ["text_field"], "openenv", f'with `format = "{self.format}"`')
        if self.task_file:
            refuse_idle(self, NUMBERS, "openenv", "with `task_file`, whose rows are the tasks")
        self._places = asyncio.Semaphore(self.max_concurrent or UNBOUNDED)

    def prepare(self) -> None:
        """Start the server if it is an app, and read the schema of its actions. Raise UserError if the server cannot be
        started or the schema does not fit the settings."""
        base = self._server.url()
        schema = schema_of(base)
        self._description = self.instructions or description_of(base)
        if not is_tool_schema(schema):
            self._reader = reader_of(act_tool(schema), self.format, self.tag, self.text_field)
        elif self.format == "text" or self.text_field:
            raise UserError('openenv: the actions call tools: take `format` "native" or "json", and no `text_field`.')

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split. Raise UserError for a file that cannot be read."""
        if self.task_file:
            rows = self._rows(split)
        else:
            number = {"train": self.num_train, "validation": self.num_validation, "test": self.num_test}[split]
            first = FIRST_SEED[split] + self.seed
            rows = [{"seed": first + place} for place in range(number)]
        return [Task(f"{split}/{place}", {**self.reset_args, **row}) for place, row in enumerate(rows)]

    def environment(self, task: Task) -> "OpenEnvEpisode":
        """Return a fresh episode on the task. The episode opens its own session."""
        return OpenEnvEpisode(self, task.data)

    def close(self) -> None:
        """Stop the server if slimrl started it. Without a call of `close`, the server stops when this process exits."""
        self._server.close()

    def opening(self, reader: Reader) -> str:
        """Return the instructions that the policy reads first."""
        return "\n\n".join(text for text in (self._description, reader.instructions()) if text)

    async def begin(self, arguments: Mapping[str, Any]) -> tuple[Session, Observed, Reader]:
        """Open a session and reset it with `arguments`. Return the session, its first observation and the reader of
        replies. The caller must pass the session to `end`. Raise RolloutError if no session is free in time."""
        assert self._description is not None, "prepare() comes first"
        within = f"within connect_timeout_s = {self.connect_timeout_s:g} s"
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                await self._places.acquire()
        except TimeoutError as error:
            said = f"no session was free {within}; fewer episodes at once need fewer sessions, and so do shorter ones"
            raise RolloutError("environment_busy", said) from error
        try:
            limits = Limits(patience_s=self.connect_timeout_s)
            return await ask_again(PEER, lambda _: self._try_open(dict(arguments)), limits)
        except BaseException as error:
            self._places.release()
            if not isinstance(error, HttpError):
                raise
            said = f"the server {error.said}, {within}. A server with few sessions needs `max_concurrent`"
            raise RolloutError("environment_busy", said) from error

    async def end(self, session: Session) -> None:
        """Close a session, so that another episode can open one."""
        try:
            await session.close()
        finally:
            self._places.release()

    async def _try_open(self, arguments: dict[str, Any]) -> tuple[Session, Observed, Reader]:
        try:
            base = await asyncio.to_thread(self._server.url)
        except UserError as error:  # `prepare` has started it, so the settings are right
            raise RolloutError("environment_died", str(error)) from error
        session = await Session.connect(base)
        try:
            observed = await session.reset(arguments)
            return session, observed, self._reader or mcp_reader_of(await session.list_tools(), self.format, self.tag)
        except BaseException:
            await session.close()
            raise

    def _rows(self, split: Split) -> list[dict[str, Any]]:
        """Return the rows of `task_file` and `test_file` that belong to a split."""
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


class OpenEnvEpisode:
    """An episode in a session with the server. The reward of a turn is the server's reward for the action."""

    def __init__(self, taskset: OpenEnv, arguments: Mapping[str, Any]) -> None:
        self._taskset, self._arguments = taskset, arguments
        self._session: Session | None = None
        self._reader: Reader | None = None
        self._num_actions, self._num_wrong = 0, 0

    async def start(self) -> list[Message]:
        self._session, observed, self._reader = await self._taskset.begin(self._arguments)
        if observed.done:
            raise RolloutError("environment_error", "the episode is over before the first action")
        system: Message = {"role": "system", "content": self._taskset.opening(self._reader)}
        if functions := self._reader.functions():
            system["tools"] = functions
        first = self._message("user", text_of(observed.observation, self._taskset.observe))
        return [system, first] if system["content"] or functions else [first]

    async def step(self, reply: str) -> Turn:
        assert self._session is not None and self._reader is not None, "start() comes first"
        try:
            observed = await self._session.step(self._reader.read(without_thoughts(reply)))
        except ToolError as error:
            self._num_wrong += 1
            return Turn(done=False, messages=[self._message("user", f"Error: {error}")], metrics=self._metrics())
        self._num_actions += 1
        turn = Turn(done=observed.done, reward=float(observed.reward or 0.0), metrics=self._metrics())
        if observed.done:
            return turn
        text = text_of(observed.observation, self._taskset.observe)
        return replace(turn, messages=[self._message(self._reader.role, text)])

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await self._taskset.end(session)

    def _message(self, role: Literal["user", "tool"], text: str) -> Message:
        return Frame(role, self._taskset.max_observation_tokens).message(text)

    def _metrics(self) -> dict[str, float]:
        return {"actions": float(self._num_actions), "wrong_actions": float(self._num_wrong)}
