"""Reads the rows of one file or data set: conversations, or texts that bypass the chat template.

A row is refused if it has an unsupported key that would affect the training target. All other unread keys are logged.
`forms.py` recognises the format of a row, and `messages.py` reads one message.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from slimrl.config.data import RowForm
from slimrl.errors import UserError
from slimrl.io.rows import preview
from slimrl.io.text import is_writable, parse_json
from slimrl.models.chat.results import in_order_of_calls
from slimrl.trainer.sft.forms import SHAREGPT, RowKind, is_empty, kind_of_row, other_forms
from slimrl.trainer.sft.messages import KEYS, THOUGHTS, TOOL_NAME, WEIGHTS, read_message, refuse
from slimrl.types import Message

SYSTEM = ("system", "system_prompt")
# Unsupported keys that would change the meaning of a row, and how to replace them.
REFUSED = {
    **dict.fromkeys(("function_call", "functions"), "Write calls as `tool_calls`, and the functions as `tools`."),
    "chat_template_kwargs": "Templates are rendered with their defaults: write the messages as they are to be read.",
    **dict.fromkeys(("documents", "images", "videos", "audio", "audios"), "Only texts are read: remove it."),
    **dict.fromkeys(("chosen", "rejected"), "Preferences are not learnt from: give the better reply as `messages`."),
    "history": "Write the turns as `messages`.",
}
REFUSED_OF_TEXTS = dict.fromkeys(
    ("tools", *SYSTEM), "No template writes it into a text: give `messages`, or write it into the text."
)
REFUSED_OF_COMPLETIONS = {"label": "It marks good and bad completions: keep the good ones, without it."}
# Keys of rollouts that slimrl recorded (`monitor/rollouts.py`).
OF_ROLLOUTS = ("task_id", "loss_mask")
READ_IN_ROW = ("tools", "failure", "metrics", *SYSTEM)
# This tag marks a system message that describes the tools as text, as in the Hermes data set.
TOOLS_TAG = "<tools>"
NO_ID = "0"
TOOLS_IN_WORDS = f"`tools` is not offered where the system message describes tools in {TOOLS_TAG} already"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A list of messages that ends with an assistant message. `where` names its file and line."""

    messages: list[Message]
    where: str


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text that bypasses the chat template. The loss covers only `completion`; `prompt` may be empty."""

    prompt: str
    completion: str
    where: str


class RowReader:
    """A reader of the rows of one file. All rows must have the same format. `form` is the setting `data.form`.

    `notes` are sentences for the user about the rows that were read so far.
    """

    def __init__(self, form: RowForm = "auto") -> None:
        self._form = form
        self._kind: RowKind | None = None
        self._others = dict[str, None]()
        self._unread = dict[str, None]()
        self._describes_tools = False

    def read(self, row: Any, where: str) -> Conversation | PlainText:
        """Return a row as a conversation or text. Raises UserError, prefixed with `where`, if the row is invalid."""
        kind = kind_of_row(row, where, self._form)
        if self._kind is not None and kind != self._kind:
            raise UserError(
                f"{where}: this row is {kind.name}, and those before it are {self._kind.name}. The rows of a file are "
                "of one kind: write two files, or name the columns to read by `data.form`."
            )
        refuse(row, REFUSED | (REFUSED_OF_COMPLETIONS if kind.form == "prompt_completion" else {}), where)
        read = _text(row, kind, where) if kind.is_text else self._conversation(row, kind, where)
        if not is_writable(read.messages if isinstance(read, Conversation) else [read.prompt, read.completion]):
            raise UserError(f"{where}: a lone surrogate such as \\ud800 is no text that can be encoded; remove it.")
        self._kind = kind
        if not _is_rollout(row):
            others = other_forms(row, kind)
            self._others |= dict.fromkeys(other.form for other in others)
            known = {*READ_IN_ROW, *(column for one in (kind, *others) for column in one.columns)}
            self._unread |= dict.fromkeys(key for key in row if key not in known and not is_empty(row[key]))
        self._unread |= dict.fromkeys(_unread_keys(row, kind))
        return read

    @property
    def notes(self) -> list[str]:
        """Sentences for the user: how the rows are interpreted, and which keys are not read."""
        others = "".join(f"; `--data.form {name}` takes another column that is there" for name in self._others)
        notes = [f"rows are {self._kind.name}: {self._kind.learnt}{others}"] if self._kind else []
        notes += [TOOLS_IN_WORDS] if self._describes_tools else []
        if self._unread:
            notes.append(f"nothing is learnt from these keys: {', '.join(f'`{key}`' for key in self._unread)}")
        return notes

    def _conversation(self, row: Mapping[str, Any], kind: RowKind, where: str) -> Conversation:
        messages = _alpaca(row, where) if kind.form == "alpaca" else _messages(row, kind, where)
        _add_system(row, messages, where)
        _check_order(messages, where)
        messages = _in_order_of_calls(messages, where)
        _check_learnt(messages, where, may_be_silent=_is_rollout(row))
        if tools := _tools_of(row, messages, where):
            messages[0]["tools"] = tools
            if TOOLS_TAG in messages[0]["content"] and messages[0]["role"] == "system":
                del messages[0]["tools"]
                self._describes_tools = True
        return Conversation(messages, where)


def _text(row: Mapping[str, Any], kind: RowKind, where: str) -> PlainText:
    refuse(row, REFUSED_OF_TEXTS, where)
    *prompts, last = kind.needs
    for column in kind.needs:
        if not _text_in(row, column, where):
            raise UserError(f"{where}: `{column}` is empty; remove the row.")
    return PlainText("".join(row[column] for column in prompts), row[last], where)


def _alpaca(row: Mapping[str, Any], where: str) -> list[Message]:
    """Return the messages of an Alpaca row. The first message has the instruction and the optional input, and the
    second has the reply."""
    texts = {column: _text_in(row, column, where) for column in ("instruction", "input", "output")}
    question = "\n\n".join(text for text in (texts["instruction"], texts["input"]) if text.strip())
    if not question:
        raise UserError(f"{where}: `instruction` is empty; remove the row.")
    return [{"role": "user", "content": question}, {"role": "assistant", "content": texts["output"]}]


def _messages(row: Mapping[str, Any], kind: RowKind, where: str) -> list[Message]:
    """Return the messages in the order of the row. The assistant messages within a prompt get weight 0."""
    read = list[Message]()
    for column in kind.needs:
        for number, given in enumerate(row[column], 1):
            message = read_message(given, f"{where}: `{column}`, message {number}")
            if column == "prompt" and message["role"] == "assistant":
                message["weight"] = 0
            read.append(message)
    return read


def _text_in(row: Mapping[str, Any], column: str, where: str) -> str:
    """Return the text in a column; empty if the column is missing or empty. Raises UserError for any other value."""
    text: Any = row.get(column) or ""
    if not isinstance(text, str):
        raise UserError(f"{where}: `{column}` is to be a text, found: {preview(text)}")
    return text


def _add_system(row: Mapping[str, Any], messages: list[Message], where: str) -> None:
    """If the row has a column with a system prompt, insert the prompt as the first message. Raises UserError if the
    messages already start with a different system prompt."""
    found = {column: _text_in(row, column, where) for column in SYSTEM if not is_empty(row.get(column))}
    if not found:
        return
    system = next(iter(found.values()))
    if len(set(found.values())) > 1:
        raise UserError(f"{where}: {' and '.join(f'`{column}`' for column in found)} contradict each other.")
    if messages and messages[0]["role"] != "system":
        first: Message = {"role": "system", "content": system}
        if "tools" in messages[0]:
            first["tools"] = messages[0].pop("tools")
        messages.insert(0, first)
    elif messages and messages[0]["content"] != system:
        raise UserError(f"{where}: the row has a system message and another one in a column; remove one of them.")


def _check_order(messages: Sequence[Message], where: str) -> None:
    roles = [message["role"] for message in messages]
    if roles[:1] == ["assistant"] or roles[-1:] != ["assistant"]:
        raise UserError(
            f"{where}: a conversation to learn from begins with a system or user message and ends with an assistant "
            f"message; this one has the roles: {', '.join(roles) or 'none'}."
        )
    if any(role == "tool" and before not in ("assistant", "tool") for before, role in pairwise(["", *roles])):
        raise UserError(
            f"{where}: the result of a tool stands behind an assistant message or another result; this conversation "
            f"has the roles: {', '.join(roles)}."
        )


def _in_order_of_calls(messages: list[Message], where: str) -> list[Message]:
    """Return the messages, with tool results sorted in the order of their calls. A call without an id gets `NO_ID`,
    because some templates require an id."""
    try:
        messages = in_order_of_calls(messages)
    except ValueError as error:
        raise UserError(f"{where}: {error}.") from None
    for call in (call for message in messages for call in message.get("tool_calls", ())):
        call["id"] = call["id"] or NO_ID
    return messages


def _check_learnt(messages: Sequence[Message], where: str, may_be_silent: bool) -> None:
    learnt = [message for message in messages if message["role"] == "assistant" and message.get("weight", 1)]
    if not learnt:
        raise UserError(f"{where}: every assistant message has a weight of 0, so there is nothing to learn.")
    says = [m for m in learnt if m["content"].strip() or "tool_calls" in m or "reasoning_content" in m]
    if not says and not may_be_silent:
        raise UserError(f"{where}: the assistant says nothing, so only silence could be learnt; remove the row.")


def _tools_of(row: Mapping[str, Any], messages: Sequence[Message], where: str) -> list[dict[str, Any]]:
    """Return the tools of the row or of its first message; an empty list if there are none."""
    if any("tools" in message for message in messages[1:]):
        raise UserError(f"{where}: only the row or its first message has `tools`, not a later one.")
    offered = [tools for tools in (row.get("tools"), messages[0].get("tools")) if not is_empty(tools)]
    if len(offered) > 1:
        raise UserError(f"{where}: both the row and its first message have `tools`; remove one of them.")
    return _tools(offered[0], where) if offered else []


def _tools(tools: Any, where: str) -> list[dict[str, Any]]:
    """Return the functions in OpenAI's format. `tools` is a list, or a JSON text of a list."""
    read = parse_json(tools)
    functions = [*map(parse_json, read)] if isinstance(read, list) else []
    if not isinstance(read, list) or not all(isinstance(tool, dict) for tool in functions):
        raise UserError(f"{where}: `tools` is a list of functions as JSON schemas, found: {preview(tools)}")
    wrapped = [tool if "function" in tool else {"type": "function", "function": tool} for tool in functions]
    for tool in wrapped:
        if not isinstance(tool["function"], dict) or not isinstance(tool["function"].get("name"), str):
            raise UserError(f"{where}: a function of `tools` has no `name`: {preview(tool)}")
    return wrapped


def _is_rollout(row: Mapping[str, Any]) -> bool:
    return all(key in row for key in OF_ROLLOUTS)


def _unread_keys(row: Mapping[str, Any], kind: RowKind) -> Iterator[str]:
    """Yield the unread keys in the row's messages, as `messages.KEY`."""
    lists = [row[column] for column in kind.needs if isinstance(row[column], list)]
    for key, value in ((key, value) for messages in lists for message in messages for key, value in message.items()):
        if key not in (*KEYS, *THOUGHTS, *WEIGHTS, *SHAREGPT, TOOL_NAME) and not is_empty(value):
            yield f"messages.{key}"
