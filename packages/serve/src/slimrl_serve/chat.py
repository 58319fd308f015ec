"""Formats the replies of `/v1/chat/completions`. The prompt is given as messages or as token ids."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from slimrl.models.chat.thoughts import OPEN_THOUGHTS, opens_thoughts
from slimrl.models.chat.tool_calls import ToolCall
from slimrl_serve.bodies import ChatBody, ChatMessage, ChatTokensBody, Rendering, Tool
from slimrl_serve.errors import bad_request
from slimrl_serve.generation import Choice
from slimrl_serve.reply import Plain, TextReply
from slimrl_serve.service import Service

TAG_TOKENS = 16  # number of last prompt tokens to check; the opening tag of thoughts has fewer tokens


@dataclass(eq=False)
class Chat(TextReply[ChatBody]):
    """The reply to one chat request. `in_thoughts` is True if the prompt ends with the opening tag of thoughts, such as
    `<think>`."""

    KINDS = ("chat.completion", "chat.completion.chunk")

    in_thoughts: bool = False
    num_calls: dict[int, int] = field(default_factory=dict)  # by choice

    @property
    def _tools(self) -> Sequence[Tool]:
        return self.body.tools if self.body.tools and self.body.tool_choice != "none" else ()

    def first_pieces(self) -> Iterator[Plain]:
        """Yield the role of each choice."""
        for choice in self.choices:
            yield _piece(choice, {"role": "assistant", "content": ""}, {})

    def pieces(self, choice: Choice, text: str, tokens: tuple[int, int], done: bool) -> Iterator[Plain]:
        """Yield the new text and tool calls as pieces, and at the end the finish reason."""
        deltas: list[Plain] = []
        num_before = 0
        for part in self._read(choice, text, done):
            if isinstance(part, str):
                deltas.append({"content": part})
            else:
                deltas.append({"tool_calls": [{"index": num_before, **_call(part)}]})
                num_before += 1
        extras = self._extras(choice, *tokens)
        # A token without visible text, such as a part of a character, still has a log-probability to report.
        if not deltas and extras and tokens[1] > tokens[0]:
            deltas = [{"content": ""}]
        for delta in deltas:
            yield _piece(choice, delta, extras)
            extras = {}  # these cover all new tokens, so they are sent with the first piece only
        if done:
            yield _piece(choice, {}, {"finish_reason": self._reason(choice)})

    def whole_choice(self, choice: Choice) -> Plain:
        """Return a choice with its message."""
        parts = self._read(choice, choice.text_so_far(done=True), done=True)
        calls = [_call(part) for part in parts if isinstance(part, ToolCall)]
        content = "".join(part for part in parts if isinstance(part, str)) or (None if calls else "")
        # Without calls, OpenAI omits the key.
        message: Plain = {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})
        extras = {"logprobs": None, **self._extras(choice, 0, len(choice.token_ids))}
        return {"index": choice.index, "message": message, "finish_reason": self._reason(choice), **extras}

    def _read(self, choice: Choice, text: str, done: bool) -> list[str | ToolCall]:
        if not self._tools:
            return [new] if (new := text[choice.shown :]) else []
        if not done:  # any part of it may be a call
            return []
        reader, opened = self.service.policy.chat.calls, OPEN_THOUGHTS if self.in_thoughts else ""
        first, *others = reader.read(opened + text, [tool.function.name for tool in self._tools]).parts or [""]
        parts = [first.removeprefix(opened) if isinstance(first, str) else first, *others]
        self.num_calls[choice.index] = sum(isinstance(part, ToolCall) for part in parts)
        return [part for part in parts if part]

    def _extras(self, choice: Choice, start: int, end: int) -> Plain:
        extras = self.token_ids(choice, start, end)
        if self.body.logprobs:
            scores = choice.scores(start, end, self.body.top_logprobs or 0)
            extras["logprobs"] = self.names.chat_logprobs(scores)
        return extras

    def _reason(self, choice: Choice) -> str:
        # A reply that was cut off at its maximum length has the reason "length", even if it has calls.
        called = self.num_calls.get(choice.index, 0) > 0
        return "tool_calls" if called and choice.finish_reason == "stop" else choice.finish_reason


async def open_chat(service: Service, body: ChatBody) -> Chat:
    """Check, tokenize and queue a request. Raises ApiError if it is invalid, or the queue is full."""
    service.check_model(body.model)
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("top_logprobs needs logprobs = true.", "top_logprobs")
    prompt = body.tokens if isinstance(body, ChatTokensBody) else await _prompt(service, body)
    asked = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    max_tokens = service.check_prompt(prompt, asked)
    in_thoughts = opens_thoughts(service.vocabulary.decode(prompt[-TAG_TOKENS:], skip_special=False))
    top = (body.top_logprobs or 0) if body.logprobs else None
    return Chat(service, body, f"chatcmpl-{uuid.uuid4().hex}", [prompt], [max_tokens], top, in_thoughts)


async def _prompt(service: Service, body: ChatBody) -> list[int]:
    tools = body.tools if body.tools and body.tool_choice != "none" else []
    return await service.encode_prompt(render(service, body, body.messages, tools), bool(body.add_special_tokens))


def render(service: Service, body: Rendering, messages: Sequence[ChatMessage], tools: Sequence[Tool]) -> str:
    """Return the text of a conversation."""
    settings = {"add_generation_prompt": body.add_generation_prompt is not False}
    return service.writer.write(messages, tools, settings, body.chat_template_kwargs or {})


def _piece(choice: Choice, delta: Plain, extras: Plain) -> Plain:
    return {"index": choice.index, "delta": delta, "logprobs": None, "finish_reason": None, **extras}


def _call(call: ToolCall) -> Plain:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
