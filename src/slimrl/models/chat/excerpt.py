"""Shortens a text to a number of tokens. The text is cut after a sentence, and a note counts the missing characters.

Knows nothing of tokenizers: the caller passes the function that counts a text's tokens.
"""

import re
from collections.abc import Callable

# Matches the end of a sentence (in several scripts), of a line, or of an entry in a list of rows.
BREAK = re.compile(r"[.!?\u061f\u06d4\u0964][\"')\]]*\s|[\u3002\uff01\uff1f][\u300d\u300f\u201d]*|\n|\}, ")
FIRST_GUESS = 4  # characters per token


def shorten(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the text if it fits `max_tokens` tokens. Otherwise, cut the text so that it fits, and add a note. The
    note's tokens are not counted.

    >>> shorten("One two three. Four five six.", 4, lambda text: len(text.split()))
    'One two three.\\n[14 more characters were left out]'
    """
    fitting = _longest_fit(text, max_tokens, count)
    if fitting == len(text):
        return text
    # Cut after the last sentence that fits, unless this would drop more than half of the fitting text.
    ends = [match.end() for match in BREAK.finditer(text, 0, fitting)]
    end = ends[-1] if ends and ends[-1] > fitting // 2 else fitting
    return f"{text[:end].rstrip()}\n[{len(text) - end} more characters were left out]"


def _longest_fit(text: str, max_tokens: int, count: Callable[[str], int]) -> int:
    """Return the number of leading characters that fit `max_tokens` tokens.

    Double the length of the prefix until it is too long, then bisect. So a long text is never tokenized as a whole: a
    page may have millions of characters.
    """
    fits, too_long = 0, FIRST_GUESS * max_tokens
    while count(text[:too_long]) <= max_tokens:
        if too_long >= len(text):
            return len(text)
        fits, too_long = too_long, 2 * too_long
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if count(text[:middle]) <= max_tokens:
            fits = middle
        else:
            too_long = middle
    return fits
