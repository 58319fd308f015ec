"""The section `[deployment]`: which processes a run is made of, and how they meet."""

from typing import Literal

from pydantic import Field

from slimrl.config.base import Config


class DeploymentConfig(Config):
    """Where the parts of a run are: all in one process, or sampler, orchestrator and trainer as processes of their own.

    `slimrl rl` starts and watches them; `slimrl inference`, `slimrl orchestrator` and `slimrl trainer` start each by
    hand, with the same file.
    """

    first = ("type",)

    type: Literal["auto", "one-process", "processes"] = "auto"
    """`one-process` samples and trains in turn; `processes` does both at once, which needs the extra `server`. `auto`
    takes processes where there are several GPUs, or where something else samples (`inference.backend`, `base_url`),
    else one process."""

    num_trainers: int = Field(default=1, ge=1)
    """Processes that share each training step, each with its shard of parameters and optimizer (FSDP2), started by
    torchrun. On GPUs it is one for each of `trainer_gpu_ids`, whatever this says."""

    weights: Literal["files", "broadcast"] = "files"
    """How new weights reach a sampler that is a process of its own: by a directory that it reads, or from the trainer's
    memory by a collective broadcast (NCCL between GPUs, gloo between CPUs), which needs GPUs of its own for each. A
    sampler that dies is not started again with `broadcast`: continue with `--resume`."""

    timeout_s: float = Field(default=1800.0, gt=0)
    """Longest that one part waits for another which shows no sign of work, in seconds: then the run ends, and says who
    waited for whom. A single step that takes longer needs more; a long warm-up or evaluation does not."""

    sampler_restarts: int = Field(default=3, ge=0)
    """How many times `slimrl rl` starts a sampler again that has died. It is given the newest weights, and what it had
    begun is sampled anew."""
