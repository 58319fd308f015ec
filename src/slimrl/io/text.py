"""Checks of text that is still being streamed, or that came from outside. Knows nothing of tokens."""

import json
from collections.abc import Sequence
from typing import Any


def partial_mark_length(text: str, marks: Sequence[str]) -> int:
    """The number of characters at the end of the text that may be the beginning of one of the marks.

    A stream must keep these back until more text shows whether the mark is complete.
    """
    longest = 0
    # A match that starts earlier is longer, so each mark is tried from the left, up to where it could no longer win.
    for mark in marks:
        start = text.find(mark[0], max(0, len(text) - len(mark) + 1))
        while 0 <= start < len(text) - longest:
            if mark.startswith(text[start:]):
                longest = len(text) - start
            else:
                start = text.find(mark[0], start + 1)
    return longest


def is_writable(value: Any) -> bool:
    """Whether a value from JSON can be encoded as UTF-8. JSON can spell a lone surrogate, which cannot."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
