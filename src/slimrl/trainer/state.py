"""What a training run consists of at any moment, and how it is put on disk and taken up again. Shared by RL and SFT."""

import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from slimrl.config.run import CkptConfig
from slimrl.config.train import OptimConfig
from slimrl.models.load import Policy, save_policy
from slimrl.trainer.aux_losses import AuxLoss
from slimrl.trainer.checkpoint import (
    Progress,
    fresh_progress,
    load_checkpoint,
    prune,
    save_checkpoint,
    saving,
    step_directories,
)
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.parallel import ALONE, Ranks

NO_MEANS: Mapping[str, float] = {}


@dataclass(slots=True)
class TrainState:
    """All that a checkpoint holds: the policy, its optimizer, and how far the run is; and what stands beside its loss,
    whose trained parts the optimizer has. `ranks` are the processes that all hold the same."""

    policy: Policy
    optimizer: MasterAdamW
    progress: Progress
    aux_losses: Sequence[AuxLoss] = ()
    ranks: Ranks = ALONE

    def advance(self, data_position: int, seconds: float, role_means: Mapping[str, float] = NO_MEANS) -> None:
        """One more step is done."""
        self.progress = replace(
            self.progress,
            step=self.progress.step + 1,
            data_position=data_position,
            role_means=dict(role_means),
        )
        self.spend(seconds)

    def spend(self, seconds: float) -> None:
        """Time of the run, in a step or beside it."""
        self.progress = replace(self.progress, seconds=self.progress.seconds + seconds)


def start(
    policy: Policy,
    optim: OptimConfig,
    output_dir: Path,
    resume: bool,
    aux_losses: Sequence[AuxLoss] = (),
    ranks: Ranks = ALONE,
) -> TrainState:
    """A fresh state, or with `resume` the newest checkpoint's if there is one."""
    heads = {name: head for aux_loss in aux_losses for name, head in aux_loss.heads.items()}
    optimizer = MasterAdamW(policy.module, optim, heads, ranks)
    progress = fresh_progress(policy.dtype)
    if resume:
        progress = load_checkpoint(output_dir, optimizer) or progress
    return TrainState(policy, optimizer, progress, aux_losses, ranks)


def save_if_due(state: TrainState, output_dir: Path, max_steps: int, ckpt: CkptConfig) -> None:
    """At the interval and after the last step: a checkpoint to resume from, and the weights for everyone else. Of
    several processes, which hold the same, one saves."""
    step = state.progress.step
    if not state.ranks.leads:
        return
    if step == max_steps or (ckpt.interval_steps > 0 and step % ckpt.interval_steps == 0):
        weights = weights_directory(output_dir, step)
        with saving(weights):
            save_policy(state.policy, weights)
        save_checkpoint(output_dir, state.optimizer, state.progress, ckpt.keep)
        prune(step_directories(output_dir / "weights"), ckpt.keep)


def weights_directory(output_dir: Path, step: int) -> Path:
    """Where the weights after `step` steps are, in Hugging Face format."""
    return output_dir / "weights" / f"step_{step}"


def peak_memory_gb(device: torch.device) -> float:
    """Most memory used so far: by the process, or on a GPU by its tensors."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
