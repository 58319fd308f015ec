"""An environment that keeps its process busy."""

import time
from collections.abc import Sequence

from slimrl.types import Message, Split, Task, Turn


class _World:
    """Does what the reply says."""

    async def start(self) -> list[Message]:
        return [{"role": "user", "content": "?"}]

    async def step(self, reply: str) -> Turn:
        if reply == "compute":
            end = time.monotonic() + 1.0
            while time.monotonic() < end:
                pass
        return Turn(True, [], 1.0, {})

    async def close(self) -> None:
        pass


class Computing:
    """Tasks of worlds that compute for a second."""

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}/{number}", {}) for number in range(4)]

    def environment(self, task: Task) -> _World:
        return _World()
