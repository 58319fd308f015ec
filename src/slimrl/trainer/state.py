"""Holds, saves and restores the state of a training run. RL and SFT share this module.

Saved weights are in `weights/step_N`. The symbolic links `weights/latest` and `weights/best` point to two of these
directories.
"""

import contextlib
import math
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from slimrl.config.run import CkptConfig
from slimrl.config.train import OptimConfig
from slimrl.io.run_dir import RunDir, step_directories, step_of
from slimrl.models.allocator import HeapTrimmer
from slimrl.models.load import Policy, save_policy
from slimrl.trainer.aux_losses import AuxLoss
from slimrl.trainer.checkpoint import (
    Progress,
    fresh_progress,
    load_checkpoint,
    prune,
    report_write_errors,
    save_checkpoint,
)
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.parallel import ALONE, Ranks
from slimrl.trainer.records import run_id

LATEST, BEST = "latest", "best"


@dataclass(slots=True)
class TrainState:
    """The state of a training run: policy, optimizer, progress and auxiliary losses. The optimizer also trains the
    modules of the auxiliary losses. `ranks` are the processes that share the state. `history` lists all training stages
    of these weights, such as "sft", including the current stage."""

    policy: Policy
    optimizer: MasterAdamW
    progress: Progress
    aux_losses: Sequence[AuxLoss] = ()
    ranks: Ranks = ALONE
    heap_trimmer: HeapTrimmer = field(default_factory=HeapTrimmer)
    history: Sequence[str] = ()

    def advance(self, seconds: float, orchestrator_state: Mapping[str, Any] | None = None) -> None:
        """Increase the number of finished steps by one, add `seconds` to the run's total time, and return unused memory
        to the system."""
        self.progress = replace(
            self.progress,
            step=self.progress.step + 1,
            orchestrator_state=dict(orchestrator_state or {}),
        )
        self.spend(seconds)
        self.heap_trimmer.trim()

    def spend(self, seconds: float) -> None:
        """Add `seconds` to the run's total time."""
        self.progress = replace(self.progress, seconds=self.progress.seconds + seconds)


def start(
    policy: Policy,
    optim: OptimConfig,
    output_dir: Path,
    resume: bool,
    aux_losses: Sequence[AuxLoss] = (),
    ranks: Ranks = ALONE,
) -> TrainState:
    """Return the state of a new run. With `resume`, return the state of the newest checkpoint if there is one."""
    heads = {name: head for aux_loss in aux_losses for name, head in aux_loss.heads.items()}
    optimizer = MasterAdamW(policy.module, optim, heads, ranks)
    progress = fresh_progress(policy.dtype, policy.chat.date)
    if resume:
        progress = load_checkpoint(output_dir, optimizer) or progress
    return TrainState(policy, optimizer, progress, aux_losses, ranks)


def save_if_due(state: TrainState, output_dir: Path, max_steps: int, ckpt: CkptConfig) -> None:
    """Save the weights and a checkpoint every `ckpt.interval_steps` steps and after the last step. All processes that
    share the state must call this."""
    step = state.progress.step
    if step == max_steps or (ckpt.interval_steps > 0 and step % ckpt.interval_steps == 0):
        # Save weights first: a checkpoint marks its step as finished, and its weights must exist by then.
        _save_weights(state, output_dir)
        save_checkpoint(output_dir, state.optimizer, state.progress, ckpt.keep, state.ranks)
        if state.ranks.leads:
            keep_newest(output_dir, ckpt.keep)


def save_missing_weights(state: TrainState, output_dir: Path) -> None:
    """Save the weights of the step at which a run resumes, if they are missing (`trainer/recovery.py`)."""
    step = state.progress.step
    # Only the leading process checks, so that all processes make the same decision.
    if state.ranks.of_first(step > 0 and not RunDir(output_dir).weights_of(step).exists()):
        _save_weights(state, output_dir)


def _save_weights(state: TrainState, output_dir: Path) -> None:
    weights = RunDir(output_dir).weights_of(state.progress.step)
    with state.ranks.united(), report_write_errors(weights):
        run = run_id(output_dir) if state.ranks.leads else ""
        save_policy(state.policy, weights, state.history, state.ranks.leads, run)


def keep_newest(output_dir: Path, keep: int) -> None:
    """Link `latest` to the newest weights, and delete all weights except the newest `keep` and `best`."""
    directory = RunDir(output_dir).weights
    found = step_directories(directory)
    if not found:
        return
    _link(directory / LATEST, found[-1])
    best = directory / BEST
    prune([old for old in found[:-keep] if not (best.exists() and best.samefile(old))])


def name_best(output_dir: Path, scores: Mapping[int, float]) -> None:
    """Link `best` to the saved weights with the highest score. If several steps have this score, use the latest step. A
    score of nan counts as missing. Without any score, do nothing."""
    known = {step for step, score in scores.items() if not math.isnan(score)}
    directory = RunDir(output_dir).weights
    measured = [path for path in step_directories(directory) if step_of(path) in known]
    if measured:
        _link(directory / BEST, max(measured, key=lambda path: (scores[step_of(path)], step_of(path))))


def _link(name: Path, target: Path) -> None:
    """Set the symbolic link `name` atomically to a directory beside it. Does nothing if links are not supported."""
    partial = name.with_name(f".partial_{name.name}")
    with contextlib.suppress(OSError):
        partial.unlink(missing_ok=True)
        partial.symlink_to(target.name, target_is_directory=True)
        os.replace(partial, name)


def peak_memory_gb(device: torch.device) -> float:
    """Return the peak memory so far, in GB: on a GPU the memory of its tensors, otherwise the memory of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
