"""Converts a line of a rollout file to the columns of the index."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from slimrl.io.checksums import has_wrong_digest
from slimrl.io.text import spans_between
from slimrl.types import StopReason

EXCERPT_CHARS = 160  # characters of the last reply, and of the prompt's last message
MOST = 2**63  # whole numbers of this size or larger do not fit the index
CALLS = ("tool", "tool_call", "code")  # tags around calls
Json = dict[str, Any]


def read_line(line: bytes) -> Json:
    """Return the columns of a rollout, see `_columns`. Raises ValueError if the line is not a rollout, or does not
    match its digest."""
    if has_wrong_digest(line):
        raise ValueError("is damaged")
    try:
        return _columns(_parse(line))
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"is no rollout: {type(error).__name__}") from None


def encodable(text: str) -> str:
    """Return the text with a replacement character for each half of a surrogate pair, which UTF-8 cannot encode."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _parse(line: bytes) -> Any:
    try:
        return from_json(line)  # three times as fast as json.loads, and refuses halves of surrogate pairs
    except ValueError:
        return json.loads(encodable(json.dumps(json.loads(line), ensure_ascii=False)))


def _columns(record: Mapping[str, Any]) -> Json:
    """Return the columns of a rollout by name; a missing number is None.

    `draw` numbers the draws of tasks in the run; -1 if unknown. `flat` is True if the rollout has advantages, but its
    group has no training signal. `text` is in lower case, for the search.
    """
    advantages = [value for value in record.get("advantages", ()) if value is not None]
    messages = record["messages"]
    replies = [message for message in messages if message["role"] == "assistant"]
    asked = messages[: messages.index(replies[0])] if replies else messages
    metrics = {name: value for name, value in record.get("metrics", {}).items() if is_number(value)}
    drop = str(record.get("failure", ""))
    mask = bytes(map(bool, record["loss_mask"]))
    version = min((version for version in {*record["versions"]} if version >= 0), default=None)
    return {
        "task": str(record["task_id"]),
        "environment": str(record.get("environment", "")),
        "draw": _whole_number(record.get("draw", -1)),
        "role": str(record.get("role", "")),
        "reward": float(record["reward"]) if is_number(record["reward"]) else None,
        "advantage": sum(advantages) / len(advantages) if advantages else None,
        "flat": bool(advantages) and record.get("has_signal") is False,
        "drop": drop,
        "stop": str(record.get("stop_reason") or (StopReason.FAILED if drop else StopReason.DONE)),
        "turns": (b"\0" + mask).count(b"\0\1"),
        "tokens": mask.count(1),
        "tool_calls": sum(map(_num_calls, replies)),
        "version": None if version is None else _whole_number(version),
        "excerpt": _excerpt(replies),
        "prompt": _excerpt(asked),
        "metrics": json.dumps(metrics),
        "text": str(record.get("text", "")).lower(),
    }


def _excerpt(messages: Sequence[Mapping[str, Any]]) -> str:
    return str(messages[-1]["content"])[:EXCERPT_CHARS] if messages else ""


def _num_calls(message: Mapping[str, Any]) -> int:
    """Return the number of tool calls in a reply, in any of the formats of `tools/`. A call inside another call does
    not count."""
    content = str(message["content"])
    num = end = 0
    if "</" in content:
        for begin, behind in sorted(span for tag in CALLS for span in spans_between(content, f"<{tag}>", f"</{tag}>")):
            if begin >= end:
                num, end = num + 1, behind
    return len(message.get("tool_calls") or ()) or num


def _whole_number(value: Any) -> int:
    """Convert a value to an integer. Raises ValueError if it does not fit the index, OverflowError for infinity."""
    number = int(value)
    if not -MOST <= number < MOST:
        raise ValueError("is too large")
    return number


def is_number(value: Any) -> bool:
    """Return True for a finite number. A file has nan as null, and an infinity as text."""
    return isinstance(value, int | float) and math.isfinite(value)
