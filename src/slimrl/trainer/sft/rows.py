"""Reads the messages of a row of data, in the forms that OpenAI, TRL and axolotl know.

Whatever in a row decides what is to be learnt is read, or the row is refused: thoughts and calls are for the template
to write, a weight of 0 masks a reply. The other keys are told, so that nothing is left out without a word.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from slimrl.errors import UserError
from slimrl.io.rows import preview
from slimrl.types import Message

ROLES = ("system", "user", "assistant", "tool")
KEYS = tuple(Message.__annotations__)
# The names of a reply's thoughts, and of the switch that leaves a reply out of the loss.
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
WEIGHTS = ("weight", "train", "training", "train_on_turn", "loss")
# The keys of ShareGPT's form, and its names of roles.
SHAREGPT = ("from", "value")
SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "observation": "tool"}
# What would change the meaning of a conversation and cannot be done, and what to do instead.
CALLS = "Write calls as `tool_calls`, and the functions as `tools` of the row."
TEXT = "Write what the model is to say into `content`, or remove it."
MASKS = "Give whole messages a `weight` of 0 instead."
REFUSED_IN_MESSAGE = {
    **dict.fromkeys(("function_call", "functions"), CALLS),
    **dict.fromkeys(("refusal", "audio", "images", "videos", "thinking_blocks", "reasoning_details"), TEXT),
    **dict.fromkeys(("train_detail", "training_detail", "mask", "masked", "loss_mask"), MASKS),
}
REFUSED_IN_ROW = {
    **dict.fromkeys(("function_call", "functions"), CALLS),
    "chat_template_kwargs": "Templates are rendered with their defaults: write the messages as they are to be read.",
    **dict.fromkeys(("system", "system_prompt"), "Write it as the first message, with the role `system`."),
    **dict.fromkeys(("documents", "images", "videos", "audio", "audios"), "Only texts are read: remove it."),
    **dict.fromkeys(("chosen", "rejected"), "Preferences are not learnt from: give the better reply as `messages`."),
}
# Keys of rollouts that slimrl recorded (`monitor/rollouts.py`).
OF_ROLLOUTS = ("task_id", "loss_mask")
READ_IN_ROW = ("tools", "failure", "metrics")


def read_messages(row: Any, where: str) -> list[Message]:
    """The messages of a row. Raises UserError that names the row (`where`) if they cannot be learnt from."""
    given = _given(row, where)
    _refuse(row, REFUSED_IN_ROW, where)
    messages = [_message(message, f"{where}: message {number}") for number, message in enumerate(given, 1)]
    if not all(message["role"] in ROLES for message in messages):
        raise _unexpected(row, where)
    roles = [message["role"] for message in messages]
    if roles[:1] == ["assistant"] or roles[-1:] != ["assistant"]:
        raise UserError(
            f"{where}: a conversation to learn from begins with a system or user message and ends with an assistant "
            f"message; this one has the roles: {', '.join(roles) or 'none'}."
        )
    if not any(message["role"] == "assistant" and message.get("weight", 1) for message in messages):
        raise UserError(f"{where}: every assistant message has a weight of 0, so there is nothing to learn.")
    if any("tools" in message for message in messages[1:]):
        raise UserError(f"{where}: only the row or its first message has `tools`, not a later one.")
    offered = [tools for tools in (row.get("tools"), messages[0].get("tools")) if not _is_empty(tools)]
    if len(offered) > 1:
        raise UserError(f"{where}: both the row and its first message have `tools`; remove one of them.")
    if offered:
        messages[0]["tools"] = _tools(offered[0], where)
    return messages


def unread_keys(row: Mapping[str, Any]) -> Iterator[str]:
    """The keys of a row and its messages that nothing is learnt from, but for those of recorded rollouts."""
    parts = _parts(row)
    if not all(key in row for key in OF_ROLLOUTS):
        yield from (key for key, value in row.items() if key not in (*READ_IN_ROW, *parts) and not _is_empty(value))
    for message in (message for part in parts for message in row[part]):
        for key, value in message.items():
            if key not in (*KEYS, *THOUGHTS, *WEIGHTS, *SHAREGPT) and not _is_empty(value):
                yield f"messages.{key}"


def _given(row: Any, where: str) -> list[dict[str, Any]]:
    """The messages as they stand in the row, with roles and contents. Of a prompt nothing is learnt."""
    lists: list[Any] = [row.get(part) for part in _parts(row)] if isinstance(row, dict) else [None]
    if not all(isinstance(given, list) and all(isinstance(item, dict) for item in given) for given in lists):
        raise _unexpected(row, where)
    if "completion" in _parts(row) and "label" in row:
        raise UserError(f"{where}: `label` marks good and bad completions: keep the good ones, without it.")
    *prompts, last = [[_named(message) for message in given] for given in lists]
    masked = [{**m, "weight": 0} if m.get("role") == "assistant" else m for prompt in prompts for m in prompt]
    if not all("role" in message for message in [*masked, *last]):
        raise _unexpected(row, where)
    return [*masked, *last]


def _parts(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of the row's lists of messages, which stand one behind the other."""
    forms = (("messages",), ("prompt", "completion"), ("conversations",))
    return next((form for form in forms if not any(_is_empty(row.get(part)) for part in form)), forms[0])


def _named(message: dict[str, Any]) -> dict[str, Any]:
    """The message with `role` and `content`, which ShareGPT's form calls `from` and `value`."""
    if not all(key in message for key in SHAREGPT):
        return message
    role, content, others = message["from"], message["value"], {k: v for k, v in message.items() if k not in SHAREGPT}
    return {"role": SHAREGPT_ROLES.get(str(role), role), "content": content, **others}


def _unexpected(row: Any, where: str) -> UserError:
    return UserError(
        f'{where}: expected {{"messages": [{{"role": ..., "content": ...}}, ...]}}, or such lists as `prompt` and '
        f"`completion` or as `conversations`, with roles {', '.join(ROLES)} and text contents, found: {preview(row)}"
    )


def _message(given: dict[str, Any], where: str) -> Message:
    """The message in the form that the chat format takes. Columnar files have every key in every message, mostly
    empty."""
    _refuse(given, REFUSED_IN_MESSAGE, where)
    message = {key: given[key] for key in KEYS if key not in WEIGHTS and given.get(key) is not None}
    thoughts = [given[key] for key in THOUGHTS if not _is_empty(given.get(key))]
    if any(not isinstance(text, str) or text != thoughts[0] for text in thoughts):
        raise UserError(f"{where}: give one text as `{THOUGHTS[0]}`, found: {preview(thoughts)}")
    if thoughts:
        message[THOUGHTS[0]] = thoughts[0]
    calls = message.pop("tool_calls", None)
    if calls:
        if not isinstance(calls, list):
            raise UserError(f"{where}: `tool_calls` is a list of calls, found: {preview(calls)}")
        message["tool_calls"] = [_call(call, where) for call in calls]
    if thoughts or calls:
        if given["role"] != "assistant":
            raise UserError(f"{where}: only an assistant has thoughts and calls, not the {given['role']}.")
        message.setdefault("content", "")
    if not isinstance(message.get("content"), str):
        raise UserError(f"{where}: expected text contents, found: {preview(given)}")
    if (weight := _weight(given, where)) is not None:
        message["weight"] = weight
    return cast(Message, message)


def _weight(message: Mapping[str, Any], where: str) -> int | None:
    """0 for a reply that is not to be learnt, and None for a message that says nothing about it."""
    found = {key: message[key] for key in WEIGHTS if message.get(key) is not None}
    for key, value in found.items():
        if value not in (0, 1):
            raise UserError(f"{where}: `{key}` is {value!r}; a message is learnt (1, true) or not (0, false).")
        if value and message["role"] != "assistant":
            raise UserError(f"{where}: `{key}` asks to learn a message of the {message['role']}; only replies are.")
    if len(set(found.values())) > 1:
        raise UserError(f"{where}: {' and '.join(f'`{key}`' for key in found)} contradict each other.")
    return 0 if 0 in found.values() else None


def _call(call: Any, where: str) -> dict[str, Any]:
    """A call in OpenAI's form, or without `function` around it, with its arguments as an object."""
    function = call.get("function", call) if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if isinstance(arguments, str):
        arguments = _parse(arguments)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not isinstance(arguments, dict):
        raise UserError(
            f'{where}: a call is {{"function": {{"name": ..., "arguments": {{...}}}}}}, and the arguments are an '
            f"object or its JSON, found: {preview(call)}"
        )
    call_id = call.get("id") or "0"
    return {"id": call_id, "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _tools(tools: Any, where: str) -> list[dict[str, Any]]:
    read = _parse(tools) if isinstance(tools, str) else tools
    if not isinstance(read, list) or not all(isinstance(tool, dict) for tool in read):
        raise UserError(f"{where}: `tools` is a list of functions as JSON schemas, found: {preview(tools)}")
    return read


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _refuse(found: Mapping[str, Any], refused: Mapping[str, str], where: str) -> None:
    if key := next((key for key in refused if not _is_empty(found.get(key))), None):
        raise UserError(f"{where}: `{key}` would be left out, and the model would learn without it. {refused[key]}")


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {})
