"""Renders a conversation as the text of a prompt with the model's chat template. Adds tools if the template cannot.

A template that renders tools, calls and results gets them unchanged. For other templates, this module writes them into
messages, in the form that most models know from training: the functions as JSON in the system message, a call as JSON
in `<tool_call>` tags, and a result as a user's message in `<tool_response>` tags. No template can write a call with
arguments that are not a JSON object. If a reply has an invalid call, the reply and the results after it always become
text. So the model sees its mistake and can try again.
"""

import inspect
import json
from collections.abc import Sequence
from datetime import date
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from slimrl.io.text import is_too_deep, is_writable, parse_json
from slimrl.models.chat.render import MARKER, TEMPLATE_ERRORS, render_tools, with_date
from slimrl.models.chat.tool_calls import in_order_of_calls
from slimrl_serve.bodies import ChatMessage, Tool, ToolCall
from slimrl_serve.errors import bad_request

Plain = dict[str, Any]  # a message or tool in the form that templates expect
MAX_SHAPES = 1_000  # remembered shapes of conversations
TOOL_PROMPT = """\
You may call functions to help with the user's request. These are their signatures, as JSON:
<tools>
{tools}
</tools>
To call a function, answer with a JSON object of its name and arguments in these tags, once for each call:
<tool_call>
{{"name": <function name>, "arguments": <arguments as a JSON object>}}
</tool_call>"""


class PromptWriter:
    """Renders conversations for one tokenizer. If the template writes a date, it writes `day`, or today's date if `day`
    is None. Raises ApiError 400 for conversations that the template refuses."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, day: date | None = None) -> None:
        self._tokenizer = tokenizer
        self._day = day
        # Names that a client must not set through `chat_template_kwargs`, such as `tokenize` or another template.
        self._arguments = set(inspect.signature(tokenizer.apply_chat_template).parameters)
        self._knows_tools = render_tools(tokenizer) is not None
        self._whole = set[str]()  # shapes of conversations that the template renders completely

    def write(
        self, messages: Sequence[ChatMessage], tools: Sequence[Tool], settings: Plain, own: Plain | None = None
    ) -> str:
        """Return the text of the prompt. The template receives `settings`, such as `add_generation_prompt`, and the
        client's `own` settings."""
        if taken := sorted(self._arguments & set(own or ())):
            raise bad_request(f"chat_template_kwargs cannot set {taken[0]}.", "chat_template_kwargs")
        settings = settings | (own or {})
        try:
            plain = in_order_of_calls([_message(message) for message in messages])
        except ValueError as error:
            raise bad_request(f"messages: {error}.", "messages") from None
        functions = [tool.model_dump(exclude_none=True) for tool in tools]
        plain = _as_text(plain, every_call=not self._knows_tools)
        if not self._knows_tools:
            plain, functions = _with_prompt(plain, functions), []
        self._check_whole(plain, functions, settings)
        return self._render(plain, functions, settings)

    def _check_whole(self, messages: list[Plain], tools: list[Plain], settings: Plain) -> None:
        """Raise ApiError 400 if the template leaves out a message, a call or a tool. Each shape of a conversation is
        checked only once. The check replaces message contents and the names of calls and tools with markers, renders
        the conversation, and searches the text for the markers. It does not search for real contents, because a
        template may change them, for example drop thoughts."""
        parts = [(one["role"], bool(one["content"].strip()), len(one.get("tool_calls", ()))) for one in messages]
        shape = repr((parts, len(tools), settings))
        if shape in self._whole:
            return
        marks: dict[str, str] = {}  # the part of the conversation that each marker replaces

        def mark(part: str) -> str:
            marks[name := f"{MARKER}{len(marks)}."] = part
            return name

        def rename(plain: Plain, part: str) -> Plain:
            return {**plain, "function": {**plain["function"], "name": mark(part)}}

        marked = list[Plain]()
        for message in messages:
            if calls := message.get("tool_calls"):  # many templates omit the text of a message with calls
                marked.append({**message, "tool_calls": [rename(call, "a call") for call in calls]})
            else:
                text = mark(f"the {message['role']} message") if message["content"].strip() else ""
                marked.append({**message, "content": text})
        text = self._render(marked, [rename(tool, "a tool") for tool in tools], settings)
        if lost := [part for name, part in marks.items() if name not in text]:
            raise bad_request(
                f"messages: the chat template of the model leaves out {lost[0]} of a conversation with the roles "
                f"{', '.join(message['role'] for message in messages)}. Write it into a message of another role.",
                "messages",
            )
        if len(self._whole) >= MAX_SHAPES:
            self._whole.clear()
        self._whole.add(shape)

    def _render(self, messages: list[Plain], tools: list[Plain], settings: Plain) -> str:
        try:
            template = self._tokenizer.get_chat_template(tools=tools or None)
            template = with_date(template, self._day) if self._day else template
            text = self._tokenizer.apply_chat_template(
                messages, tools=tools or None, chat_template=template, tokenize=False, **settings
            )
        except TEMPLATE_ERRORS as error:
            raise bad_request(
                f"The chat template of the model refuses this conversation: {error}", "messages"
            ) from None
        return cast(str, text)


def _message(message: ChatMessage) -> Plain:
    content = message.content
    if isinstance(content, list):
        content = "".join(part.text for part in content)
    if content is None and message.role != "assistant":
        raise bad_request(f"messages: the {message.role} message has no content.", "messages")
    # "developer" is OpenAI's newer name for the system role. Templates do not have it.
    role = "system" if message.role == "developer" else message.role
    plain: Plain = message.model_dump(include={"name", "tool_call_id"}, exclude_none=True)
    plain |= {"role": role, "content": content or ""}
    if message.tool_calls:
        plain["tool_calls"] = [_call(call) for call in message.tool_calls]
    return plain


def _call(call: ToolCall) -> Plain:
    function = {"name": call.function.name, "arguments": _arguments(call.function.arguments)}
    return {"id": call.id or "", "type": "function", "function": function}


def _arguments(given: Any) -> Any:
    """Return a call's arguments as an object if they are a JSON object that a template can write; else as their
    text."""
    if given is None or given == "":  # the function has no parameters
        return {}
    read = parse_json(given)
    if isinstance(read, dict) and not is_too_deep(read) and is_writable(read):
        return read
    return given if isinstance(given, str) else json.dumps(given)


def _as_text(messages: list[Plain], every_call: bool) -> list[Plain]:
    """Return the conversation with calls and their results as text, in the roles that every template has. Without
    `every_call`, convert only replies with a call whose arguments are not an object, and the results after them."""
    written: list[Plain] = []
    results: Plain | None = None  # the message with the results so far
    converts = every_call
    for message in messages:
        if message["role"] == "tool" and converts:
            text = f"<tool_response>\n{message['content']}\n</tool_response>"
            # Results of several calls are adjacent and become one message, because many templates need alternating
            # roles.
            if results is None:
                written.append(results := {"role": "user", "content": text})
            else:
                results["content"] += f"\n{text}"
            continue
        results = None
        if calls := [call["function"] for call in message.get("tool_calls", ())]:
            converts = every_call or not all(isinstance(call["arguments"], dict) for call in calls)
            if converts:
                texts = [f"<tool_call>\n{_call_text(call)}\n</tool_call>" for call in calls]
                message = {"role": "assistant", "content": "\n".join([*filter(None, [message["content"]]), *texts])}
        written.append(message)
    return written


def _call_text(function: Plain) -> str:
    arguments = function["arguments"]
    spelt = arguments if isinstance(arguments, str) else _dump(arguments)
    return f'{{"name": {_dump(function["name"])}, "arguments": {spelt}}}'


def _with_prompt(messages: list[Plain], tools: list[Plain]) -> list[Plain]:
    if not tools:
        return messages
    prompt = TOOL_PROMPT.format(tools="\n".join(_dump(tool["function"]) for tool in tools))
    if messages[0]["role"] != "system":
        return [{"role": "system", "content": prompt}, *messages]
    return [{**messages[0], "content": f"{messages[0]['content']}\n\n{prompt}"}, *messages[1:]]


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
