"""Logs a note about a run that mostly waits for its environment. The run continues."""

from collections.abc import Callable, Mapping

SHARE_STEPS = 3  # number of training steps that are measured
LARGE_SHARE = 0.2  # smallest share of a step that is reported


class EnvironmentShare:
    """A sink that measures the share of a step's time in which all episodes wait for their environment. The sink
    reports a large share once in a run. It is used only at `max_async_level = 0`: at higher levels, training continues
    while episodes wait."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._num, self._wait_s, self._step_s = 0, 0.0, 0.0

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the times of a training step. After `SHARE_STEPS` steps, report the share if it is large."""
        if "time/env_wait_s" not in metrics or "time/step_s" not in metrics or self._num == SHARE_STEPS:
            return
        self._num += 1
        self._wait_s += metrics["time/env_wait_s"]
        self._step_s += metrics["time/step_s"]
        share = self._wait_s / max(self._step_s, 1e-9)
        if self._num == SHARE_STEPS and share >= LARGE_SHARE:
            self._note(
                f"the environment takes {share:.0%} of a step, in which nothing is sampled or trained: "
                "`--max_async_level 1` trains meanwhile"
            )

    def close(self, failed: bool = False) -> None:
        """No-op."""
