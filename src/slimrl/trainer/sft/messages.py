"""Reads one message of a row of supervised data, in OpenAI's or Hugging Face's format.

A message is refused if it has an unsupported key that would affect the training target. The chat template includes
thoughts and tool calls in the target. A weight of 0 excludes a reply from the loss.
"""

from collections.abc import Mapping
from typing import Any, cast

from slimrl.errors import UserError
from slimrl.io.rows import preview
from slimrl.io.text import parse_json
from slimrl.models.chat.tool_calls import id_text
from slimrl.types import ROLES, Message

KEYS = tuple(Message.__annotations__)
# Unsupported keys that would change the meaning of a conversation, and how to replace them.
CALLS = "Write calls as `tool_calls`, and the functions as `tools` of the row."
TEXT = "Write what the model is to say into `content`, or remove it."
MASKS = "Give whole messages a `weight` of 0 instead."
REFUSED = {
    **dict.fromkeys(("function_call", "functions"), CALLS),
    **dict.fromkeys(("refusal", "audio", "images", "videos", "thinking_blocks", "reasoning_details"), TEXT),
    **dict.fromkeys(("reasoning", "thinking"), "Write thoughts as `reasoning_content`."),
    **dict.fromkeys(("train", "training", "train_on_turn", "loss"), MASKS),
    **dict.fromkeys(("train_detail", "training_detail", "mask", "masked", "loss_mask"), MASKS),
    "tool_name": "Write it as `name`.",
}


def read_message(given: Mapping[str, Any], where: str) -> Message:
    """Return the message in the structure that the chat format expects. Keys with empty values, as in columnar files,
    are ignored. Raises UserError, prefixed with `where`, if the message cannot be used for training."""
    if (role := given.get("role")) not in ROLES:
        found = f"`role` is {preview(role)}" if "role" in given else "it has no `role`"
        raise UserError(f"{where}: expected one of the roles {', '.join(ROLES)}, and {found}.")
    refuse(given, REFUSED, where)
    message = {key: given[key] for key in KEYS if given.get(key) is not None}
    if "tool_call_id" in message:
        message["tool_call_id"] = id_text(message["tool_call_id"])
    thoughts, calls, weight = (message.pop(key, None) for key in ("reasoning_content", "tool_calls", "weight"))
    if thoughts or calls:
        if role != "assistant":
            raise UserError(f"{where}: only an assistant has thoughts and calls, not the {role}.")
        message.setdefault("content", "")
    if thoughts:
        if not isinstance(thoughts, str):
            raise UserError(f"{where}: `reasoning_content` is a text, found: {preview(thoughts)}")
        message["reasoning_content"] = thoughts
    if calls:
        if not isinstance(calls, list):
            raise UserError(f"{where}: `tool_calls` is a list of calls, found: {preview(calls)}")
        message["tool_calls"] = [_call(call, where) for call in calls]
    if not isinstance(message.get("content"), str):
        raise UserError(f"{where}: expected a text as `content`, found: {preview(given)}")
    if weight is not None and not _is_learnt(weight, role, where):
        message["weight"] = 0
    return cast(Message, message)


def is_empty(value: Any) -> bool:
    """Return True for an empty value. In a columnar file, the unused columns of a row have empty values."""
    return value is None or value in ("", [], {})


def refuse(found: Mapping[str, Any], refused: Mapping[str, str], where: str) -> None:
    """Raise UserError if one of the `refused` keys has a value in `found`. `refused` maps keys to remedies."""
    if key := next((key for key in refused if not is_empty(found.get(key))), None):
        raise UserError(f"{where}: `{key}` would be left out, and the model would learn without it. {refused[key]}")


def _is_learnt(weight: Any, role: str, where: str) -> bool:
    """Return False if a message's weight excludes it from the loss."""
    if weight not in (0, 1):
        raise UserError(f"{where}: `weight` is {weight!r}; a message is learnt (1, true) or not (0, false).")
    if weight and role != "assistant":
        raise UserError(f"{where}: `weight` asks to learn a message of the {role}; only replies are.")
    return bool(weight)


def _call(call: Any, where: str) -> dict[str, Any]:
    """Return a tool call in OpenAI's format, with its arguments as an object. In the input, the id may be empty."""
    function = call.get("function") if isinstance(call, dict) else None
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
