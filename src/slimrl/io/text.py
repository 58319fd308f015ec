"""Checks and parses texts that are still being streamed, or that other programs sent, and converts texts to numbers."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

MAX_DEPTH = 64  # levels of nested JSON; the reader and the writer of JSON recurse once per level


def hash_number(text: str, num_bytes: int = 6) -> int:
    """Return the first `num_bytes` of the text's SHA-256 digest as a number. It decides draws, such as seeds and
    splits, that must be equal in every run and on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:num_bytes], "big")


def partial_mark_length(text: str, marks: Sequence[str]) -> int:
    """Return the number of characters at the end of the text that may be the start of one of the marks.

    A stream must hold these characters back until more text shows if they belong to a mark.
    """
    longest = 0
    # The earlier a match starts, the longer it is. So try each mark from the left, until a match would be shorter than
    # the longest match so far.
    for mark in marks:
        start = text.find(mark[0], max(0, len(text) - len(mark) + 1))
        while 0 <= start < len(text) - longest:
            if mark.startswith(text[start:]):
                longest = len(text) - start
            else:
                start = text.find(mark[0], start + 1)
    return longest


def spans_between(text: str, opening: str, closing: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each text between the two marks, from left to right. Opening marks inside are ignored.

    The time is linear, unlike with a regular expression such as `<a>(.*?)</a>`, which reads the rest of the text for
    each `<a>`.

    >>> [*spans_between("<a>x<a>y</a> <a>z</a> <a>", "<a>", "</a>")]
    [(3, 8), (16, 17)]
    """
    end = 0
    while (begin := text.find(opening, end)) >= 0:
        begin += len(opening)
        if (end := text.find(closing, begin)) < 0:
            return
        yield begin, end
        end += len(closing)


def parse_json(value: Any) -> Any:
    """Parse a JSON text; return None if it is malformed or nested too deep. Return any other value unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None


def is_writable(value: Any) -> bool:
    """Return True if a value from JSON can be encoded as UTF-8. A lone surrogate, which JSON allows, cannot."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def is_too_deep(value: Any) -> bool:
    """Return True if a value from JSON nests more than `MAX_DEPTH` objects and lists."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        children = chain.from_iterable(item.values() if isinstance(item, dict) else item for item in level)
        level = [child for child in children if isinstance(child, (dict, list))]
    return bool(level)
