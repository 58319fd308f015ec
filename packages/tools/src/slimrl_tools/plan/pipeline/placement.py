"""What is simulated: a placement of the parts on devices, the recipe that they follow, and what the work costs."""

import math
from dataclasses import dataclass
from typing import Literal

from slimrl.config.run import RLConfig
from slimrl_tools.plan.timing import Speeds
from slimrl_tools.plan.workload import Row

# Two programs on the same two cores take 1.7 times as long each, and not twice: not all of either runs on both cores
# (`benchmarks/results/contention.json`).
SHARING = 1.7
LINK = 2e10  # bytes a second between devices, assumed: PCIe 4 with 16 lanes, or 200 Gbit/s between hosts


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the parts are. In `one-process` sampling and training take turns on one device. As `processes` there are
    replicas of the sampler and ranks of the trainer, each on a device of its own, or all on one that they share.

    `level` is `max_async_level`, and `slots` the sequences that a replica decodes at once.
    """

    kind: Literal["one-process", "processes"]
    level: int = 0
    num_samplers: int = 1
    num_trainers: int = 1
    slots: int = 64
    shares_device: bool = False

    @property
    def num_devices(self) -> int:
        """The devices that it takes."""
        return 1 if self.kind == "one-process" or self.shares_device else self.num_samplers + self.num_trainers


@dataclass(frozen=True, slots=True)
class Recipe:
    """How batches are made: rollouts in a step and in a group, how many times as many are sampled at most, and the
    tokens of a training pack."""

    batch_size: int
    group_size: int
    resample_factor: int
    pack_tokens: int

    @property
    def num_groups(self) -> int:
        """The groups of a batch."""
        return self.batch_size // self.group_size


@dataclass(frozen=True, slots=True)
class Costs:
    """What the work costs on a device. `speeds` are its seconds for each piece of work, times `sampling` or `training`.

    New weights take `weights_s` to a replica, and `weights_more_s` longer for each doubling of the replicas; in that
    time it samples nothing. `batch_s` is how long a batch takes to the trainer. A pack costs each rank beside others
    `gather_s` for what the ranks exchange.
    """

    speeds: Speeds
    sampling: float = 1.0
    training: float = 1.0
    weights_s: float = 0.0
    weights_more_s: float = 0.0
    batch_s: float = 0.0
    gather_s: float = 0.0
    sharing: float = SHARING
    source: str = ""

    def decode_s(self, num: int) -> float:
        """The seconds of a decoding step with so many sequences."""
        return self.sampling * (self.speeds.decode_step + num * self.speeds.decode_row)

    def prefill_s(self, num_tokens: int) -> float:
        """The seconds in which tokens are read: the weights are read for them once more."""
        return self.sampling * (self.speeds.decode_step + num_tokens * self.speeds.prefill)

    @property
    def copy_s(self) -> float:
        """The seconds until an engine beside the trainer is ready again."""
        return self.sampling * self.speeds.copy

    def train_s(self, row: Row, recipe: Recipe, ranks: int) -> float:
        """The seconds of a training step. Ranks share the packs, of which there are at least as many as ranks as long
        as there are rollouts, and the slowest rank counts."""
        if not row.tokens:
            return 0.0
        packs = min(max(math.ceil(row.tokens / recipe.pack_tokens), ranks), recipe.batch_size)
        rounds = math.ceil(packs / ranks)
        each = self.speeds.row_s(row) / packs + self.speeds.pack
        exchanged = rounds * self.gather_s * (1 - 1 / ranks)
        return self.training * (rounds * each + self.speeds.update / ranks) + exchanged

    def transfer_s(self, num_samplers: int) -> float:
        """The seconds in which new weights reach all replicas."""
        return self.weights_s + self.weights_more_s * math.log2(num_samplers)


def recipe_of(config: RLConfig) -> Recipe:
    """The recipe of a run's settings."""
    episodes = config.orchestrator
    return Recipe(
        episodes.batch_size,
        episodes.rollouts_per_example,
        episodes.resample_factor,
        config.trainer.micro_batch_tokens,
    )


def placement_of(config: RLConfig) -> Placement:
    """The placement of a placed run (`launch/placement.py`)."""
    slots, level = config.inference.max_slots, config.async_level
    if not config.deployment.are_apart:
        return Placement("one-process", level, slots=slots)
    trainers, deployment = set(config.trainer_gpu_ids), config.deployment
    # Ray gives each part devices of its own.
    shares = deployment.type != "ray" and (not trainers or bool(trainers & set(config.inference_gpu_ids)))
    ranks = len(trainers) or deployment.num_trainers
    return Placement("processes", level, deployment.num_samplers, ranks, slots, shares)
