"""Reads the rows of one file or data set: conversations, as `messages` or as `prompt` and `completion`.

A row is refused if it has an unsupported key that would affect the training target. All other unread keys are logged.
`messages.py` reads one message.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from slimrl.errors import UserError
from slimrl.io.rows import preview
from slimrl.io.text import is_writable, parse_json
from slimrl.models.chat.tool_calls import in_order_of_calls
from slimrl.trainer.sft.messages import KEYS, is_empty, read_message, refuse
from slimrl.types import Message

# Unsupported keys that would change the meaning of a row, and how to replace them.
REFUSED = {
    **dict.fromkeys(("function_call", "functions"), "Write calls as `tool_calls`, and the functions as `tools`."),
    "chat_template_kwargs": "Templates are rendered with their defaults: write the messages as they are to be read.",
    **dict.fromkeys(("documents", "images", "videos", "audio", "audios"), "Only texts are read: remove it."),
    **dict.fromkeys(("chosen", "rejected"), "Preferences are not learnt from: give the better reply as `messages`."),
    **dict.fromkeys(("system", "system_prompt"), "Write it as the first message."),
}
REFUSED_OF_COMPLETIONS = {"label": "It marks good and bad completions: keep the good ones, without it."}
# Keys of rollouts that slimrl recorded (`monitor/rollouts.py`).
OF_ROLLOUTS = ("task_id", "loss_mask")
READ_IN_ROW = ("tools", "failure", "metrics")
NO_ID = "0"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A list of messages that ends with an assistant message. `where` names its file and line. Nothing is learnt from
    the keys in `unread`."""

    messages: list[Message]
    where: str
    unread: tuple[str, ...]


# The columns of each format of rows. A row is read in the first format that fits.
FORMS = (("messages",), ("prompt", "completion"))


def read_row(row: Any, where: str) -> Conversation:
    """Return a row as a conversation. Raises UserError, prefixed with `where`, if the row is invalid."""
    columns = _columns_of(row, where)
    refuse(row, REFUSED | (REFUSED_OF_COMPLETIONS if "completion" in columns else {}), where)
    messages = _messages(row, columns, where)
    _check_order(messages, where)
    messages = _in_order_of_calls(messages, where)
    _check_learnt(messages, where, may_be_silent=_is_rollout(row))
    if tools := _tools_of(row, messages, where):
        messages[0]["tools"] = tools
    if not is_writable(messages):
        raise UserError(f"{where}: a lone surrogate such as \\ud800 is no text that can be encoded; remove it.")
    return Conversation(messages, where, tuple(_unread_keys(row, columns)))


def listed(names: Iterable[str], by: str = ", ") -> str:
    """Return the names in back quotes, separated by `by`."""
    return by.join(f"`{name}`" for name in names)


def _columns_of(row: Any, where: str) -> tuple[str, ...]:
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected an object with columns such as `messages`, found: {preview(row)}")
    there = [columns for columns in FORMS if all(row.get(column) is not None for column in columns)]
    if not there:
        known = ", or ".join(listed(columns, " and ") for columns in FORMS)
        has = listed(key for key, value in row.items() if value is not None) or "no columns"
        raise UserError(f"{where}: expected the columns {known}, found {has}. Write the row in one of these forms.")
    filled = (columns for columns in there if not any(is_empty(row[column]) for column in columns))
    return next(filled, there[0])


def _messages(row: Mapping[str, Any], columns: Sequence[str], where: str) -> list[Message]:
    """Return the messages in the order of the row. The assistant messages within a prompt get weight 0."""
    read = list[Message]()
    for column in columns:
        given = row[column]
        if not isinstance(given, list) or not given or not all(isinstance(message, dict) for message in given):
            raise UserError(
                f'{where}: `{column}`: expected a list of messages, [{{"role": ..., "content": ...}}, ...], found: '
                f"{preview(given)}"
            )
        for number, one in enumerate(given, 1):
            message = read_message(one, f"{where}: `{column}`, message {number}")
            if column == "prompt" and message["role"] == "assistant":
                message["weight"] = 0
            read.append(message)
    return read


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
    if any("tools" in message for message in messages[1:]):
        raise UserError(f"{where}: only the row or its first message has `tools`, not a later one.")
    offered = [tools for tools in (row.get("tools"), messages[0].get("tools")) if not is_empty(tools)]
    if len(offered) > 1:
        raise UserError(f"{where}: both the row and its first message have `tools`; remove one of them.")
    return _tools(offered[0], where) if offered else []


def _tools(tools: Any, where: str) -> list[dict[str, Any]]:
    """Return the functions in OpenAI's format. `tools` is a list, or a JSON text of a list."""
    read = parse_json(tools)
    functions: list[Any] = [*map(parse_json, read)] if isinstance(read, list) else [None]
    for tool in functions:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise UserError(
                f'{where}: `tools` is a list of functions, [{{"type": "function", "function": {{"name": ..., ...}}}}], '
                f"found: {preview(tools)}"
            )
    return functions


def _is_rollout(row: Mapping[str, Any]) -> bool:
    return all(key in row for key in OF_ROLLOUTS)


def _unread_keys(row: Mapping[str, Any], columns: Sequence[str]) -> Iterator[str]:
    """Yield the unread keys of the row, and those of its messages as `messages.KEY`."""
    if not _is_rollout(row):
        yield from (key for key in row if key not in (*READ_IN_ROW, *columns) and not is_empty(row[key]))
    for key, value in (item for column in columns for message in row[column] for item in message.items()):
        if key not in KEYS and not is_empty(value):
            yield f"messages.{key}"
