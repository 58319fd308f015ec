"""Renders whole conversations with the tokenizer's chat template, and finds the text after the last reply.

The text that a template writes for a message may depend on all earlier messages: the number of tool results, a tool
call in the last reply, or whether there are tools (some tokenizers have a second template for tools, `tool_use`). So no
message is rendered separately. A continuation is the template's text after the last reply of the conversation so far.

Also finds out if a template writes tools, calls and results, and the form in which it writes calls.
"""

import json
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from itertools import takewhile
from typing import Any, cast

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from slimrl.errors import UserError
from slimrl.models.chat.call_reader import FORMS, CallReader
from slimrl.models.chat.thoughts import CLOSE
from slimrl.types import Message

Plain = dict[str, Any]  # a message in the form that templates take

# Keys of our messages that templates do not know.
NOT_FOR_TEMPLATES = ("tools", "excerpt", "weight")
MARKER = "slimrl@marker@"
# Marks the end of a reply. No message can contain this marker, because it differs in every process.
END = f"{MARKER}{uuid.uuid4().hex}@"
MAX_SHAPES = 10_000  # maximum number of cached shapes
READER = "strftime_now"  # template function that reads the clock
# The directives of Python's `strftime`, and their forms with "-" (glibc and macOS: without a leading zero). `with_date`
# replaces `%%` first, so that "%%d" becomes the text "%d".
_DIRECTIVES = [f"%{flag}{letter}" for flag in ("", "-") for letter in "aAbBcdeDFGhHIjlmMnpSTuUVwWxXyYzZ"]

# Exceptions that templates raise for unexpected conversations.
TEMPLATE_ERRORS = (TemplateError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError)
CALL_ID = "000000000"  # Mistral's templates need ids of nine characters
# Names that are unlikely in a template, and names in Python too.
TOOL, CALL, KEY, RESULT = (f"slimrl_marker_{part}" for part in ("tool", "name", "key", "result"))
TOOLS = [{"type": "function", "function": {"name": TOOL, "description": "", "parameters": {"type": "object"}}}]


def call_object(name: str, arguments: Any) -> dict[str, Any]:
    """Return a call in the form that templates take."""
    return {"id": CALL_ID, "type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": "question"},
    {"role": "assistant", "content": "", "tool_calls": [call_object(CALL, {KEY: 1})]},
    {"role": "tool", "tool_call_id": CALL_ID, "content": RESULT},
]


class Renderer:
    """A renderer with the chat template of one tokenizer. `mark` is a function that marks the control tokens in
    messages. If the template reads the clock (`reads_clock`), it sees the date `day`."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, mark: Callable[[Any], Any], day: date) -> None:
        self.name = tokenizer.name_or_path
        self._tokenizer = tokenizer
        self._mark = mark
        self._day = day
        templates = tokenizer.chat_template
        texts = templates.values() if isinstance(templates, dict) else [templates]
        self.reads_clock = any(READER in text for text in texts)
        self._gaps: dict[tuple[Any, ...], str] = {}
        self.calls = CallReader("")
        self.end_of_turn = ""  # the text that ends a reply
        self.max_calls = sys.maxsize  # some templates write only one call per reply

    def text(self, messages: Sequence[Message], generate: bool) -> str:
        """Return the text of a conversation, with the generation prompt if `generate` is set. Raises UserError if the
        template refuses the conversation."""
        return self._apply(self._visible(messages), _tools(messages), generate)

    def behind_last_reply(self, messages: Sequence[Message]) -> str:
        """Return the template's text between the last reply and the next reply. Raises UserError if the template
        refuses the conversation or omits the last reply."""
        shown = self._visible(messages)
        last = max(index for index, message in enumerate(shown) if message["role"] == "assistant")
        calls = shown[last].get("tool_calls")
        if calls:
            *others, call = calls
            shown[last] |= {"tool_calls": [*others, call_object(call["function"]["name"], {END: ""})]}
        else:
            shown[last] |= {"content": shown[last]["content"] + END}
        _, found, text = self._apply(shown, _tools(messages), generate=True).rpartition(END)
        if calls and self.calls.own == "hermes":
            _, found, text = text.partition(CLOSE)
        elif calls:  # the end of the turn follows the call
            _, found, behind = text.partition(self.end_of_turn)
            text = found + behind
        if not found:
            raise self._find_lost("assistant", [message["role"] for message in messages])
        return text

    def gap(self, messages: Sequence[Message]) -> str:
        """Return the template's text between the last reply and the next message. If there is no reply, return the text
        before the first message.

        Raises UserError if the template omits a message or a tool. Some templates omit them without an error.

        The result depends only on the roles, the numbers of tool calls and the presence of tools, so it is cached. The
        template is rendered with numbered markers instead of the messages' texts.
        """
        roles = [(message["role"], len(message.get("tool_calls", ()))) for message in self._visible(messages)]
        tools = _tools(messages)
        shape = (tools is not None, *roles)
        if shape not in self._gaps:
            if len(self._gaps) >= MAX_SHAPES:
                self._gaps.clear()
            self._gaps[shape] = self._find_gap(roles, tools)
        return self._gaps[shape]

    def _find_gap(self, roles: Sequence[tuple[str, int]], tools: Any) -> str:
        marks = [f"{MARKER}{index}." for index in range(len(roles))]
        probe = [
            {"role": role, "content": "", "tool_calls": [call_object(mark, {})] * calls}
            if calls
            else {"role": role, "content": mark} | ({"tool_call_id": CALL_ID} if role == "tool" else {})
            for (role, calls), mark in zip(roles, marks, strict=True)
        ]
        text = self._apply(probe, tools, generate=True)
        replies = [index for index, (role, _) in enumerate(roles) if role == "assistant"]
        after = replies[-1] + 1 if replies else 0
        # The earlier messages have been read. A template may write them only before the first reply.
        fresh = list(zip(roles, marks, strict=True))[max(0, after - 1) :]
        if lost := [role for (role, _), mark in fresh if mark not in text]:
            raise self._find_lost(lost[0], [role for role, _ in roles])
        if unknown := [name for name in names_of(tools) if name not in text]:
            raise UserError(
                f"The chat template of {self.name} leaves out the tool {unknown[0]} of a conversation with the roles "
                f"{', '.join(role for role, _ in roles)}. Describe the tools in a message, or send other roles."
            )
        behind = text.rpartition(marks[after - 1])[2] if after else text
        return behind.partition(marks[after])[0] if after < len(marks) else behind

    def _visible(self, messages: Sequence[Message]) -> list[Plain]:
        """Return the messages in the form that templates take. If there are tools, the calls in a reply's text become
        `tool_calls` without arguments, because the template's text around a tool result depends on them."""
        names = names_of(_tools(messages))
        shown = []
        for message in messages:
            plain: Plain = {key: value for key, value in message.items() if key not in NOT_FOR_TEMPLATES}
            if message["role"] == "tool":
                plain.setdefault("tool_call_id", CALL_ID)
            if names and self.calls.own and message["role"] == "assistant" and "tool_calls" not in message:
                reading = self.calls.read(message["content"], names)
                if calls := [call_object(call.name, {}) for call in reading.calls[: self.max_calls]]:
                    text = "".join(part for part in reading.parts if isinstance(part, str))
                    plain |= {"content": text, "tool_calls": calls}
            shown.append(plain)
        return shown

    def _find_lost(self, role: str, roles: Sequence[str]) -> UserError:
        return UserError(
            f"The chat template of {self.name} leaves out the {role} message of a conversation with the roles "
            f"{', '.join(roles)}. Let the environment send that text in another role."
        )

    def _apply(self, shown: Sequence[Plain], tools: Any, generate: bool) -> str:
        try:
            template = self._tokenizer.get_chat_template(tools=tools)
            text = self._tokenizer.apply_chat_template(
                self._mark(shown),
                tools=self._mark(tools),
                chat_template=with_date(template, self._day),
                tokenize=False,
                add_generation_prompt=generate,
            )
        except TEMPLATE_ERRORS as error:
            raise UserError(
                f"The chat template of {self.name} refuses a conversation with the roles "
                f"{', '.join(message['role'] for message in shown) or '(none)'}: {error}. Let the environment send "
                "other roles, for example the instructions as part of the first user message."
            ) from error
        return cast(str, text)


def _tools(messages: Sequence[Message]) -> Any:
    return messages[0].get("tools") if messages else None


def names_of(tools: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """Return the names of tools in OpenAI's form, with or without `function` around each."""
    return [tool.get("function", tool).get("name", "") for tool in tools or ()]


def with_date(template: str, day: date) -> str:
    """Return a chat template with its clock fixed at midnight of `day`, because a run's prompts must not change from
    day to day. A template that reads no clock is returned unchanged."""
    if READER not in template:
        return template
    values = {"%%": "\0", **{name: day.strftime(name) for name in _DIRECTIVES}, "\0": "%"}
    # A macro with this name replaces the function of transformers. The line break after the macro is not rendered.
    return (
        f"{{% macro {READER}(format) %}}{{% set clock = namespace(text=format) %}}"
        f"{{% for name, value in {json.dumps(values)}.items() %}}"
        "{% set clock.text = clock.text.replace(name, value) %}{% endfor %}{{ clock.text }}{% endmacro %}\n"
        f"{template}"
    )


def render_tools(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Return the chat template's text for a conversation with a tool, a call and its result. Return None if the
    template raises an error or omits one of them."""
    text = _render(tokenizer, CONVERSATION)
    return text if all(part in text for part in (TOOL, CALL, KEY, RESULT)) else None


def form_of(tokenizer: PreTrainedTokenizerBase, end_of_turn: str) -> str:
    """Return the name of the form of the chat template's calls; empty for a template without calls, or with an unknown
    form. `end_of_turn` is the text that ends a turn."""
    text = render_tools(tokenizer)
    if text is None:
        return ""
    # The reply follows the generation prompt. A template may write more into a generation prompt, such as thoughts.
    pairs = zip(text, _render(tokenizer, CONVERSATION[:1], generate=True), strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    begin = 1 + max(text.rfind(end, 0, shared) for end in ">]\n ")
    reply = text[begin:].partition(end_of_turn)[0]
    return next((name for name in FORMS if _reads(name, reply)), "")


def _reads(form: str, reply: str) -> bool:
    return [(call.name, call.values) for call in CallReader(form).read(reply, ()).calls] == [(CALL, {KEY: 1})]


def _render(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, Any]], generate: bool = False) -> str:
    """Return the text of messages with a tool; empty if the template raises an error."""
    try:
        text = tokenizer.apply_chat_template(
            cast(Any, messages), tools=cast(Any, TOOLS), tokenize=False, add_generation_prompt=generate
        )
    except TEMPLATE_ERRORS:
        return ""
    return cast(str, text)


def with_written_calls(messages: Sequence[Message], reader: CallReader) -> list[Message]:
    """Return a conversation to learn from, with the calls in the texts of its replies in the form that is read.

    Scripts write the form `hermes`, and sampled replies have the form of the template. A template writes its own form
    from `tool_calls`.
    """
    if reader.form_to_write == "hermes" or "tools" not in messages[0]:
        return [*messages]
    return [_with_written_calls(message, reader) for message in messages]


def _with_written_calls(message: Message, reader: CallReader) -> Message:
    if message["role"] != "assistant" or "tool_calls" in message:
        return message
    readings = [CallReader(form).read(message["content"], ()) for form in (reader.own, "hermes")]
    reading = next((one for one in readings if one.calls), readings[0])
    if not reading.calls or not all(isinstance(call.values, dict) for call in reading.calls):
        return message
    text = "".join(part for part in reading.parts if isinstance(part, str))
    if reader.form_to_write != reader.own:
        return {**message, "content": f"{text}\n{FORMS[reader.form_to_write].write(reading.calls)}".lstrip("\n")}
    return {**message, "content": text, "tool_calls": [call_object(call.name, call.values) for call in reading.calls]}
