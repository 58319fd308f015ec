"""`openenv:URL_OR_PACKAGE`: an environment server of OpenEnv, whose tasks are seeds or arguments of its `reset`.

The server runs already, or is started here, from an app in a process of its own. slimrl has its own client of the
protocol and needs no package of OpenEnv's.
"""

import asyncio
import json
import re
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from slimrl.environments.held_out import split_by_hash
from slimrl.errors import RolloutError, UserError, nearest
from slimrl.io.http import HttpError, Limits, ask_again
from slimrl.io.rows import file_rows
from slimrl.io.settings import refuse_idle
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.tools.base import Frame, ToolError
from slimrl.types import Message, Split, Task, Taskset, Turn
from slimrl_envs.openenv.actions import FORMATS, Reader, act_tool, is_tool_schema, mcp_reader_of, reader_of, text_of
from slimrl_envs.openenv.server import MODULE, Server, description_of, schema_of
from slimrl_envs.openenv.session import PEER, Observed, Session

UNBOUNDED = 1 << 20  # sessions
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

    At most `max_concurrent` sessions are open, where it is not 0; an episode waits `connect_timeout_s` for one. An app
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
        self._server = Server(self.name, self.python)
        self._description: str | None = None  # until `prepare`
        self._reader: Reader | None = None  # None if each session has its own tools
        # A semaphore belongs to an event loop, and every step of a run may have a new one.
        self._places = weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()
        if self.format not in FORMATS:
            raise UserError(f"openenv: there is no `format` {self.format!r}.{nearest(self.format, FORMATS)}")
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
        for name in (*NUMBERS, "max_concurrent"):
            if not 0 <= (number := getattr(self, name)) < BLOCK // 2:
                raise UserError(f"openenv: `{name}` must be from 0 to {BLOCK // 2 - 1}, not {number}.")
        for name in ("max_observation_tokens", "connect_timeout_s"):
            if getattr(self, name) <= 0:
                raise UserError(f"openenv: `{name}` must be more than 0, not {getattr(self, name)}.")

    def prepare(self) -> None:
        """Start the server, if it is ours, and read the schema of its actions. Raise UserError if it cannot."""
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
        """Return a fresh episode on the task, in a session of its own."""
        return OpenEnvEpisode(self, task.data)

    def close(self) -> None:
        """Stop a server that was started here. Without it the server stops with this process."""
        self._server.close()

    def opening(self, reader: Reader) -> str:
        """Return the instructions that the policy reads first."""
        return "\n\n".join(text for text in (self._description, reader.instructions()) if text)

    async def begin(self, arguments: Mapping[str, Any]) -> tuple[Session, Observed, Reader]:
        """Return a session that is reset with the arguments, its first observation, and the reader of replies. Raise
        RolloutError if none is free in time. It must be given back by `end`."""
        assert self._description is not None, "prepare() comes first"
        within = f"within connect_timeout_s = {self.connect_timeout_s:g} s"
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                await self._places_here().acquire()
        except TimeoutError as error:
            said = f"no session was free {within}; fewer episodes at once need fewer sessions, and so do shorter ones"
            raise RolloutError("environment_busy", said) from error
        try:
            limits = Limits(patience_s=self.connect_timeout_s)
            return await ask_again(PEER, lambda _: self._try_open(dict(arguments)), limits)
        except BaseException as error:
            self._places_here().release()
            if not isinstance(error, HttpError):
                raise
            said = f"the server {error.said}, {within}. A server with few sessions needs `max_concurrent`"
            raise RolloutError("environment_busy", said) from error

    async def end(self, session: Session) -> None:
        """Close a session, so that another episode may have its place."""
        try:
            await session.close()
        finally:
            self._places_here().release()

    async def _try_open(self, arguments: dict[str, Any]) -> tuple[Session, Observed, Reader]:
        try:
            base = await asyncio.to_thread(self._server.url)
        except UserError as error:  # it could be started once
            raise RolloutError("environment_died", str(error)) from error
        session = await Session.connect(base)
        try:
            observed = await session.reset(arguments)
            return session, observed, self._reader or mcp_reader_of(await session.list_tools(), self.format, self.tag)
        except BaseException:
            await session.close()
            raise

    def _places_here(self) -> asyncio.Semaphore:
        return self._places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.max_concurrent or UNBOUNDED))

    def _rows(self, split: Split) -> list[dict[str, Any]]:
        """Return the rows of the files that belong to a split."""
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
    """An episode. The reward of a turn is the server's reward of its action."""

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
