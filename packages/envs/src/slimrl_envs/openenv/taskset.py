"""`openenv:URL`: a running environment server of OpenEnv. The tasks are seeds for the server's `reset`.

slimrl has its own client of the protocol and does not need the packages of OpenEnv.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from slimrl.errors import RolloutError
from slimrl.io.http import HttpError, Limits, ask_again
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.tools.base import Frame, ToolError
from slimrl.types import Message, Split, Task, Taskset, Turn
from slimrl_envs.openenv.actions import Reader, is_tool_schema, reader_of, text_of
from slimrl_envs.openenv.server import base_url, description_of, schema_of
from slimrl_envs.openenv.session import PEER, Observed, Session

FIRST_TEST_SEED = 1 << 29
Count = Annotated[int, Field(ge=0, lt=1 << 27)]  # so no seed is in both splits, and all seeds are below 2**32


@dataclass
class OpenEnv(Taskset):
    """A taskset of an environment server. The fields after `name` are the `args` of the config section.

    Tasks are `num_train` and `num_test` seeds, starting at `seed`. All tasks share the arguments `reset_args` of the
    server's `reset`. The policy reads the fields `observe` of an observation, or all fields if
    `observe` is empty, and at most `max_observation_tokens` tokens. An episode waits `connect_timeout_s` for a session.
    """

    name: str
    _: KW_ONLY
    num_train: Count = 1000
    num_test: Count = 200
    seed: Count = 0
    reset_args: dict[str, Any] = field(default_factory=dict)
    observe: list[str] = field(default_factory=list)
    max_observation_tokens: PositiveInt = 1000
    connect_timeout_s: PositiveFloat = 45.0

    def __post_init__(self) -> None:
        self.base = base_url(self.name)
        self.description = ""
        self.reader: Reader | None = None  # None if each session has its own tools

    def prepare(self) -> None:
        """Read the server's description and the schema of its actions. Raise UserError if the server has no schema."""
        schema = schema_of(self.base)
        self.description = description_of(self.base)
        self.reader = None if is_tool_schema(schema) else reader_of(schema)

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split; `validation` has none."""
        number = {"train": self.num_train, "validation": 0, "test": self.num_test}[split]
        first = self.seed + (FIRST_TEST_SEED if split == "test" else 0)
        return [Task(f"{split}/{place}", {**self.reset_args, "seed": first + place}) for place in range(number)]

    def environment(self, task: Task) -> "OpenEnvEpisode":
        """Return a fresh episode on the task. The episode opens its own session."""
        return OpenEnvEpisode(self, task.data)


class OpenEnvEpisode:
    """An episode in a session with the server. The reward of a turn is the server's reward for the action."""

    def __init__(self, taskset: OpenEnv, arguments: Mapping[str, Any]) -> None:
        self._taskset, self._arguments = taskset, arguments
        self._session: Session | None = None
        self._reader: Reader | None = None
        self._num_actions, self._num_wrong = 0, 0

    async def start(self) -> list[Message]:
        """Return the instructions and the first observation. Raise RolloutError if no session is free in time."""
        taskset = self._taskset
        try:
            limits = Limits(patience_s=taskset.connect_timeout_s)
            observed, reader = await ask_again(PEER, lambda _: self._open(), limits)
        except HttpError as error:
            said = f"the server {error.said}, within connect_timeout_s = {taskset.connect_timeout_s:g} s"
            raise RolloutError("environment_busy", said) from error
        if observed.done:
            raise RolloutError("environment_error", "the episode is over before the first action")
        instructions = "\n\n".join(filter(None, (taskset.description, reader.instructions())))
        system: Message = {"role": "system", "content": instructions}
        if functions := reader.functions():
            system["tools"] = functions
        first = self._message("user", text_of(observed.observation, taskset.observe))
        return [system, first] if instructions or functions else [first]

    async def _open(self) -> tuple[Observed, Reader]:
        self._session = session = await Session.connect(self._taskset.base)
        try:
            observed = await session.reset(dict(self._arguments))
            self._reader = self._taskset.reader or Reader(await session.list_tools(), "native")
            return observed, self._reader
        except BaseException:
            await session.close()
            raise

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
        if self._session is not None:
            await self._session.close()

    def _message(self, role: Literal["user", "tool"], text: str) -> Message:
        return Frame(role, self._taskset.max_observation_tokens).message(text)

    def _metrics(self) -> dict[str, float]:
        return {"actions": float(self._num_actions), "wrong_actions": float(self._num_wrong)}
