"""Formats `/v1/chat/completions`, with a prompt of messages or of token ids; `generation.py` does the sampling."""

import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from slimrl.models.chat.thoughts import opens_thoughts
from slimrl.models.chat.tool_calls import ToolCall, ToolReader
from slimrl_serve.bodies import ChatBody, ChatTokensBody, Rendering
from slimrl_serve.errors import bad_request
from slimrl_serve.generation import Choice, Generation, Wanted, prepare, take_turns
from slimrl_serve.logprobs import TokenNames, chat_logprobs, prompt_logprobs
from slimrl_serve.service import Service

TAG_TOKENS = 16  # at the end of a prompt: no tokenizer takes more for the opening tag of the thoughts


@dataclass(slots=True, eq=False)
class Chat:
    """One chat request: its body, its prompt, and the choices that are being sampled."""

    body: ChatBody
    name: str
    prompt: list[int]
    generation: Generation
    names: TokenNames
    id: str
    created: int
    in_thoughts: bool  # whether the prompt ends in the opening tag of the thoughts

    @property
    def reads_tools(self) -> bool:
        """Whether tool calls are to be parsed out of the replies."""
        return bool(self.body.tools) and self.body.tool_choice != "none"

    async def reply(self) -> dict[str, Any]:
        """The whole reply."""
        await self.generation.finish()
        choices = self.generation.choices
        reply = self._head("chat.completion")
        reply |= {"choices": await take_turns(self._choice, choices), "usage": usage([choices])}
        if self.body.return_token_ids:
            reply["prompt_token_ids"] = self.prompt
        if self.body.prompt_logprobs is not None:
            reply["prompt_logprobs"] = prompt_logprobs(self.names, choices[0], self.body.prompt_logprobs)
        return reply

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the reply in pieces: the role, the content, the finish reason, and the usage if asked for."""
        # A reader per choice holds back what may become a tool call, so that no half of one is streamed as text.
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
            # A token without visible text (part of a character, say) still has a log-probability to report.
            if not deltas and extras and end > start:
                deltas = [{"content": ""}]
            for delta in deltas:
                yield self._chunk(choice.index, delta, extras)
                extras = {}  # of all new tokens, so with the first piece only
            choice.told = end
            if done:
                called = choice.index in readers and readers[choice.index].num_calls > 0
                yield self._chunk(choice.index, {}, {"finish_reason": _reason(choice, called)})
        if self.body.stream_options and self.body.stream_options.include_usage:
            yield self._head("chat.completion.chunk") | {"choices": [], "usage": usage([self.generation.choices])}

    def _deltas(self, text: str, choice: Choice, readers: dict[int, ToolReader], done: bool) -> list[dict[str, Any]]:
        """The new content and tool calls of a choice whose text so far is `text`."""
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
        return self._head("chat.completion.chunk") | {"choices": [choice]}

    def _extras(self, choice: Choice, start: int, end: int) -> dict[str, Any]:
        """The log-probabilities and token ids of the sampled tokens `start..end`, as far as they are asked for."""
        extras: dict[str, Any] = {}
        if self.body.logprobs:
            extras["logprobs"] = chat_logprobs(self.names, choice, start, end, self.body.top_logprobs or 0)
        if self.body.return_token_ids:
            extras["token_ids"] = choice.token_ids[start:end]
            extras["token_versions"] = choice.request.versions[start:end]
        return extras

    def _choice(self, choice: Choice) -> dict[str, Any]:
        text, calls = choice.text_so_far(done=True), []
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if self.reads_tools:
            parts = ToolReader(self.in_thoughts).read(text, closed=True)
            calls = [part for part in parts if isinstance(part, ToolCall)]
            message["content"] = "".join(part for part in parts if isinstance(part, str)) or (None if calls else "")
        # OpenAI leaves the key out where there are no calls.
        if calls:
            message["tool_calls"] = [_call(call) for call in calls]
        extras = {"logprobs": None, **self._extras(choice, 0, len(choice.token_ids))}
        return {"index": choice.index, "message": message, "finish_reason": _reason(choice, bool(calls)), **extras}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.name}


async def open_chat(service: Service, body: ChatBody) -> Chat:
    """The chat of a checked and tokenized request; no choice is queued yet. Raises ApiError if it is invalid."""
    name = service.check_model(body.model)
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("top_logprobs is told with the log-probabilities; set logprobs to true.", "top_logprobs")
    check_stream(body.stream, body.stream_options is not None, body.prompt_logprobs)
    prompt = body.tokens if isinstance(body, ChatTokensBody) else await _prompt(service, body)
    asked = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    wanted = Wanted(
        max_tokens=service.check_prompt(prompt, asked),
        top_logprobs=(body.top_logprobs or 0) if body.logprobs else -1,
        prompt_logprobs=-1 if body.prompt_logprobs is None else body.prompt_logprobs,
        streams=bool(body.stream),
    )
    id = f"chatcmpl-{uuid.uuid4().hex}"
    in_thoughts = opens_thoughts(service.model.vocabulary.decode(prompt[-TAG_TOKENS:], skip_special=False))
    grammar = await service.formats.grammar_of(body, in_thoughts)
    generation = prepare(service, [prompt], body, [wanted], id, grammar)
    names = TokenNames(service.model.vocabulary, bool(body.return_tokens_as_token_ids))
    return Chat(body, name, prompt, generation, names, id, int(time.time()), in_thoughts)


async def _prompt(service: Service, body: ChatBody) -> list[int]:
    tools = body.tools if body.tools and body.tool_choice != "none" else []
    text = service.write_prompt(body.messages, tools, template_settings(service, body))
    return await service.encode_prompt(text, bool(body.add_special_tokens))


def template_settings(service: Service, body: Rendering) -> dict[str, Any]:
    """The settings for rendering a body's messages. Raises ApiError 400 if they contradict each other."""
    own = body.chat_template_kwargs or {}
    service.model.writer.check_settings(own)
    # By default a reply is generated, unless the last message is to be continued.
    continues = bool(body.continue_final_message)
    generates = not continues if body.add_generation_prompt is None else body.add_generation_prompt
    if continues and generates:
        raise bad_request(
            "continue_final_message goes on with the last message and add_generation_prompt begins a new one; set only "
            "one of them to true.",
            "continue_final_message",
        )
    return {"add_generation_prompt": generates, "continue_final_message": continues, **own}


def check_stream(stream: bool | None, has_options: bool, prompt_logprobs: int | None) -> None:
    """Raise ApiError 400 for fields that contradict `stream`."""
    if has_options and not stream:
        raise bad_request("stream_options may only be set together with stream = true.", "stream_options")
    if stream and prompt_logprobs is not None:
        raise bad_request("prompt_logprobs are not told in a stream; leave out one of the two.", "prompt_logprobs")


def usage(choices_of_prompts: list[list[Choice]]) -> dict[str, Any]:
    """The token counts of a reply; a prompt counts once, however many choices continue it."""
    prompt = sum(len(choices[0].request.prompt) for choices in choices_of_prompts)
    cached = sum(choices[0].request.cached for choices in choices_of_prompts)
    sampled = sum(len(choice.token_ids) for choices in choices_of_prompts for choice in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _reason(choice: Choice, called: bool) -> str:
    # A reply that was cut off by its length says so, even if it has calls.
    return "tool_calls" if called and choice.finish_reason == "stop" else choice.finish_reason
