"""The two kinds of failure that slimrl expects. Any other exception is a bug and is not caught.

A `UserError` is a mistake that the user can correct. It is printed without a traceback, and its text names the problem,
the reason, and the key, flag or command to use. A `RolloutError` makes one rollout fail. The error is recorded in the
rollout and counted as `drop/<reason>`, and the run continues.
"""

import difflib
import importlib
import unicodedata
from collections.abc import Iterable
from typing import Any

MAX_SHOWN_CHARS = 20_000
MARK_CHARS = 50  # room for the mark of a shortened text, so that a second call does not shorten it again
MAX_DETAIL_CHARS = 2_000  # limit of a text from an environment or a server


class UserError(Exception):
    """A mistake of the user; `slimrl` prints the message and exits with status 2."""


class RolloutError(Exception):
    """The failure of one rollout. `reason` is a slug such as `environment_error`, logged as `drop/<reason>`; `detail`
    is a text for people, from an environment or a server."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = visible(detail, MAX_DETAIL_CHARS)
        super().__init__(f"{reason}: {self.detail}")


def install_hint(extra: str) -> str:
    """Return the commands that install an extra, with pip and in a checkout."""
    return f"`pip install 'slimrl[{extra}]'`, or in a checkout `uv sync --inexact --extra {extra}`"


def require(module: str, extra: str, purpose: str) -> Any:
    """Import and return a module that the pip extra `extra` installs. If the package is missing, raises UserError with
    `purpose` and the command to install it. Other errors of the import are not converted."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(f"{purpose} needs the extra [{extra}] ({error}): {install_hint(extra)}.") from error


def nearest(unknown: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return a hint for an unknown name: the most similar known name, then all known names. Return an empty text if no
    name is known. Names less similar than `cutoff`, from 0 to 1, are not suggested.

    >>> nearest("gpro", ["grpo", "rloo"])
    ' Did you mean `grpo`? Known: grpo, rloo.'
    """
    names = sorted(known)
    if not names:
        return ""
    close = difflib.get_close_matches(unknown, names, n=1, cutoff=cutoff)
    hint = f" Did you mean `{close[0]}`?" if close else ""
    return f"{hint} Known: {', '.join(names)}."


def visible(text: str, limit: int = MAX_SHOWN_CHARS) -> str:
    """Make a text safe for a terminal: keep at most `limit` characters, and escape unprintable characters.

    Otherwise a text from other code could repaint the screen, write to the clipboard, or reverse the order of letters.

    >>> visible("a\\x1b[2Jb\\u202e"), visible("a\\tb\\r\\nc"), visible("a" * 60, limit=52)
    ('a\\\\x1b[2Jb\\\\u202e', 'a\\tb\\nc', 'aa … (58 more characters)')
    """
    left = len(text) - max(0, limit - MARK_CHARS) if len(text) > limit else 0
    text = text[: len(text) - left].replace("\r\n", "\n")
    if not text.isprintable():
        text = "".join(char if _is_shown(char) else char.encode("unicode_escape").decode() for char in text)
    return f"{text} … ({left:,} more characters)" if left else text


def _is_shown(char: str) -> bool:
    # Python calls line breaks, tabs and the spaces of other scripts unprintable, but they do no harm.
    return char.isprintable() or char in "\n\t" or unicodedata.category(char) == "Zs"


def first_line(error: BaseException) -> str:
    """Return the first line of an error, or its class name if it has no text."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def describe(error: BaseException) -> str:
    """Describe an error of a user's code, with the remedy if a package is missing."""
    try:
        text = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as another:  # `str` runs the user's code
        text = f"(its text cannot be made: {type(another).__name__})"
    said = visible(f"{type(error).__name__}: {text}", MAX_DETAIL_CHARS // 2)  # leave room for the place of the error
    if not isinstance(error, ModuleNotFoundError):
        return said
    return (
        f"{said}. Give every command the package that has it, as in `uv run --with PACKAGE slimrl rl ...`, or install "
        "it into this Python: `uv pip install PACKAGE`, `pip install PACKAGE`"
    )
