"""The module has the types by which long work reports its progress. It does not depend on terminals."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Bar(Protocol):
    """A progress bar."""

    def advance(self, count: int = 1) -> None:
        """Count parts as done."""


# Called with a description and the total number of parts, 0 if unknown; the bar shows while the context is open.
Progress = Callable[[str, int], AbstractContextManager[Bar]]
