"""The two kinds of failure that slimrl expects. Any other exception is a bug and is not caught.

A `UserError` is a mistake that the user can correct. It is printed without a traceback, and its text says what was
found, why that cannot work, and the key, flag or command to use. A `RolloutError` spoils one rollout: it is recorded on
that rollout and counted as `drop/<reason>`, and the run goes on.
"""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake of the user; `slimrl` prints the message and exits with status 2."""


class RolloutError(Exception):
    """The failure of one rollout. `reason` is a slug such as `environment_error`, logged as `drop/<reason>`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


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


def describe(error: BaseException) -> str:
    """An error of a user's code in words, with what to do where a package is missing."""
    said = f"{type(error).__name__}: {error}"
    if not isinstance(error, ModuleNotFoundError):
        return said
    return (
        f"{said}. Give every command the package that has it, as in `uv run --with PACKAGE slimrl rl ...`, or install "
        "it into this Python: `uv pip install PACKAGE`, `pip install PACKAGE`"
    )
