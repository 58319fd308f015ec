"""The two kinds of failure that slimrl expects. Any other exception is a bug and is not caught.

A `UserError` is a mistake that the user can correct. It is printed without a traceback, and its text says what was
found, why that cannot work, and the key, flag or command to use. A `RolloutError` spoils one rollout: it is recorded on
that rollout and counted as `drop/<reason>`, and the run goes on.
"""

import difflib
import importlib
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

MAX_SHOWN_CHARS = 20_000
CUT, MAX_CUT_CHARS = re.compile(r" … \((\d[\d,]{,14}) more characters\)\Z", re.ASCII), 50
MAX_DETAIL_CHARS = 2_000  # of what others' code says: more helps nobody who reads it


class UserError(Exception):
    """A mistake of the user; `slimrl` prints the message and exits with status 2."""


class RolloutError(Exception):
    """The failure of one rollout. `reason` is a slug such as `environment_error`, logged as `drop/<reason>`; `detail`
    is for people to read, whatever an environment or a server has put into it."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = visible(detail, MAX_DETAIL_CHARS)
        super().__init__(f"{reason}: {self.detail}")


def install_hint(extra: str) -> str:
    """The commands that install an extra, for an installation by pip and for a checkout."""
    return f"`pip install 'slimrl[{extra}]'`, or in a checkout `uv sync --inexact --extra {extra}`"


def require(module: str, extra: str, purpose: str) -> Any:
    """The module of a package that an extra installs. Raises UserError that says what it is for, and how to install it,
    if it is missing; what else its import raises is left to the caller."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(f"{purpose} needs the extra [{extra}] ({error}): {install_hint(extra)}.") from error


def nearest(unknown: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """A hint for an unknown name: the most similar known one, then all of them. Empty when no name is known.
    Names less similar than `cutoff`, from 0 to 1, are not suggested.

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
    """The text as it may be shown on a terminal: at most `limit` characters, and escapes for those that do not print.

    Texts of others would otherwise repaint the screen, write to the clipboard, or read in another order than they are.
    What an earlier cut has left out is counted.

    >>> visible("a\\x1b[2Jb\\u202e"), visible("a\\tb\\r\\nc"), visible("abcd", limit=2)
    ('a\\\\x1b[2Jb\\\\u202e', 'a\\tb\\nc', 'ab … (2 more characters)')
    """
    if cut := CUT.search(text[-MAX_CUT_CHARS:]):
        text = text.removesuffix(cut[0])
    left = max(0, len(text) - limit) + (int(cut[1].replace(",", "")) if cut else 0)
    text = text[:limit].replace("\r\n", "\n")
    if not text.isprintable():
        text = "".join(char if _is_shown(char) else char.encode("unicode_escape").decode() for char in text)
    return f"{text} … ({left:,} more characters)" if left > 0 else text


def _is_shown(char: str) -> bool:
    # Of what Python calls not printable, line breaks, tabs, and the spaces of other scripts do no harm.
    return char.isprintable() or char in "\n\t" or unicodedata.category(char) == "Zs"


def first_line(error: BaseException) -> str:
    """The first line of an error; its kind, if it has no text."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def describe(error: BaseException) -> str:
    """An error of a user's code in words, with what to do where a package is missing."""
    try:
        text = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as another:  # it is the user's code that makes the text
        text = f"(its text cannot be made: {type(another).__name__})"
    said = visible(f"{type(error).__name__}: {text}", MAX_DETAIL_CHARS // 2)  # room for where it was raised
    if not isinstance(error, ModuleNotFoundError):
        return said
    return (
        f"{said}. Give every command the package that has it, as in `uv run --with PACKAGE slimrl rl ...`, or install "
        "it into this Python: `uv pip install PACKAGE`, `pip install PACKAGE`"
    )
