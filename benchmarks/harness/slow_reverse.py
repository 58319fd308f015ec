"""reverse-text as an environment whose every step takes a while, as one does that waits for a tool or a judge."""

import asyncio
from collections.abc import Sequence
from typing import Any

from slimrl.environments.reverse_text import ReverseText, ReverseTextEpisode
from slimrl.types import Split, Task, Turn


class SlowReverseText:
    """`reverse-text` with `args`; every step takes `delay_s` seconds, in which nothing is computed."""

    def __init__(self, delay_s: float = 2.0, **args: Any) -> None:
        self._delay_s, self._inner = delay_s, ReverseText(**args)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._inner.tasks(split)

    def environment(self, task: Task) -> "SlowEpisode":
        return SlowEpisode(task.data["text"], self._delay_s)


class SlowEpisode(ReverseTextEpisode):
    """An episode that takes its time over a reply."""

    def __init__(self, text: str, delay_s: float) -> None:
        super().__init__(text)
        self._delay_s = delay_s

    async def step(self, reply: str) -> Turn:
        await asyncio.sleep(self._delay_s)
        return await super().step(reply)
