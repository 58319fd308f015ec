"""The section `[deployment]`: which processes a run is made of, on which machines, and how they meet."""

from typing import Literal

from pydantic import Field

from slimrl.config.base import Config

Part = Literal["trainer", "orchestrator", "inference", "worker"]  # of a run, by the name of its command


class DeploymentConfig(Config):
    """Where the parts of a run are: all in one process, as processes of one machine, or on the nodes of a Ray cluster.

    `slimrl rl` starts and watches them; `slimrl inference`, `slimrl orchestrator` and `slimrl trainer` start each by
    hand, with the same file.
    """

    first = ("type",)

    type: Literal["auto", "one-process", "processes", "ray"] = "auto"
    """`one-process` samples and trains in turn; `processes` does both at once, which needs the extra `server`; `ray`
    does so on the nodes of a Ray cluster, which needs the extra `ray` as well (docs/cluster.md). `auto` takes processes
    where there are several GPUs, or where something else samples (`inference.backend`, `base_url`), else one
    process."""

    address: str = Field(default="auto", min_length=1)
    """The Ray cluster: `auto` is the one that this machine belongs to, `10.0.0.1:6379` the one with its head there, and
    `local` starts one on this machine for the run."""

    num_samplers: int = Field(default=1, ge=1)
    """Samplers that share the episodes, each with the whole model. On GPUs of this machine it is one for each of
    `inference_gpu_ids`; vLLM shares these GPUs out among so many. `slimrl scale RUN` changes the number while a run
    goes on."""

    max_samplers: int = Field(default=0, ge=0)
    """Most samplers that a run is given by itself: one more than `num_samplers` after another, while more sequences
    wait for a place than the samplers have (`inference.max_slots` each), and fewer again when they do not. 0 leaves the
    number as it is."""

    gpus_per_sampler: int = Field(default=1, ge=1)
    """GPUs of one node on which Ray places each vLLM, which shares the model out among them (tensor parallel)."""

    num_trainers: int = Field(default=1, ge=1)
    """Processes that share each training step, each with its shard of parameters and optimizer (FSDP2). On GPUs of this
    machine it is one for each of `trainer_gpu_ids`, whatever this says."""

    num_workers: int = Field(default=0, ge=0)
    """Hosts of environments, on any node: the episodes of each environment whose code runs in a worker process
    (`worker`) are shared among as many processes, one at each host, and go on while one computes. 0 plays them beside
    the orchestrator, one at a time."""

    cpus: float = Field(default=1.0, gt=0)
    """CPUs that each part asks Ray for; it computes with as many threads (`model.num_threads`). With less than 1 it
    shares the CPUs of its node with others, and computes with all of them. Samplers and trainers also ask for GPUs
    where the cluster has any."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """The address of this machine that samplers listen on, and where the trainer meets them. Ray sets it on each
    node."""

    weights: Literal["files", "broadcast"] = "files"
    """How new weights reach samplers that are processes of their own: by a directory that they read, or from the
    trainer's memory by a collective broadcast (NCCL between GPUs, gloo between CPUs), which needs GPUs of its own for
    each."""

    timeout_s: float = Field(default=1800.0, gt=0)
    """Longest that one part waits for another which shows no sign of work, in seconds: then the run ends, and says who
    waited for whom. A single step that takes longer needs more; a long warm-up or evaluation does not."""

    restarts: int = Field(default=3, ge=0)
    """How many times, without coming further than before, `slimrl rl` starts parts again that have died. A sampler is
    given the newest weights, and what it had begun is sampled anew; trainer and orchestrator go on from the last
    checkpoint."""

    @property
    def are_apart(self) -> bool:
        """Whether the parts are processes of their own, here or on other machines."""
        return self.type in ("processes", "ray")
