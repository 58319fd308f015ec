"""Says once which share of a step passes while nothing is sampled or trained, as the environment is waited for."""

from collections.abc import Callable, Mapping

STEPS = 3  # that are looked at
LARGE = 0.2  # the share from which it is worth a word


class EnvironmentShare:
    """A sink for runs at `max_async_level = 0`, where environments and training take turns."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._waits_s: list[float] = []
        self._steps_s: list[float] = []

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a step, and say what the first ones come to."""
        if "time/env_wait_s" not in metrics or "time/step_s" not in metrics or len(self._steps_s) == STEPS:
            return
        self._waits_s.append(metrics["time/env_wait_s"])
        self._steps_s.append(metrics["time/step_s"])
        share = sum(self._waits_s) / max(sum(self._steps_s), 1e-9)
        if len(self._steps_s) == STEPS and share >= LARGE:
            self._say(
                f"the environment takes {share:.0%} of a step, in which nothing is sampled or trained: "
                "`--max_async_level 1` trains meanwhile, and `slimrl plan --run DIR` says what that gains"
            )

    def close(self, failed: bool = False) -> None:
        """Nothing is left to do."""
