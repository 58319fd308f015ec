"""How long work shows how far it is. Knows nothing of terminals."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Bar(Protocol):
    def advance(self, count: int = 1) -> None: ...


# Shows a bar while something long is done: what is done, and of how many parts it consists, 0 if nobody knows.
Progress = Callable[[str, int], AbstractContextManager[Bar]]
