"""Formats `/v1/chat/completions`, with a prompt of messages or of token ids; `generation.py` does the sampling."""

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from slimrl.models.chat.thoughts import opens_thoughts
from slimrl.models.chat.tool_calls import ToolCall, ToolReader
from slimrl_serve import bodies
from slimrl_serve.bodies import ChatBody, ChatMessage, ChatTokensBody, Rendering, Tool
from slimrl_serve.errors import bad_request
from slimrl_serve.generation import Choice, Wanted, start_generation, take_turns
from slimrl_serve.logprobs import chat_logprobs, sampled_scores
from slimrl_serve.reply import Reply
from slimrl_serve.service import Service

CHUNK = "chat.completion.chunk"
TAG_TOKENS = 16  # number of last prompt tokens to check; the opening tag of the thoughts fits in every tokenizer


@dataclass(slots=True, eq=False)
class Chat(Reply[ChatBody]):
    """One chat request. `in_thoughts` is True if the prompt ends with the opening tag of the thoughts."""

    in_thoughts: bool = False

    @property
    def prompt(self) -> list[int]:
        """Return the token ids of the prompt."""
        return self.generation.choices[0].job.prompt

    @property
    def reads_tools(self) -> bool:
        """True if tool calls are parsed from the replies."""
        return bool(self.body.tools) and self.body.tool_choice != "none"

    async def whole(self) -> dict[str, Any]:
        """Return the whole reply."""
        await self.generation.finish()
        choices = self.generation.choices
        reply = self.head("chat.completion")
        reply |= {"choices": await take_turns(self._choice, choices), "usage": self.generation.usage()}
        if self.body.return_token_ids:
            reply["prompt_token_ids"] = self.prompt
        return reply

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the reply in pieces: the role, the content, the finish reason, and the usage if asked for."""
        # A reader per choice holds back text that may become a tool call, so that no partial call is streamed.
        choices = self.generation.choices if self.reads_tools else []
        readers = {choice.index: ToolReader(self.in_thoughts) for choice in choices}
        for choice in self.generation.choices:
            first = self._chunk(choice.index, {"role": "assistant", "content": ""})
            if self.body.return_token_ids:
                first["prompt_token_ids"] = self.prompt
            yield first
        async for choice, done in self.generation.changes():
            # The number of tokens is read once: the engine's thread may append more while this piece is written.
            start = choice.told
            text, end = choice.text_so_far(done), len(choice.token_ids)
            deltas = self._deltas(text, choice, readers, done)
            extras = self._extras(choice, start, end)
            # A token without visible text, such as a part of a character, still has a log-probability to report.
            if not deltas and extras and end > start:
                deltas = [{"content": ""}]
            for delta in deltas:
                yield self._chunk(choice.index, delta, extras)
                extras = {}  # these cover all new tokens, so they are sent with the first piece only
            choice.told = end
            if done:
                called = choice.index in readers and readers[choice.index].num_calls > 0
                yield self._chunk(choice.index, {}, {"finish_reason": _reason(choice, called)})
        for chunk in self.last_chunks(CHUNK):
            yield chunk

    def _deltas(self, text: str, choice: Choice, readers: dict[int, ToolReader], done: bool) -> list[dict[str, Any]]:
        """Return the new content and tool calls of a choice; `text` is its text so far."""
        if choice.index not in readers:
            new, choice.shown = text[choice.shown :], len(text)
            return [{"content": new}] if new else []
        reader = readers[choice.index]
        deltas: list[dict[str, Any]] = []
        num_before = reader.num_calls
        for part in reader.read(text, done):
            if isinstance(part, str):
                deltas.append({"content": part})
            else:
                deltas.append({"tool_calls": [{"index": num_before, **_call(part)}]})
                num_before += 1
        return deltas

    def _chunk(self, index: int, delta: dict[str, Any], extras: dict[str, Any] | None = None) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **(extras or {})}
        return self.head(CHUNK) | {"choices": [choice]}

    def _extras(self, choice: Choice, start: int, end: int) -> dict[str, Any]:
        """Return the log-probabilities and token ids of the sampled tokens `start..end`, if they were requested."""
        extras = self.token_ids(choice, start, end)
        if self.body.logprobs:
            scores = sampled_scores(choice, start, end, self.body.top_logprobs or 0)
            extras["logprobs"] = chat_logprobs(self.names, scores)
        return extras

    def _choice(self, choice: Choice) -> dict[str, Any]:
        text, calls = choice.text_so_far(done=True), []
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if self.reads_tools:
            parts = ToolReader(self.in_thoughts).read(text, closed=True)
            calls = [part for part in parts if isinstance(part, ToolCall)]
            message["content"] = "".join(part for part in parts if isinstance(part, str)) or (None if calls else "")
        # OpenAI omits the key without calls.
        if calls:
            message["tool_calls"] = [_call(call) for call in calls]
        extras = {"logprobs": None, **self._extras(choice, 0, len(choice.token_ids))}
        return {"index": choice.index, "message": message, "finish_reason": _reason(choice, bool(calls)), **extras}


async def open_chat(service: Service, body: ChatBody) -> Chat:
    """Check, tokenize and queue a request. Raises ApiError if it is invalid, or the queue is full."""
    name = service.check_model(body.model)
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("top_logprobs needs logprobs = true.", "top_logprobs")
    check_stream(body)
    prompt = body.tokens if isinstance(body, ChatTokensBody) else await _prompt(service, body)
    asked = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    wanted = Wanted(
        max_tokens=service.check_prompt(prompt, asked),
        top_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        streams=bool(body.stream),
    )
    in_thoughts = opens_thoughts(service.model.vocabulary.decode(prompt[-TAG_TOKENS:], skip_special=False))
    grammar = await service.formats.grammar_of(body, in_thoughts)
    generation = start_generation(service, [prompt], body, [wanted], f"chatcmpl-{uuid.uuid4().hex}", grammar)
    return Chat(generation, service, body, name, in_thoughts)


async def _prompt(service: Service, body: ChatBody) -> list[int]:
    tools = body.tools if body.tools and body.tool_choice != "none" else []
    return await service.encode_prompt(render(service, body, body.messages, tools), bool(body.add_special_tokens))


def render(service: Service, body: Rendering, messages: Sequence[ChatMessage], tools: Sequence[Tool]) -> str:
    """Return the text of a conversation. Raises ApiError 400 if the body's settings contradict each other."""
    own = body.chat_template_kwargs or {}
    writer = service.model.writer
    writer.check_settings(own)
    # By default a reply is generated, unless the last message is to be continued.
    continues = bool(body.continue_final_message)
    generates = not continues if body.add_generation_prompt is None else body.add_generation_prompt
    if continues and generates:
        raise bad_request(
            "continue_final_message continues the last message, add_generation_prompt starts a new one: set only one "
            "of them.",
            "continue_final_message",
        )
    settings = {"add_generation_prompt": generates, "continue_final_message": continues, **own}
    return writer.write(messages, tools, settings)


def check_stream(body: bodies.Generation) -> None:
    """Raise ApiError 400 for fields that contradict `stream`."""
    if body.stream_options is not None and not body.stream:
        raise bad_request("stream_options may only be set together with stream = true.", "stream_options")


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _reason(choice: Choice, called: bool) -> str:
    # A reply that was cut off at its maximum length has the reason "length", even if it has calls.
    return "tool_calls" if called and choice.finish_reason == "stop" else choice.finish_reason
