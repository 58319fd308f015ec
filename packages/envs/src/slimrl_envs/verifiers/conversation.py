"""Runs a program that calls a model, as an episode of slimrl's agent loop.

A program of verifiers calls the model whenever it likes. But the agent loop passes a reply to the episode and waits for
the next messages. So the program runs in its own asyncio task. `start` returns the program's first question. Each
`step` answers the last question, and waits for the next question or the end of the program. A question must continue
the conversation. If the program rewrites it or starts a new one, the tokens differ from the sampled ones, so the
episode fails as `branched`.

Messages have the form of OpenAI's API: the arguments of tool calls are JSON text, and each call has an id.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from slimrl.errors import RolloutError
from slimrl.models.chat.tool_calls import ToolCall, in_order_of_calls, read_calls
from slimrl.types import Message, Turn

Schema = dict[str, Any]
Ask = Callable[[Sequence[Message], Sequence[Schema]], Awaitable[Message]]
"""A function that asks the policy. It takes the whole conversation and the schemas of the tools, and returns the
reply."""
Program = Callable[[Ask], Coroutine[Any, Any, Turn]]
"""A function that plays an episode with an `Ask`, and returns the last turn, with the reward."""


class Conversation:
    """The episode of a program that asks the policy questions."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._task: asyncio.Task[Turn] | None = None
        self._events: asyncio.Queue[Turn | RolloutError | asyncio.Task[Turn]] = asyncio.Queue()
        """Questions as turns, failed questions, and at last the program."""
        self._answer: asyncio.Future[Message] | None = None  # to the question that the policy reads
        self._messages: list[Message] = []
        self._tools: list[Schema] = []

    async def start(self) -> list[Message]:
        """Start the program and return its first question."""
        self._task = asyncio.create_task(self._program(self._ask))
        self._task.add_done_callback(self._events.put_nowait)
        turn = await self._next()
        if turn.done:
            raise RolloutError("environment_error", "the rollout ended before it asked the policy for anything")
        return list(turn.messages)

    async def step(self, reply: str) -> Turn:
        """Answer the last question, and wait for the next question or for the end of the program."""
        assert self._answer is not None, "step() comes after start()"
        message = read_reply(reply, bool(self._tools), len(self._messages))
        self._messages.append(message)
        answer, self._answer = self._answer, None
        if not answer.done():  # the program cancels it when a time limit of its own has passed
            answer.set_result(message)
        return await self._next()

    async def close(self) -> None:
        """Cancel the program if it still runs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.exception()  # retrieved, so that asyncio does not report it as ignored

    async def _next(self) -> Turn:
        event = await self._events.get()
        if isinstance(event, Turn):
            return event
        if isinstance(event, RolloutError):
            raise event
        if event.cancelled():
            raise RolloutError("environment_error", "the rollout cancelled itself")
        return event.result()

    async def _ask(self, messages: Sequence[Message], tools: Sequence[Schema]) -> Message:
        try:
            if self._answer is not None:
                raise _branched("the policy was asked again before it had answered: two conversations at once")
            fresh = self._continuation(list(messages), list(tools))
        except RolloutError as error:
            self._events.put_nowait(error)  # the episode fails even if the program handles the error
            raise
        self._answer = asyncio.get_running_loop().create_future()
        self._events.put_nowait(Turn(done=False, messages=fresh))
        return await self._answer

    def _continuation(self, messages: list[Message], tools: list[Schema]) -> list[Message]:
        """Return the messages that the policy has not read yet. Raise RolloutError if `messages` and `tools` do not
        continue the conversation."""
        if not self._messages:
            self._messages, self._tools = messages, tools
            return opening(messages, tools)
        known = len(self._messages)
        fresh = messages[known:]
        if [*map(_key, messages[:known])] != [*map(_key, self._messages)]:
            raise _branched("the policy was asked to go on with another conversation than it had")
        if tools != self._tools:
            raise _branched("the tools of the policy changed during the episode")
        if not fresh:
            raise _branched("the policy was asked for a second reply in a row")
        if any(one["role"] == "assistant" for one in fresh):
            raise _branched("a reply was put into the policy's mouth")
        self._messages = messages
        # The tool results follow the reply, in any order.
        return [_visible(one) for one in _in_order(messages[known - 1 :])[1:]]


def _branched(detail: str) -> RolloutError:
    return RolloutError("branched", detail)


def read_reply(reply: str, has_tools: bool, number: int) -> Message:
    """Return the reply as a message with its tool calls. The whole reply is text if there are no tools, or if the
    arguments of a call are nested too deeply for verifiers. The ids of the calls contain `number`, so an episode that
    is played again has the same ids."""
    message: Message = {"role": "assistant", "content": reply}
    parts = read_calls(reply) if has_tools else []
    calls = [part for part in parts if isinstance(part, ToolCall)]
    if not calls or any(_nests_too_deeply(call.arguments) for call in calls):
        return message
    message["content"] = "".join(part for part in parts if isinstance(part, str))
    message["tool_calls"] = [
        {"id": f"call_{number}_{place}", "function": {"name": call.name, "arguments": call.arguments}}
        for place, call in enumerate(calls)
    ]
    return message


def opening(messages: Sequence[Message], tools: Sequence[Schema]) -> list[Message]:
    """Return the first messages as the policy reads them. The first message lists the tools."""
    found = [_visible(one) for one in _in_order(messages)]
    if found and tools:
        found[0]["tools"] = list(tools)
    return found


def text_of(content: object) -> str:
    """Return the text of a message's `content`, which is a text or a list of parts. Raise RolloutError for a part that
    is not text, such as an image."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content if isinstance(content, list) else [content]:
        fields = part if isinstance(part, dict) else vars(part)
        kind, text = fields.get("type"), fields.get("text")
        if kind != "text" or not isinstance(text, str):
            raise RolloutError("environment_error", f"a message holds a part of type {kind!r:.40}, and no text")
        texts.append(text)
    return "\n".join(texts)


def _in_order(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with tool results in the order of the calls. Results that fit no calls stay in place."""
    try:
        return in_order_of_calls(messages)
    except ValueError:
        return messages


def _visible(message: Message) -> Message:
    """Return the message in the form for chat templates: without ids, and with the arguments of calls as objects."""
    shown: Message = {"role": message["role"], "content": message["content"]}
    if name := message.get("name"):
        shown["name"] = name
    if calls := message.get("tool_calls"):
        shown["tool_calls"] = [
            {"type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in map(_call_of, calls)
        ]
    return shown


def _key(message: Message) -> tuple[object, ...]:
    """Return the parts of a message that are equal in every copy of it: role, content, and calls without ids."""
    calls = [(name, json.dumps(arguments)) for name, arguments in map(_call_of, message.get("tool_calls", ()))]
    return message["role"], message["content"], calls


def _call_of(call: dict[str, Any]) -> tuple[str, object]:
    return call["function"]["name"], parse_arguments(call["function"]["arguments"])


def parse_arguments(text: str) -> object:
    """Parse the arguments of a call. Return the text itself if it is not JSON, or contains nan or infinity."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value


def _nests_too_deeply(arguments: str) -> bool:
    try:
        with suppress(ValueError):
            json.loads(arguments)
    except RecursionError:
        return True
    return False
