"""Reads one message of a row of supervised data, in the formats of OpenAI, Hugging Face, ShareGPT and axolotl.

A message is refused if it has an unsupported key that would affect the training target. The chat template includes
thoughts and tool calls in the target. A weight of 0 excludes a reply from the loss.
"""

from collections.abc import Mapping
from typing import Any, cast

from slimrl.errors import UserError
from slimrl.io.rows import preview
from slimrl.io.text import parse_json
from slimrl.models.chat.results import id_text
from slimrl.trainer.sft.forms import SHAREGPT, is_empty
from slimrl.types import ROLES, Message

KEYS = tuple(Message.__annotations__)
TOOL_NAME = "tool_name"  # Ollama's key for the `name` of a tool result
# The keys for a reply's thoughts, and for the switch that excludes a reply from the loss.
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
WEIGHTS = ("weight", "train", "training", "train_on_turn", "loss")
# ShareGPT's names of roles. The value of `function_call` is the JSON of a call, or of a list of calls.
CALLING = "function_call"
SHAREGPT_ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "assistant", CALLING), "assistant"),
    **dict.fromkeys(("observation", "function_response", "tool"), "tool"),
    "system": "system",
}
# Unsupported keys that would change the meaning of a conversation, and how to replace them.
CALLS = "Write calls as `tool_calls`, and the functions as `tools` of the row."
TEXT = "Write what the model is to say into `content`, or remove it."
MASKS = "Give whole messages a `weight` of 0 instead."
REFUSED = {
    **dict.fromkeys(("function_call", "functions"), CALLS),
    **dict.fromkeys(("refusal", "audio", "images", "videos", "thinking_blocks", "reasoning_details"), TEXT),
    **dict.fromkeys(("train_detail", "training_detail", "mask", "masked", "loss_mask"), MASKS),
}


def read_message(row: Mapping[str, Any], where: str) -> Message:
    """Return the message in the structure that the chat format expects. Keys with empty values, as in columnar files,
    are ignored. Raises UserError, prefixed with `where`, if the message cannot be used for training."""
    given = _with_names(row, where)
    refuse(given, REFUSED, where)
    message = {key: given[key] for key in KEYS if key not in WEIGHTS and given.get(key) is not None}
    if "tool_call_id" in message:
        message["tool_call_id"] = id_text(message["tool_call_id"])
    if given["role"] == "tool" and not is_empty(given.get(TOOL_NAME)):
        message.setdefault("name", given[TOOL_NAME])
    thoughts = [given[key] for key in THOUGHTS if not is_empty(given.get(key))]
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
    message["content"] = _text(message.get("content"), given, where)
    if (weight := _weight(given, where)) is not None:
        message["weight"] = weight
    return cast(Message, message)


def refuse(found: Mapping[str, Any], refused: Mapping[str, str], where: str) -> None:
    """Raise UserError if one of the `refused` keys has a value in `found`. `refused` maps keys to remedies."""
    if key := next((key for key in refused if not is_empty(found.get(key))), None):
        raise UserError(f"{where}: `{key}` would be left out, and the model would learn without it. {refused[key]}")


def _with_names(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the message with the keys `role` and `content`. ShareGPT's keys `from` and `value` are renamed."""
    given = {key: value for key, value in message.items() if key not in SHAREGPT}
    if all(message.get(key) is None for key in SHAREGPT):
        return _with_role(given, given.get("role"), "role", where)
    for one, other in (("role", "from"), ("content", "value")):
        if not is_empty(message.get(one)) and not is_empty(message.get(other)):
            raise UserError(f"{where}: has both `{one}` and `{other}`; remove one of them.")
    name, value = message.get("from"), message.get("value")
    role = SHAREGPT_ROLES.get(name) if isinstance(name, str) else None
    if role is None:
        known = ", ".join(SHAREGPT_ROLES)
        raise UserError(f"{where}: `from` is {preview(name)}, which is not one of the known names {known}.")
    if name == CALLING:
        calls = parse_json(value)
        if not isinstance(calls, dict | list) or not calls:
            raise UserError(f"{where}: the value of `{CALLING}` is the JSON of a call, found: {preview(value)}")
        given |= {"tool_calls": calls if isinstance(calls, list) else [calls], "content": None}
    else:
        given["content"] = value
    return _with_role(given, role, "from", where)


def _with_role(given: dict[str, Any], role: Any, key: str, where: str) -> dict[str, Any]:
    if role not in ROLES:
        found = f"`{key}` is {preview(role)}" if key in given else f"it has no `{key}`"
        raise UserError(f"{where}: expected one of the roles {', '.join(ROLES)}, and {found}.")
    return {**given, "role": role}


def _text(content: Any, given: Mapping[str, Any], where: str) -> str:
    """Return the text of a message's `content`, which is a text or a list of text parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise UserError(f"{where}: expected text contents, found: {preview(given)}")
    for number, part in enumerate(content, 1):
        if part.get("type") != "text" or not isinstance(part.get("text"), str):
            found = part.get("type") if part.get("type") != "text" else part
            raise UserError(
                f"{where}: part {number} of `content` is no text, and only texts are read: {preview(found)}"
            )
    return "".join(part["text"] for part in content)


def _weight(message: Mapping[str, Any], where: str) -> int | None:
    """Return 0 if the loss shall exclude the message, otherwise None."""
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
    """Return a tool call in OpenAI's format, with its arguments as an object. In the input, the outer `function` may be
    missing, and the id may be empty."""
    function = (call.get("function") or call) if isinstance(call, dict) else None
    arguments = parse_json(function.get("arguments")) if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not isinstance(arguments, dict):
        raise UserError(
            f'{where}: a call is {{"function": {{"name": ..., "arguments": {{...}}}}}}, and the arguments are an '
            f"object or its JSON, found: {preview(call)}"
        )
    return {
        "id": id_text(call.get("id")),
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }
