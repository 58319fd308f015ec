"""reverse-text as an environment whose every step takes a while, as one does that waits for a tool or a judge."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from slimrl.environments.reverse_text import ReverseText, ReverseTextEpisode
from slimrl.types import Split, Task, Taskset, Turn


class SlowReverseText(Taskset):
    """`reverse-text` with `args`; every step takes `delay_s` seconds, in which nothing is computed. With `sigma` this
    is the median of a log-normal distribution, whose long tail grows with `sigma`."""

    def __init__(self, delay_s: float = 2.0, sigma: float = 0.0, **args: Any) -> None:
        self._delay_s, self._sigma, self._inner = delay_s, sigma, ReverseText(**args)
        self._rng = random.Random(0)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._inner.tasks(split)

    def environment(self, task: Task) -> "SlowEpisode":
        return SlowEpisode(task.data["text"], self._delay_s * self._rng.lognormvariate(0.0, self._sigma))


class SlowEpisode(ReverseTextEpisode):
    """An episode that takes its time over a reply."""

    def __init__(self, text: str, delay_s: float) -> None:
        super().__init__(text)
        self._delay_s = delay_s

    async def step(self, reply: str) -> Turn:
        await asyncio.sleep(self._delay_s)
        return await super().step(reply)
