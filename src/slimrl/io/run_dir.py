"""Defines the paths of a run's files, without opening or creating them.

This is the directory of a run. The directory of an evaluation has only the files marked `e`:

    config.toml  .lock  run_id              e  the settings, the lock, and the id of the run
    metrics.jsonl  monitors.jsonl              a line for each step, and a line for each alarm
    plan.json  summary.json                    the prediction of time and memory, and the closing table
    eval.toml                                  settings for evaluating the weights again
    results.json  report.md  failures.md    e  the results, the report, and the failed episodes
    rollouts/step_000010.jsonl, .tokens.npz    a step's rollouts, and the trainer's values for their tokens
    held_out/start.json, start_greedy.jsonl e  a stage's result, and its episodes with one decoding mode
    checkpoints/step_10/  weights/step_10/     the state to resume from, and the Hugging Face weights
    warmup/                                    the directory of the warm-up, with the same layout
    logs/                                      the logs of a run in several processes
    transport/batches/step_9.json              the batch of a step, for the trainer
    transport/weights/step_10/                 the weights of a version, for samplers
"""

import re
from pathlib import Path

STEP = re.compile(r"step_\d{1,18}", re.ASCII)
ROLLOUTS = re.compile(r"step_(\d{6,18})(\.jsonl|\.tokens\.npz)", re.ASCII)


class RunDir:
    """The directory of a run.

    >>> RunDir(Path("outputs/a")).warmup.weights_of(3).as_posix()
    'outputs/a/warmup/weights/step_3'
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings, self.lock = path / "config.toml", path / ".lock"
        self.metrics, self.alarms = path / "metrics.jsonl", path / "monitors.jsonl"
        self.prediction, self.summary = path / "plan.json", path / "summary.json"
        self.results, self.held_out = path / "results.json", path / "held_out"
        self.checkpoints, self.weights = path / "checkpoints", path / "weights"
        self.rollouts = path / "rollouts"
        self.logs, self.transport = path / "logs", path / "transport"
        self.batches, self.sent_weights = self.transport / "batches", self.transport / "weights"

    @property
    def warmup(self) -> "RunDir":
        """The directory of the warm-up, which trained on demonstrations before RL."""
        return RunDir(self.path / "warmup")

    def stage(self, slug: str) -> Path:
        """Return the path of the result of the evaluation `slug`, such as `start` or `step_10`."""
        return self.held_out / f"{slug}.json"

    def episodes(self, slug: str, mode: str) -> Path:
        """Return the path of the episodes of the evaluation `slug` in the decoding mode `mode`, such as `greedy`."""
        return self.held_out / f"{slug}_{mode}.jsonl"

    def checkpoint_of(self, step: int) -> Path:
        """Return the path of the checkpoint after `step` steps."""
        return self.checkpoints / f"step_{step}"

    def weights_of(self, step: int) -> Path:
        """Return the path of the weights after `step` steps, in Hugging Face format."""
        return self.weights / f"step_{step}"

    def batch_of(self, step: int) -> Path:
        """Return the path of the batch of a step, for a trainer in another process."""
        return self.batches / f"step_{step}.json"

    def sent_weights_of(self, version: int) -> Path:
        """Return the path of the weights of a version, for samplers in other processes."""
        return self.sent_weights / f"step_{version}"

    def rollouts_of(self, step: int) -> Path:
        """Return the path of the rollouts of a 0-based step."""
        return self.rollouts / f"step_{step:06d}.jsonl"

    def tokens_of(self, step: int) -> Path:
        """Return the path of the trainer's values for each token of a step's rollouts (`trainer/token_log.py`)."""
        return self.rollouts / f"step_{step:06d}.tokens.npz"

    def rollout_files(self) -> dict[int, list[Path]]:
        """Return a dict from each step to its files, oldest step first: the rollouts, then the trainer's values. Files
        with other names, such as a user's copies, are left out."""
        files: dict[int, list[Path]] = {}
        for path in sorted(self.rollouts.glob("step_*")):
            if named := ROLLOUTS.fullmatch(path.name):
                files.setdefault(int(named[1]), []).append(path)
        return dict(sorted(files.items()))


def step_directories(parent: Path) -> list[Path]:
    """Return the finished `step_N` directories of checkpoints or weights in `parent`, oldest first."""
    found = [path for path in parent.glob("step_*") if STEP.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=step_of)


def step_of(directory: Path) -> int:
    """Return the number of training steps in the name of a directory `step_N`."""
    return int(directory.name.removeprefix("step_"))
