"""The orchestrator of the model begins, takes and drops groups as `orchestrator/orchestrator.py` does."""

from dataclasses import dataclass, field
from typing import Any

from slimrl_tools.plan.pipeline.episodes import RecordedEpisodes
from slimrl_tools.plan.pipeline.placement import Recipe
from slimrl_tools.plan.pipeline.pool import SimulatedGroup, SimulatedPool
from slimrl_tools.plan.workload import Row


@dataclass(frozen=True, slots=True)
class SimulatedBatch:
    """A batch: what the trainer computes, the ages of its groups, and the tokens that were sampled for it."""

    row: Row
    ages: tuple[int, ...]
    sampled: int
    num_rollouts: int


@dataclass(slots=True)
class Account:
    """Rollouts: started = trained + dropped + waiting + in flight, at any time."""

    started: int = 0
    trained: int = 0
    dropped_stale: int = 0
    dropped_useless: int = 0


@dataclass
class SimulatedOrchestrator:
    """Makes the batches of a simulated run. `version` is that of the sampler's weights."""

    env: Any
    pool: SimulatedPool
    recipe: Recipe
    episodes: RecordedEpisodes
    level: int
    seed: int
    version: int = 0
    account: Account = field(default_factory=Account)
    _num_drawn: int = 0
    _num_issued: int = 0

    @property
    def num_waiting(self) -> int:
        """The rollouts of finished groups that no batch has used yet."""
        return self.recipe.group_size * len(self.pool.finished)

    @property
    def num_in_flight(self) -> int:
        """The rollouts of groups that are being played."""
        return self.recipe.group_size * len(self.pool.in_flight)

    def collect(self, step: int) -> Any:
        """Play until the batch of a step is full, or the bound of resampling is reached. Returns the batch."""
        wanted = self.recipe.num_groups
        bound = wanted * self.recipe.resample_factor
        stale = self.pool.drop_before(step - self.level)
        self.account.dropped_stale += self.recipe.group_size * len(stale)
        for group in stale:
            self._issue(group.position)
        looked: list[SimulatedGroup] = []
        kept: list[SimulatedGroup] = []
        while (missing := wanted - len(kept)) > 0 and len(looked) < bound:
            num = min(missing, bound - len(looked))
            self._fill(step, num)
            taken = yield from self.pool.take(num, waits_for_all=not self.level)
            looked += taken
            kept += [group for group in taken if group.played.has_signal]
        self.account.trained += self.recipe.group_size * len(kept)
        self.account.dropped_useless += self.recipe.group_size * (len(looked) - len(kept))
        return SimulatedBatch(
            Row(*(sum(getattr(group.played.row, name) for group in kept) for name in ("tokens", "trained", "pairs"))),
            tuple(step - group.version for group in kept),
            sum(episode.sampled for group in looked for episode in group.played.episodes),
            self.recipe.group_size * len(kept),
        )

    def _fill(self, step: int, num: int) -> None:
        """Issue new groups, so that there are `num` for this batch and as many batches more as can be trained before
        what is issued now becomes too old."""
        lag = max(0, step - self.version)
        ahead = self.recipe.num_groups * (self.level - lag)
        room = num + ahead - len(self.pool.in_flight) - len(self.pool.finished)
        for _ in range(room):
            self._issue(self._num_drawn)
            self._num_drawn += 1

    def _issue(self, position: int) -> None:
        # A group that is played again is drawn anew: its tools answer anew, and its tokens are of other weights. The
        # same one would be late again, and in flight for ever.
        played = self.episodes.draw(self._num_issued, self.recipe.group_size, self.seed)
        self._num_issued += 1
        self.account.started += self.recipe.group_size
        self.pool.issue(SimulatedGroup(position, self.version, played, len(played.episodes)))
