"""The inputs of a simulation: a placement of the parts on devices, their recipe, and the costs of the work."""

import math
from dataclasses import dataclass
from typing import Literal

from slimrl.config.run import RLConfig
from slimrl_tools.plan.timing import Speeds
from slimrl_tools.plan.workload import Row

# Two programs on the same two cores take 1.7 times as long each, not twice: some work of either runs on one core
# (`benchmarks/results/contention.json`).
SHARING = 1.7
LINK = 2e10  # bytes per second between devices, assumed: PCIe 4 with 16 lanes, or 200 Gbit/s between hosts


@dataclass(frozen=True, slots=True)
class Placement:
    """The devices of the parts. In `one-process`, sampling and training take turns on one device. As `processes`,
    replicas of the sampler and ranks of the trainer have a device each, or all share one.

    `level` is `max_async_level`, and `slots` the number of sequences that a replica decodes at once.
    """

    kind: Literal["one-process", "processes"]
    level: int = 0
    num_samplers: int = 1
    num_trainers: int = 1
    slots: int = 64
    shares_device: bool = False

    @property
    def num_devices(self) -> int:
        """Return the number of devices that it takes."""
        return 1 if self.kind == "one-process" or self.shares_device else self.num_samplers + self.num_trainers


@dataclass(frozen=True, slots=True)
class Recipe:
    """The sizes of batches: rollouts per step and per group, the limit of resampling as a multiple of the step, and the
    tokens of a training pack."""

    batch_size: int
    group_size: int
    resample_factor: int
    pack_tokens: int

    @property
    def num_groups(self) -> int:
        """Return the number of groups in a batch."""
        return self.batch_size // self.group_size


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of the work on a device. `speeds` are its seconds for each piece of work, times `sampling` or `training`.

    New weights take `weights_s` to a replica, and `weights_more_s` longer for each doubling of the replicas; meanwhile
    it samples nothing. A batch takes `batch_s` to the trainer. If there are several ranks, each pack costs a rank up to
    `gather_s` for their exchange.
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
        """Return the seconds of a decoding step with `num` sequences."""
        return self.sampling * (self.speeds.decode_step + num * self.speeds.decode_row)

    def prefill_s(self, num_tokens: int) -> float:
        """Return the seconds to read tokens, including one more read of the weights."""
        return self.sampling * (self.speeds.decode_step + num_tokens * self.speeds.prefill)

    @property
    def copy_s(self) -> float:
        """Return the seconds until an engine beside the trainer is ready again."""
        return self.sampling * self.speeds.copy

    def train_s(self, row: Row, recipe: Recipe, ranks: int) -> float:
        """Return the seconds of a training step on the slowest rank. The ranks share the packs; there are at least as
        many packs as ranks, if there are enough rollouts."""
        if not row.tokens:
            return 0.0
        packs = min(max(math.ceil(row.tokens / recipe.pack_tokens), ranks), recipe.batch_size)
        rounds = math.ceil(packs / ranks)
        each = self.speeds.row_s(row) / packs + self.speeds.pack
        exchanged = rounds * self.gather_s * (1 - 1 / ranks)
        return self.training * (rounds * each + self.speeds.update / ranks) + exchanged

    def transfer_s(self, num_samplers: int) -> float:
        """Return the seconds until new weights reach all replicas."""
        return self.weights_s + self.weights_more_s * math.log2(num_samplers)


def recipe_of(config: RLConfig) -> Recipe:
    """Return the recipe of a run's settings."""
    episodes = config.orchestrator
    return Recipe(
        episodes.batch_size,
        episodes.rollouts_per_example,
        episodes.resample_factor,
        config.trainer.micro_batch_tokens,
    )


def placement_of(config: RLConfig) -> Placement:
    """Return the placement of a placed run (`launch/placement.py`)."""
    slots, level = config.inference.max_slots, config.async_level
    if not config.deployment.are_apart:
        return Placement("one-process", level, slots=slots)
    trainers, deployment = set(config.trainer_gpu_ids), config.deployment
    # Ray gives each part devices of its own.
    shares = deployment.type != "ray" and (not trainers or bool(trainers & set(config.inference_gpu_ids)))
    ranks = len(trainers) or deployment.num_trainers
    return Placement("processes", level, deployment.num_samplers, ranks, slots, shares)
