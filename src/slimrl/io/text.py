"""What can be said of a text that is not whole yet, or came from outside. Knows nothing of tokens."""

import json
from collections.abc import Sequence
from typing import Any


def partial_mark_length(text: str, marks: Sequence[str]) -> int:
    """How many of the last characters may be the beginning of one of the marks."""
    longest = 0
    for mark in marks:
        start = text.find(mark[0], max(0, len(text) - len(mark) + 1))
        while 0 <= start < len(text) - longest:
            if mark.startswith(text[start:]):
                longest = len(text) - start
            else:
                start = text.find(mark[0], start + 1)
    return longest


def is_writable(value: Any) -> bool:
    """Whether a value read from JSON can be written as text: JSON can spell half of a surrogate pair, which is none."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
