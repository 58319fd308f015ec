"""Renders whole conversations by the tokenizer's chat template, and finds out what it writes behind the last reply.

A template may look at anything that came before: how many results there were, whether the last reply called a tool, or
whether tools are offered at all (then some tokenizers have a second template, `tool_use`). So nothing is rendered
apart: a continuation is what the template writes behind the last reply of the conversation so far.
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
# Where a reply ends. No message can spell it, as it is another one in every process.
END = f"{MARKER}{uuid.uuid4().hex}@"
MAX_SHAPES = 10_000  # how many are remembered
READER = "strftime_now"  # the function by which a template reads the clock
# Python's directives, and glibc's and macOS's form without a leading zero. `%%` is first, so that "%%d" stays "%d".
_DIRECTIVES = [f"%{flag}{letter}" for flag in ("", "-") for letter in "aAbBcdeDFGhHIjlmMnpSTuUVwWxXyYzZ"]


class Renderer:
    """The chat template of one tokenizer. `mark` marks the control tokens that a message spells. `day` is the date that
    a template which reads the clock writes; `reads_clock` tells whether it does."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, mark: Callable[[Any], Any], day: date) -> None:
        self.name = tokenizer.name_or_path
        self._tokenizer = tokenizer
        self._mark = mark
        self._day = day
        templates = tokenizer.chat_template
        self.reads_clock = any(map(reads_clock, templates.values() if isinstance(templates, dict) else [templates]))
        self._gaps: dict[tuple[Any, ...], str] = {}

    def text(self, messages: Sequence[Message], generate: bool) -> str:
        """The text of a conversation, with the generation prompt if `generate` is set. Raises UserError if the template
        refuses it."""
        return self._apply(_shown(messages), _tools(messages), generate)

    def behind_last_reply(self, messages: Sequence[Message]) -> str:
        """The text behind the last reply, up to the next one. Raises UserError if the template refuses the conversation
        or leaves the reply out."""
        shown = _shown(messages)
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
            raise self._lost("assistant", [message["role"] for message in messages])
        return text

    def gap(self, messages: Sequence[Message]) -> str:
        """The text between the last reply and the next message, or before the first message if there is no reply.

        Raises UserError if the template leaves out a message or a tool of a conversation like this; some do so
        silently.

        Numbered markers are rendered in the place of the texts, once for each sequence of roles and calls.
        """
        roles = [(message["role"], len(message.get("tool_calls", ()))) for message in _shown(messages)]
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
            raise self._lost(lost[0], [role for role, _ in roles])
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

    def _lost(self, role: str, roles: Sequence[str]) -> UserError:
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


def _shown(messages: Sequence[Message]) -> list[Plain]:
    """The messages as the template takes them. Where tools are offered, the calls in a reply are given as calls without
    arguments: templates decide by them what they write around a result."""
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
    """Return the chat template with a fixed clock, at midnight of that day, if it reads the clock: a run's prompts must
    not change from one day to the next."""
    if not reads_clock(template):
        return template
    values = {"%%": "\0", **{name: day.strftime(name) for name in _DIRECTIVES}, "\0": "%"}
    # A name that a template defines itself hides the function of transformers. The line break ends up in no text.
    return (
        f"{{% macro {READER}(format) %}}{{% set clock = namespace(text=format) %}}"
        f"{{% for name, value in {json.dumps(values)}.items() %}}"
        "{% set clock.text = clock.text.replace(name, value) %}{% endfor %}{{ clock.text }}{% endmacro %}\n"
        f"{template}"
    )
