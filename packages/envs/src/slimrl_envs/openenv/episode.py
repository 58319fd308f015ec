"""One episode with an environment server: observations become messages, replies become actions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from slimrl.errors import RolloutError
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.tools.base import Frame
from slimrl.tools.mcp_result import read_content
from slimrl.types import Message, Turn
from slimrl_envs.openenv.actions import CALL_KEYS, Reader
from slimrl_envs.openenv.session import Observed, Session, WrongAction

NOTHING = "(nothing to see)"
RESULT = (CALL_KEYS | {"result", "error"}) - {"arguments"}  # the fields of what a call of a tool gives


@dataclass(frozen=True, slots=True)
class View:
    """What the policy sees of observations: the named fields, or all if none is named, at most so many tokens."""

    fields: Sequence[str]
    max_tokens: int


class Table(Protocol):
    """Opens the sessions of episodes."""

    async def begin(self, arguments: Mapping[str, Any]) -> tuple[Session, Observed, Reader]:
        """A session that is reset with the arguments, what it shows first, and the reader of replies."""

    def leave(self) -> None:
        """Gives back the place of a session that has begun, or could not."""

    def opening(self, reader: Reader) -> str:
        """The instructions that the policy reads first."""


class OpenEnvEpisode:
    """An episode, whose rewards are those that the server gives to each action."""

    def __init__(self, table: Table, arguments: Mapping[str, Any], view: View) -> None:
        self._table, self._arguments, self._view = table, arguments, view
        self._session: Session | None = None
        self._reader: Reader | None = None
        self._num_actions, self._num_wrong = 0, 0

    async def start(self) -> list[Message]:
        self._session, observed, reader = await self._table.begin(self._arguments)
        self._reader = reader
        if observed.done:
            raise RolloutError("environment_error", "the episode is over before the first action")
        system: Message = {"role": "system", "content": self._table.opening(reader)}
        if functions := reader.functions():
            system["tools"] = functions
        first = Frame("user", self._view.max_tokens).message(text_of(observed.fields, self._view.fields))
        return [system, first] if system["content"] or functions else [first]

    async def step(self, reply: str) -> Turn:
        assert self._session is not None and self._reader is not None, "start() comes first"
        try:
            action = self._reader.read(without_thoughts(reply))
            observed = await self._session.step(action)
        except WrongAction as error:
            self._num_wrong += 1
            remark = Frame("user", self._view.max_tokens).message(f"Error: {error}")
            return Turn(done=False, messages=[remark], metrics=self._metrics())
        self._num_actions += 1
        turn = Turn(done=observed.done, reward=observed.reward, metrics=self._metrics())
        if observed.done:
            return turn
        frame = Frame(self._reader.role, self._view.max_tokens)
        return replace(turn, messages=[frame.message(text_of(observed.fields, self._view.fields))])

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                await session.close()
            finally:
                self._table.leave()

    def _metrics(self) -> dict[str, float]:
        return {"actions": float(self._num_actions), "wrong_actions": float(self._num_wrong)}


def text_of(fields: Mapping[str, Any], names: Sequence[str]) -> str:
    """What the policy reads of an observation: a single text as it is, several fields with their names.

    >>> text_of({"text": "hello", "metadata": {}}, ()), text_of({"board": "x.o", "moves": [1, 2]}, ())
    ('hello', 'board: x.o\\nmoves: [1, 2]')
    """
    if not names and set(fields) - {"metadata"} == RESULT:
        return _result_text(fields) or NOTHING
    if missing := [name for name in names if name not in fields]:
        raise RolloutError(
            "environment_error",
            f"the observation has no field `{missing[0]}`, which `observe` names; it has {', '.join(fields):.200}",
        )
    shown = {name: fields[name] for name in names or fields if names or name != "metadata"}
    shown = {name: value for name, value in shown.items() if value is not None and value != ""}
    if len(shown) == 1 and isinstance(value := next(iter(shown.values())), str):
        return value
    return "\n".join(f"{name}: {_write(value)}" for name, value in shown.items()) or NOTHING


def _result_text(fields: Mapping[str, Any]) -> str:
    error, result = fields["error"], fields["result"]
    if error is not None:
        return f"Error: {error['message'] if isinstance(error, dict) and 'message' in error else _write(error)}"
    content = result.get("content") if isinstance(result, dict) else None
    if isinstance(content, list):
        return read_content(content, result.get("structured_content", result.get("structuredContent")))
    return _write(result)


def _write(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
