"""The two kinds of failure that slimrl expects. Any other exception is a bug and is not caught.

A `UserError` is a mistake that the user can correct. It is printed without a traceback, and its text says what was
found, why that cannot work, and the key, flag or command to use. A `RolloutError` spoils one rollout: it is recorded on
that rollout and counted as `drop/<reason>`, and the run goes on.
"""

import difflib
import re
from collections.abc import Iterable

LONGEST = 2000  # characters of what others' code says: more helps nobody who reads it
# What a terminal takes for a command, and what turns the order of letters round. Tabs and ends of lines stay.
COMMANDS = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


class UserError(Exception):
    """A mistake of the user; `slimrl` prints the message and exits with status 2."""


class RolloutError(Exception):
    """The failure of one rollout. `reason` is a slug such as `environment_error`, logged as `drop/<reason>`; `detail`
    is for people to read, whatever an environment has put into it."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = readable(detail)
        super().__init__(f"{reason}: {self.detail}")


def install_hint(extra: str) -> str:
    """The commands that install an extra, for an installation by pip and for a checkout."""
    return f"`pip install 'slimrl[{extra}]'`, or in a checkout `uv sync --inexact --extra {extra}`"


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


def readable(text: str, longest: int = LONGEST) -> str:
    """The text with control characters spelled out and cut to a length that can be shown.

    >>> readable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    cut = text if len(text) <= longest else f"{text[:longest]} [... {len(text)} characters]"
    return COMMANDS.sub(lambda found: found[0].encode("unicode_escape").decode(), cut)


def describe(error: BaseException) -> str:
    """An error of a user's code in words, with what to do where a package is missing."""
    try:
        text = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as another:  # it is the user's code that makes the text
        text = f"(its text cannot be made: {type(another).__name__})"
    said = readable(f"{type(error).__name__}: {text}", LONGEST // 2)
    if not isinstance(error, ModuleNotFoundError):
        return said
    return (
        f"{said}. Give every command the package that has it, as in `uv run --with PACKAGE slimrl rl ...`, or install "
        "it into this Python: `uv pip install PACKAGE`, `pip install PACKAGE`"
    )
