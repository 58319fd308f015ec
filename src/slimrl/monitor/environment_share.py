"""Notes, once in a run, the share of a step in which all episodes wait for their environment."""

from collections.abc import Callable, Mapping

STEPS = 3  # number of measured steps
LARGE = 0.2  # the smallest share that is noted


class EnvironmentShare:
    """A sink for runs at `max_async_level = 0`, where environments and training take turns."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._num, self._wait_s, self._step_s = 0, 0.0, 0.0

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a step. After the first `STEPS` steps, note a large share."""
        if "time/env_wait_s" not in metrics or "time/step_s" not in metrics or self._num == STEPS:
            return
        self._num += 1
        self._wait_s += metrics["time/env_wait_s"]
        self._step_s += metrics["time/step_s"]
        share = self._wait_s / max(self._step_s, 1e-9)
        if self._num == STEPS and share >= LARGE:
            self._note(
                f"the environment takes {share:.0%} of a step, in which nothing is sampled or trained: "
                "`--max_async_level 1` trains meanwhile (`slimrl plan --run DIR` predicts the gain)"
            )

    def close(self, failed: bool = False) -> None:
        """No-op."""
