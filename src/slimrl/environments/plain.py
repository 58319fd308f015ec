"""Copies the answers of an environment into plain JSON data of a bounded size: texts, numbers, lists and dictionaries.

Users write environments, so an answer may hold a set, nan, a list that contains itself, or a million pages. Chat
templates and files of rollouts cannot handle such values.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral, Real
from typing import Any, cast

from slimrl.errors import RolloutError
from slimrl.io.text import MAX_DEPTH, is_writable
from slimrl.types import Message, Turn, is_message

MAX_SIZE = 8 << 20  # maximum size of an answer: its characters, plus `VALUE` bytes for each value
VALUE = 64
MAX_INTEGER = 2**63
MAX_REWARD = float(2**128 - 2**104)  # the largest number in float32, which the trainer uses


def plain_messages(given: Iterable[object]) -> list[Message]:
    """Copy messages. Raise RolloutError if one is malformed, not JSON, or too large."""
    return list(_messages(given, _Copier()))


def plain_turn(turn: object) -> Turn:
    """Copy a turn, with its metrics as floats. Raise RolloutError if `turn` is not a Turn, its reward is not finite, or
    a message cannot be copied."""
    if not isinstance(turn, Turn):
        raise RolloutError("environment_error", f"step() must return a Turn, not {type(turn).__name__}")
    copier = _Copier()
    messages = list(_messages(turn.messages, copier))
    metrics = {copier.key(name): float(value) for name, value in turn.metrics.items()}
    return Turn(bool(turn.done), messages, check_reward(float(turn.reward)), metrics)


def check_reward(reward: float) -> float:
    """Return the reward. Raise RolloutError if it is not finite in float32, the trainer's dtype."""
    if not math.isfinite(reward):
        raise RolloutError("nonfinite_reward", f"the environment gave reward {reward}")
    if abs(reward) > MAX_REWARD:
        raise RolloutError("nonfinite_reward", f"the environment gave reward {reward:g}, which is beyond float32")
    return reward


def _messages(given: Iterable[object], copier: "_Copier") -> Iterator[Message]:
    for message in given:
        if not is_message(message):
            raise RolloutError(
                "environment_error", f"a message needs a role and a text as content, not {message!r:.200}"
            )
        yield cast(Message, copier.copy(message, MAX_DEPTH))


class _Copier:
    """Copies the values of one answer and counts their size. A value that occurs several times counts each time."""

    def __init__(self) -> None:
        self._left = MAX_SIZE

    def copy(self, value: object, depth: int) -> Any:
        """Return a copy that has only JSON types. Raise RolloutError if it is nested deeper than `depth`."""
        if depth == 0:
            raise RolloutError("environment_error", f"a message contains itself, or is nested {MAX_DEPTH} deep")
        self._count(VALUE)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, (Integral, Real)):
            return _number(value)
        if isinstance(value, Mapping):
            return {self.key(key): self.copy(item, depth - 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.copy(item, depth - 1) for item in value]
        raise RolloutError("environment_error", f"a message holds a {type(value).__name__}, which is no JSON")

    def key(self, key: object) -> str:
        """Copy a key: the key of a message or the name of a metric. Raise RolloutError if the key is not a text."""
        self._count(VALUE)
        if not isinstance(key, str):
            raise RolloutError("environment_error", f"a message or metric has the key {key!r:.100}, which is no text")
        return self._text(key)

    def _text(self, text: str) -> str:
        self._count(len(text))
        if not is_writable(text):
            raise RolloutError("environment_error", "a text has half of a surrogate pair, which no file can hold")
        return str.__str__(text)  # a plain `str`, even if the environment returns a subclass

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise RolloutError("environment_error", f"an answer is larger than {MAX_SIZE} bytes")


def _number(value: Integral | Real) -> int | float:
    """Convert a number of any class, such as a number of numpy, to an integer or float."""
    if isinstance(value, Integral):
        whole = int(value)
        if abs(whole) >= MAX_INTEGER:
            raise RolloutError("environment_error", "a message holds an integer of more than 64 bits")
        return whole
    number = float(value)
    if not math.isfinite(number):
        raise RolloutError("environment_error", f"a message holds {number}, which is no JSON")
    return number
