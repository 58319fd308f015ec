"""A program that asks a model by itself, as an episode of slimrl's agent loop.

A rollout of verifiers calls a model when it likes; the agent loop gives a reply and waits for what comes next. The
program runs in a task of its own. Its first question is what `start` gives, and each `step` answers the last question
and waits for the next one, or for the program's end. A question must go on where the last one ended: a conversation
that was rewritten or begins anew has other tokens than were sampled, so it fails the episode as `branched`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from slimrl.errors import RolloutError
from slimrl.models.chat.results import id_text, in_order_of_calls
from slimrl.models.chat.tool_calls import ToolCall, ToolReader
from slimrl.types import Message, Turn


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Said:
    """One message as the program has it: the text, the calls of an assistant, the name of a tool that answers and the
    id of the call that it answers."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    name: str = ""
    call_id: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """What two copies of a message have in common."""
        return (self.role, self.text, [(call.name, json.dumps(_value_of(call.arguments))) for call in self.calls])


Schema = dict[str, Any]
Ask = Callable[[Sequence[Said], Sequence[Schema]], Awaitable[Said]]
"""Asks the policy: the whole conversation, and the schemas of the tools. Gives its reply."""
Program = Callable[[Ask], Coroutine[Any, Any, Turn]]
"""Plays an episode by asking the policy. Gives the last turn, with the reward."""


class Conversation:
    """The episode of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._task: asyncio.Task[Turn] | None = None
        self._question: asyncio.Future[list[Message]] | None = None
        self._answer: asyncio.Future[Said] | None = None
        self._failure: RolloutError | None = None
        self._said: list[Said] = []
        self._tools: list[Schema] = []

    async def start(self) -> list[Message]:
        """What the program asks first."""
        self._task = asyncio.create_task(self._program(self._ask))
        turn = await self._next()
        if turn.done:
            raise RolloutError("environment_error", "the rollout ended before it asked the policy for anything")
        return list(turn.messages)

    async def step(self, reply: str) -> Turn:
        """Answers the last question, and waits for the next or for the end."""
        assert self._answer is not None, "step() comes after start()"
        said = read_reply(reply, bool(self._tools), len(self._said))
        self._said.append(said)
        answer, self._answer, self._question = self._answer, None, None
        answer.set_result(said)
        return await self._next()

    async def close(self) -> None:
        """Ends the program where it still runs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.exception()  # it has been told, or nobody waits for it any more

    async def _next(self) -> Turn:
        assert self._task is not None
        question = self._question = asyncio.get_running_loop().create_future()
        if self._failure is None:
            await asyncio.wait({self._task, question}, return_when=asyncio.FIRST_COMPLETED)
        if self._failure is not None:
            raise self._failure
        if question.done():
            return Turn(done=False, messages=question.result())
        if self._task.cancelled():
            raise RolloutError("environment_error", "the rollout cancelled itself")
        return self._task.result()

    async def _ask(self, messages: Sequence[Said], tools: Sequence[Schema]) -> Said:
        question = self._question
        if question is None or question.done():
            self._fail("the policy was asked again before it had answered: two conversations at once")
        fresh = self._continuation(list(messages), list(tools), question)
        self._answer = asyncio.get_running_loop().create_future()
        question.set_result(fresh)
        return await self._answer

    def _continuation(
        self, messages: list[Said], tools: list[Schema], question: "asyncio.Future[list[Message]]"
    ) -> list[Message]:
        """What the policy has not read yet of a conversation."""
        if not self._said:
            self._said, self._tools = messages, tools
            return opening(messages, tools)
        known = len(self._said)
        if [one.key for one in messages[:known]] != [one.key for one in self._said]:
            self._fail("the policy was asked to go on with another conversation than it had", question)
        if tools != self._tools:
            self._fail("the tools of the policy changed during the episode", question)
        fresh = messages[known:]
        if not fresh:
            self._fail("the policy was asked for a second reply in a row", question)
        if any(one.role == "assistant" for one in fresh):
            self._fail("a reply was put into the policy's mouth", question)
        self._said = messages
        # The results stand behind the reply, in any order.
        return [_message(one) for one in _in_order(messages[known - 1 :])[1:]]

    def _fail(self, detail: str, question: "asyncio.Future[list[Message]] | None" = None) -> NoReturn:
        """Ends the episode, whatever the program makes of the error."""
        self._failure = self._failure or RolloutError("branched", detail)
        if question is not None and not question.done():
            question.set_result([])  # wakes who waits
        raise self._failure


def read_reply(reply: str, has_tools: bool, number: int) -> Said:
    """A reply with the calls that it makes; without tools all of it is text, and so it is with a call whose arguments
    are nested so deeply that verifiers could not read them. Calls are named by the reply's number, so that an episode
    that is played again has the same names."""
    if not has_tools:
        return Said("assistant", reply)
    parts = ToolReader().read(reply, closed=True)
    calls = [part for part in parts if isinstance(part, ToolCall)]
    if any(_nests_too_deeply(call.arguments) for call in calls):
        return Said("assistant", reply)
    text = "".join(part for part in parts if isinstance(part, str))
    named = tuple(Call(f"call_{number}_{place}", call.name, call.arguments) for place, call in enumerate(calls))
    return Said("assistant", text, named)


def _nests_too_deeply(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except RecursionError:
        return True
    except ValueError:
        pass
    return False


def opening(messages: Sequence[Said], tools: Sequence[Schema]) -> list[Message]:
    """The first messages, of which the first one lists the tools."""
    found = [_message(one) for one in _in_order(messages)]
    if found and tools:
        found[0]["tools"] = list(tools)
    return found


def message_of(message: Any) -> Said:
    """A message of verifiers."""
    calls = tuple(Call(call.id, call.name, call.arguments) for call in getattr(message, "tool_calls", None) or ())
    name = getattr(message, "name", None) or ""
    call_id = id_text(getattr(message, "tool_call_id", None))
    return Said(message.role, text_of(message.content), calls, name, call_id)


def text_of(content: object) -> str:
    """The text of a message's content, which is a text or a list of parts. Raises RolloutError for an image or sound:
    the policies here only read."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content if isinstance(content, list) else [content]:
        kind, text = (
            (part.get("type"), part.get("text"))
            if isinstance(part, dict)
            else (getattr(part, "type", None), getattr(part, "text", None))
        )
        if kind != "text" or not isinstance(text, str):
            raise RolloutError("environment_error", f"a message holds a part of type {kind!r:.40}, and no text")
        texts.append(text)
    return "\n".join(texts)


def _in_order(messages: Sequence[Said]) -> Sequence[Said]:
    """The messages with results in the order of their calls. Results that fit no calls stay: the program knows why."""
    rows: list[dict[str, Any]] = [
        {
            "role": one.role,
            "tool_calls": [{"id": call.id, "function": {"name": call.name}} for call in one.calls],
            "tool_call_id": one.call_id,
            "name": one.name,
            "said": one,
        }
        for one in messages
    ]
    try:
        return [row["said"] for row in in_order_of_calls(rows)]
    except ValueError:
        return messages


def _message(said: Said) -> Message:
    """The message in the form of chat templates."""
    message: Message = {"role": said.role, "content": said.text}  # type: ignore[typeddict-item]  # checked by the loop
    if said.name:
        message["name"] = said.name
    if said.calls:
        message["tool_calls"] = [
            {"type": "function", "function": {"name": call.name, "arguments": _value_of(call.arguments)}}
            for call in said.calls
        ]
    return message


def _value_of(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
