"""One episode with an environment server: observations become messages, replies become actions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slimrl.errors import RolloutError
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.tools.base import Frame, ToolError
from slimrl.tools.mcp_result import read_content
from slimrl.types import Message, Turn
from slimrl_envs.openenv.actions import CALL_KEYS, Reader
from slimrl_envs.openenv.connection import Connection
from slimrl_envs.openenv.session import Session

NOTHING = "(nothing to see)"
RESULT = (CALL_KEYS | {"result", "error"}) - {"arguments"}  # the fields of the result of a tool's call


@dataclass(frozen=True, slots=True)
class View:
    """The part of observations that the policy reads: the named fields (all if none is named), and `max_tokens` tokens
    of them."""

    fields: Sequence[str]
    max_tokens: int


class OpenEnvEpisode:
    """An episode. The reward of a turn is the server's reward of its action."""

    def __init__(self, connection: Connection, arguments: Mapping[str, Any], view: View) -> None:
        self._connection, self._arguments, self._view = connection, arguments, view
        self._session: Session | None = None
        self._reader: Reader | None = None
        self._num_actions, self._num_wrong = 0, 0

    async def start(self) -> list[Message]:
        self._session, observed, self._reader = await self._connection.begin(self._arguments)
        if observed.done:
            raise RolloutError("environment_error", "the episode is over before the first action")
        system: Message = {"role": "system", "content": self._connection.opening(self._reader)}
        if functions := self._reader.functions():
            system["tools"] = functions
        first = Frame("user", self._view.max_tokens).message(text_of(observed.observation, self._view.fields))
        return [system, first] if system["content"] or functions else [first]

    async def step(self, reply: str) -> Turn:
        assert self._session is not None and self._reader is not None, "start() comes first"
        try:
            observed = await self._session.step(self._reader.read(without_thoughts(reply)))
        except ToolError as error:
            self._num_wrong += 1
            remark = Frame("user", self._view.max_tokens).message(f"Error: {error}")
            return Turn(done=False, messages=[remark], metrics=self._metrics())
        self._num_actions += 1
        turn = Turn(done=observed.done, reward=float(observed.reward or 0.0), metrics=self._metrics())
        if observed.done:
            return turn
        frame = Frame(self._reader.role, self._view.max_tokens)
        return replace(turn, messages=[frame.message(text_of(observed.observation, self._view.fields))])

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                await session.close()
            finally:
                self._connection.leave()

    def _metrics(self) -> dict[str, float]:
        return {"actions": float(self._num_actions), "wrong_actions": float(self._num_wrong)}


def text_of(fields: Mapping[str, Any], names: Sequence[str]) -> str:
    """The text of an observation for the policy: a single text as it is, several fields with their names.

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
