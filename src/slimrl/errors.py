"""The two kinds of failure. Knows nothing of what failed.

`UserError` is a mistake that the person at the keyboard can mend: it is printed without a traceback and its text says
what was found, why that cannot work, and the exact key, flag or command to use. `RolloutError` spoils one rollout: it
is recorded on that rollout and counted as `drop/<reason>`, and the run goes on. Anything else is a bug, left alone.
"""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake of the user's; `slimrl` prints the message and exits with status 2."""


class RolloutError(Exception):
    """One rollout failed. `reason` is a slug such as `environment_error`; it becomes the metric `drop/<reason>`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def nearest(unknown: str, known: Iterable[str]) -> str:
    """A phrase for an unknown name: the closest known one, then all of them. Empty when nothing is known.

    >>> nearest("gpro", ["grpo", "rloo"])
    ' Did you mean `grpo`? Known: grpo, rloo.'
    """
    names = sorted(known)
    if not names:
        return ""
    close = difflib.get_close_matches(unknown, names, n=1, cutoff=0.5)
    hint = f" Did you mean `{close[0]}`?" if close else ""
    return f"{hint} Known: {', '.join(names)}."
