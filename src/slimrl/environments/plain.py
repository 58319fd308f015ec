"""Copies the answers of an environment into plain JSON data of a bounded size: texts, numbers, lists and dictionaries.

Users write environments, so an answer may hold a set, nan, a list that contains itself, or a million pages. Chat
templates and files of rollouts cannot handle such values.
"""

import json
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from slimrl.errors import RolloutError
from slimrl.io.text import MAX_DEPTH, is_too_deep, is_writable
from slimrl.types import Message, Turn, is_message

MAX_SIZE = 8 << 20  # maximum size of an answer: its characters as JSON, plus `PART` for each value
PART = 32
MAX_REWARD = float(2**128 - 2**104)  # the largest number in float32, which the trainer uses


def plain_messages(given: Iterable[object]) -> list[Message]:
    """Copy messages. Raise RolloutError if one is malformed, not JSON, or too large."""
    messages: list[Message] = []
    left = MAX_SIZE
    for message in given:
        if not is_message(message):
            raise RolloutError(
                "environment_error", f"a message needs a role and a text as content, not {message!r:.200}"
            )
        text, size = _as_json(message, left)
        left -= size
        messages.append(json.loads(text))
    if is_too_deep(messages):
        raise RolloutError("environment_error", f"a message is nested more than {MAX_DEPTH} deep")
    if not is_writable(messages):
        raise RolloutError("environment_error", "a text has half of a surrogate pair, which no file can hold")
    return messages


def plain_turn(turn: object) -> Turn:
    """Copy a turn, with its metrics as floats. Raise RolloutError if `turn` is not a Turn, its reward is not finite, or
    a message cannot be copied."""
    if not isinstance(turn, Turn):
        raise RolloutError("environment_error", f"step() must return a Turn, not {type(turn).__name__}")
    for name in turn.metrics:
        if not isinstance(name, str) or not is_writable(name):
            raise RolloutError("environment_error", f"the name of a metric must be a text, not {name!r:.100}")
    metrics = {name: float(value) for name, value in turn.metrics.items()}
    return Turn(bool(turn.done), plain_messages(turn.messages), check_reward(float(turn.reward)), metrics)


def check_reward(reward: float) -> float:
    """Return the reward. Raise RolloutError if it is not finite in float32, the trainer's dtype."""
    if not math.isfinite(reward):
        raise RolloutError("nonfinite_reward", f"the environment gave reward {reward}")
    if abs(reward) > MAX_REWARD:
        raise RolloutError("nonfinite_reward", f"the environment gave reward {reward:g}, which is beyond float32")
    return reward


def _as_json(message: object, limit: int) -> tuple[str, int]:
    """Return a message as JSON, and its size. Raise RolloutError if it is not JSON, or larger than `limit`."""
    parts, size = [], 0
    try:
        # Part by part, because a small list may contain another one many times over.
        for part in ENCODER.iterencode(message):
            parts.append(part)
            size += len(part) + PART
            if size > limit:
                raise RolloutError("environment_error", f"an answer is larger than {MAX_SIZE} bytes")
    except (TypeError, ValueError, RecursionError) as error:
        raise RolloutError("environment_error", f"a message is not JSON: {error}") from error
    return "".join(parts), size


def _plain_number(value: Any) -> int | float:
    """Convert a number of another class, such as a number of numpy. Raise TypeError for any other value."""
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"it holds a {type(value).__name__}")


ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain_number)
