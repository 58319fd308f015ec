"""Renders whole conversations by the tokenizer's chat template, and finds the text after the last reply.

A template may depend on anything before: the number of results, a tool call in the last reply, or whether tools are
offered at all (some tokenizers then have a second template, `tool_use`). So nothing is rendered separately: a
continuation is the template's text after the last reply of the conversation so far.
"""

import json
import uuid
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from slimrl.errors import UserError
from slimrl.models.chat.tags import CLOSE
from slimrl.models.chat.tool_calls import MARKER, TEMPLATE_ERRORS, ToolCall, ToolReader
from slimrl.types import Message

Plain = dict[str, Any]  # a message in the form that templates take

# Keys of our messages that templates do not know.
NOT_FOR_TEMPLATES = ("tools", "excerpt", "weight")
# Marks the end of a reply. No message can spell it, because it differs in every process.
END = f"{MARKER}{uuid.uuid4().hex}@"
MAX_SHAPES = 10_000  # maximum number of cached shapes
READER = "strftime_now"  # template function that reads the clock
# Python's directives, and the form of glibc and macOS without a leading zero. `%%` is first, so that "%%d" stays "%d".
_DIRECTIVES = [f"%{flag}{letter}" for flag in ("", "-") for letter in "aAbBcdeDFGhHIjlmMnpSTuUVwWxXyYzZ"]


class Renderer:
    """The chat template of one tokenizer. `mark` marks the control tokens in messages. If the template reads the clock
    (`reads_clock`), it sees the date `day`."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, mark: Callable[[Any], Any], day: date) -> None:
        self.name = tokenizer.name_or_path
        self._tokenizer = tokenizer
        self._mark = mark
        self._day = day
        templates = tokenizer.chat_template
        self.reads_clock = any(map(reads_clock, templates.values() if isinstance(templates, dict) else [templates]))
        self._gaps: dict[tuple[Any, ...], str] = {}

    def text(self, messages: Sequence[Message], generate: bool) -> str:
        """Return the text of a conversation, with the generation prompt if `generate` is set. Raises UserError if the
        template refuses it."""
        return self._apply(_visible_messages(messages), _tools(messages), generate)

    def behind_last_reply(self, messages: Sequence[Message]) -> str:
        """Return the text after the last reply, up to the next one. Raises UserError if the template refuses the
        conversation or omits the reply."""
        shown = _visible_messages(messages)
        last = max(index for index, message in enumerate(shown) if message["role"] == "assistant")
        calls = shown[last].get("tool_calls")
        if calls:
            *others, call = calls
            shown[last] |= {"tool_calls": [*others, _call(call["function"]["name"], {END: ""})]}
        else:
            shown[last] |= {"content": shown[last]["content"] + END}
        _, found, text = self._apply(shown, _tools(messages), generate=True).rpartition(END)
        if calls:
            _, found, text = text.partition(CLOSE)
        if not found:
            raise self._find_lost("assistant", [message["role"] for message in messages])
        return text

    def gap(self, messages: Sequence[Message]) -> str:
        """Return the text between the last reply (or the start, without a reply) and the next message.

        Raises UserError if the template omits a message or a tool of such a conversation; some do so silently.

        Numbered markers are rendered in place of the texts, once for each sequence of roles and calls.
        """
        roles = [(message["role"], len(message.get("tool_calls", ()))) for message in _visible_messages(messages)]
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
            {"role": role, "content": "", "tool_calls": [_call(mark, {})] * calls}
            if calls
            else {"role": role, "content": mark}
            for (role, calls), mark in zip(roles, marks, strict=True)
        ]
        text = self._apply(probe, tools, generate=True)
        if lost := [role for (role, _), mark in zip(roles, marks, strict=True) if mark not in text]:
            raise self._find_lost(lost[0], [role for role, _ in roles])
        names = [tool.get("function", tool).get("name", "") for tool in tools or ()]
        if unknown := [name for name in names if name not in text]:
            raise UserError(
                f"The chat template of {self.name} leaves out the tool {unknown[0]} of a conversation with the roles "
                f"{', '.join(role for role, _ in roles)}. Describe the tools in a message, or send other roles."
            )
        replies = [index for index, (role, _) in enumerate(roles) if role == "assistant"]
        after = replies[-1] + 1 if replies else 0
        behind = text.rpartition(marks[after - 1])[2] if after else text
        return behind.partition(marks[after])[0] if after < len(marks) else behind

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


def _visible_messages(messages: Sequence[Message]) -> list[Plain]:
    """Return the messages in the template's form. With tools, the calls in a reply become calls without arguments: the
    template's text around a result depends on them."""
    shown = []
    for message in messages:
        plain: Plain = {key: value for key, value in message.items() if key not in NOT_FOR_TEMPLATES}
        if _tools(messages) and message["role"] == "assistant" and "tool_calls" not in message:
            parts = ToolReader().read(message["content"], closed=True)
            if calls := [_call(part.name, {}) for part in parts if isinstance(part, ToolCall)]:
                text = "".join(part for part in parts if isinstance(part, str))
                plain |= {"content": text, "tool_calls": calls}
        shown.append(plain)
    return shown


def _call(name: str, arguments: Plain) -> Plain:
    return {"id": "0", "type": "function", "function": {"name": name, "arguments": arguments}}


def reads_clock(template: str) -> bool:
    """Return True if a chat template asks for the date or the time."""
    return READER in template


def with_date(template: str, day: date) -> str:
    """Fix the clock of a chat template at midnight of `day`: a run's prompts must not change from day to day. Return a
    template that reads no clock unchanged."""
    if not reads_clock(template):
        return template
    values = {"%%": "\0", **{name: day.strftime(name) for name in _DIRECTIVES}, "\0": "%"}
    # A macro of this name hides the function of transformers. Its line break appears in no text.
    return (
        f"{{% macro {READER}(format) %}}{{% set clock = namespace(text=format) %}}"
        f"{{% for name, value in {json.dumps(values)}.items() %}}"
        "{% set clock.text = clock.text.replace(name, value) %}{% endfor %}{{ clock.text }}{% endmacro %}\n"
        f"{template}"
    )
