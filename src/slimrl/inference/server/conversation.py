"""Renders a conversation as the text of a prompt by the model's chat template, with tools even if it lacks support.

A template that renders tools, calls and results gets them unchanged. For others they are written into messages in the
form that most such models are trained on: the functions as JSON in the system message, a call as JSON in `<tool_call>`
tags, and a result as a user's message in `<tool_response>` tags.
"""

import inspect
import json
from collections.abc import Sequence
from datetime import date
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from slimrl.inference.server.bodies import ChatMessage, Tool
from slimrl.inference.server.errors import bad_request
from slimrl.io.text import is_writable
from slimrl.models.chat.clock import with_date
from slimrl.models.chat.tool_calls import TEMPLATE_ERRORS, render_tools

Plain = dict[str, Any]  # a message or tool in the form that templates take
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
    """Renders conversations for one tokenizer. A template that reads the clock writes `day`, or the present date if
    there is none. Raises ApiError 400 for conversations that the template refuses."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, day: date | None = None) -> None:
        self._tokenizer = tokenizer
        self._day = day
        # Names that a client may not set through `chat_template_kwargs`, such as `tokenize` or another template.
        self._own_settings = set(inspect.signature(tokenizer.apply_chat_template).parameters)
        self._knows_tools = render_tools(tokenizer) is not None

    def write(self, messages: Sequence[ChatMessage], tools: Sequence[Tool], settings: Plain) -> str:
        """The text of the prompt. `settings` are passed to the template, such as `add_generation_prompt`."""
        plain = [_message(message) for message in messages]
        functions = [tool.model_dump(exclude_none=True) for tool in tools]
        if not self._knows_tools:
            plain, functions = _without_tool_roles(plain, functions), []
        return self._render(plain, functions, settings)

    def check_settings(self, settings: Plain) -> None:
        """Raise ApiError 400 for settings that are arguments of `apply_chat_template` and not the template's own."""
        if taken := sorted(self._own_settings & set(settings)):
            raise bad_request(f"chat_template_kwargs cannot set {taken[0]}.", "chat_template_kwargs")

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
    """A message in the form that templates take: its content is one text, and the arguments of calls are objects."""
    content = message.content
    if isinstance(content, list):
        content = "".join(part.text for part in content)
    if content is None and message.role != "assistant":
        raise bad_request(f"messages: the {message.role} message has no content.", "messages")
    # "developer" is OpenAI's newer name for the system role, which templates do not know.
    plain: Plain = {"role": "system" if message.role == "developer" else message.role, "content": content or ""}
    if message.name is not None:
        plain["name"] = message.name
    if message.tool_call_id is not None:
        plain["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        plain["tool_calls"] = [
            {
                "id": call.id or "",
                "type": "function",
                "function": {"name": call.function.name, "arguments": _arguments(call.function.arguments)},
            }
            for call in message.tool_calls
        ]
    return plain


def _arguments(text: str) -> Any:
    """The arguments of a call as an object; the text itself if it is no JSON object that a template can write."""
    try:
        read = json.loads(text)
        return read if isinstance(read, dict) and is_writable(read) else text
    except (ValueError, RecursionError):
        return text


def _without_tool_roles(messages: list[Plain], tools: list[Plain]) -> list[Plain]:
    """The same conversation without tool roles and calls, in the roles that every template has."""
    written: list[Plain] = []
    for message in messages:
        if message["role"] == "tool":
            text = f"<tool_response>\n{message['content']}\n</tool_response>"
            # Results of several calls follow each other and become one message: many templates want alternating roles.
            if written and written[-1].get("results"):
                written[-1]["content"] += f"\n{text}"
            else:
                written.append({"role": "user", "content": text, "results": True})
        else:
            calls = [f"<tool_call>\n{_dump(call['function'])}\n</tool_call>" for call in message.pop("tool_calls", [])]
            # Text and calls on lines of their own; empty content is left out if there are calls.
            content = "\n".join([*([message["content"]] if message["content"] or not calls else []), *calls])
            written.append({**message, "content": content})
    # The functions belong to the system message, which is made if the conversation has none.
    if tools:
        prompt = TOOL_PROMPT.format(tools="\n".join(_dump(tool["function"]) for tool in tools))
        if written[0]["role"] == "system":
            written[0] = {**written[0], "content": f"{written[0]['content']}\n\n{prompt}"}
        else:
            written.insert(0, {"role": "system", "content": prompt})
    # The mark was only needed to merge results.
    for message in written:
        message.pop("results", None)
    return written


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
