"""Renders whole conversations with the tokenizer's chat template, and finds the text after the last reply.

The text that a template writes for a message may depend on all earlier messages: the number of tool results, a tool
call in the last reply, or whether there are tools (some tokenizers have a second template for tools, `tool_use`). So no
message is rendered separately. A continuation is the template's text after the last reply of the conversation so far.
"""

import json
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from slimrl.errors import UserError
from slimrl.models.chat.call_reader import CallReader
from slimrl.models.chat.tags import CLOSE
from slimrl.models.chat.tool_template import CALL_ID, TEMPLATE_ERRORS, call_object
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


class Renderer:
    """A renderer with the chat template of one tokenizer. `mark` is a function that marks the control tokens in
    messages. If the template reads the clock (`reads_clock`), it sees the date `day`."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, mark: Callable[[Any], Any], day: date) -> None:
        self.name = tokenizer.name_or_path
        self._tokenizer = tokenizer
        self._mark = mark
        self._day = day
        templates = tokenizer.chat_template
        self.reads_clock = any(map(reads_clock, templates.values() if isinstance(templates, dict) else [templates]))
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


def reads_clock(template: str) -> bool:
    """Return True if a chat template asks for the date or the time."""
    return READER in template


def with_date(template: str, day: date) -> str:
    """Return a chat template with its clock fixed at midnight of `day`, because a run's prompts must not change from
    day to day. A template that reads no clock is returned unchanged."""
    if not reads_clock(template):
        return template
    values = {"%%": "\0", **{name: day.strftime(name) for name in _DIRECTIVES}, "\0": "%"}
    # A macro with this name replaces the function of transformers. The line break after the macro is not rendered.
    return (
        f"{{% macro {READER}(format) %}}{{% set clock = namespace(text=format) %}}"
        f"{{% for name, value in {json.dumps(values)}.items() %}}"
        "{% set clock.text = clock.text.replace(name, value) %}{% endfor %}{{ clock.text }}{% endmacro %}\n"
        f"{template}"
    )
