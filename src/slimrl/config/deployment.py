"""The section `[deployment]`: the processes of a run, their machines, and their connections."""

from typing import Literal

from pydantic import Field

from slimrl.config.base import Config

Part = Literal["trainer", "orchestrator", "inference"]  # a part of a run has the name of its command


class DeploymentConfig(Config):
    """The location of a run's parts: all in one process, in several processes of one machine, or on the nodes of a Ray
    cluster.

    `slimrl rl` starts and monitors the parts. `slimrl inference`, `slimrl orchestrator` and `slimrl trainer` each start
    one part by hand, with the same file.
    """

    first = ("type",)

    type: Literal["auto", "one-process", "processes", "ray"] = "auto"
    """`one-process` samples and trains in turn. `processes` does both at once, which needs the extra `server`. `ray`
    does so on the nodes of a Ray cluster, which also needs the extra `ray` (docs/cluster.md). `auto` takes `processes`
    if there are several GPUs or another sampler (`inference.backend`, `base_url`), else `one-process`."""

    address: str = Field(default="auto", min_length=1)
    """The Ray cluster: `auto` is the one that this machine belongs to, `10.0.0.1:6379` the one with this head, and
    `local` starts one on this machine for the run."""

    num_samplers: int = Field(default=1, ge=1)
    """Samplers that share the episodes, each with the whole model. On GPUs of this machine, one for each of
    `inference_gpu_ids`; vLLM divides these GPUs among `num_samplers`. `slimrl scale RUN` changes the number during a
    run."""

    gpus_per_sampler: int = Field(default=1, ge=1)
    """GPUs of one node for each vLLM under Ray, which splits the model across them (tensor parallel)."""

    num_trainers: int = Field(default=1, ge=1)
    """Processes that share each training step, each with its shard of parameters and optimizer (FSDP2). On GPUs of this
    machine, one for each of `trainer_gpu_ids`; this setting is then ignored."""

    num_workers: int = Field(default=0, ge=0)
    """Worker processes of each environment that has one (`worker`), on the orchestrator's machine: they share its
    episodes, and each computes on its own. 0 means a single one."""

    cpus: float = Field(default=1.0, gt=0)
    """CPUs that each part requests from Ray; it computes with as many threads (`model.num_threads`). Below 1, a part
    shares the CPUs of its node with others, and computes with all of them. Samplers and trainers also request GPUs if
    the cluster has any."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """The address of this machine on which samplers listen. Ray sets it on each node."""

    timeout_s: float = Field(default=1800.0, gt=0)
    """Maximum wait of a part for another part without a sign of work, in seconds. Then the run ends with a message
    about both parts. Raise it if a single step takes longer; a long warm-up or evaluation does not need that."""

    restarts: int = Field(default=3, ge=0)
    """How many times `slimrl rl` restarts dead parts without progress between the deaths. A sampler receives the newest
    weights, and its unfinished requests are sampled again; trainer and orchestrator continue from the last
    checkpoint."""

    @property
    def are_apart(self) -> bool:
        """True if the parts are separate processes, on this machine or on others."""
        return self.type in ("processes", "ray")
