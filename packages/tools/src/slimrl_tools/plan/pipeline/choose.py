"""Which of N devices sample and which train: the division with which the model makes the most steps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from slimrl.errors import UserError
from slimrl_tools.plan.pipeline.episodes import RecordedEpisodes
from slimrl_tools.plan.pipeline.model import simulate
from slimrl_tools.plan.pipeline.outcome import Outcome
from slimrl_tools.plan.pipeline.placement import Costs, Placement, Recipe
from slimrl_tools.plan.workload import Row

PARTS = 6  # into which devices are divided at first; then the best division is looked at more closely
MOST_TURNS = 20_000  # that a simulated run plays, as far as FEWEST_STEPS allow: a second
FEWEST_STEPS, MOST_STEPS = 5, 40
SAME = 0.02  # a share of the speed, below which fewer devices are as good


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the model: the recipe, what it costs and what is played; how many versions a rollout may lag
    behind with processes and in one process; a replica's slots; and the fewest ranks that can hold the trainer."""

    recipe: Recipe
    costs: Costs
    episodes: RecordedEpisodes
    level: int
    level_alone: int
    slots: int
    least_trainers: int = 1
    seed: int = 0

    @property
    def num_steps(self) -> int:
        """The steps that a simulated run takes."""
        groups = self.episodes.groups
        turns = sum(len(one.turns) for group in groups for one in group.episodes)
        each = self.recipe.batch_size * turns / sum(len(group.episodes) for group in groups)
        return max(FEWEST_STEPS, min(MOST_STEPS, round(MOST_TURNS / each)))

    def outcome(self, placement: Placement) -> Outcome:
        """What comes out of a placement."""
        return simulate(placement, self.recipe, self.costs, self.episodes, self.num_steps, self.seed)

    def train_s(self, ranks: int) -> float:
        """The seconds of a training step on a mean batch."""
        groups = self.episodes.groups
        rows = [group.row for group in groups if group.has_signal] or [groups[0].row]
        each = self.recipe.num_groups / len(rows)
        row = Row(*(each * sum(getattr(row, name) for row in rows) for name in ("tokens", "trained", "pairs")))
        return self.costs.train_s(row, self.recipe, ranks)

    def split(self, num_samplers: int, num_trainers: int) -> Placement:
        """So many replicas and ranks, each on a device of its own."""
        return Placement("processes", self.level, num_samplers, num_trainers, self.slots)


def choose(question: Question, num_devices: int) -> Outcome:
    """The fastest division of so many devices. Raises UserError where the trainer needs more of them."""
    if num_devices == 1 and question.least_trainers == 1:
        return question.outcome(Placement("one-process", question.level_alone, slots=question.slots))
    most = num_devices - question.least_trainers  # replicas
    if most < 1:
        raise UserError(
            f"the trainer alone needs {question.least_trainers} such devices for its memory, and there are "
            f"{num_devices}: name more of them, or train an adapter (model.lora.rank)."
        )
    found = dict[int, Outcome]()
    _look_at(_spread(1, most), found, question, num_devices)
    # The best division is between the neighbours of the best one so far: halve the distance to them.
    looked: set[int] = set()
    while new := [num for num in _neighbours(found) if num not in looked | found.keys()]:
        _look_at(new, found, question, num_devices)
        looked |= set(new)
    fastest = min(outcome.step_s for outcome in found.values())
    # Of those that are as fast, the one in which both halves have the most to do.
    as_fast = [one for one in found.values() if one.step_s <= (1 + SAME) * fastest]
    return min(as_fast, key=lambda one: one.sampler_idle + one.trainer_idle)


def smallest_as_fast(outcomes: Sequence[Outcome], share: float = 0.9) -> Outcome:
    """The outcome with the fewest devices that makes such a share of the most steps."""
    fastest = max(one.steps_per_hour for one in outcomes)
    return min(
        (one for one in outcomes if one.steps_per_hour >= share * fastest), key=lambda one: one.placement.num_devices
    )


def with_level(question: Question, level: int) -> Question:
    """The same question with another staleness bound, in one process too."""
    return replace(question, level=level, level_alone=level)


def _look_at(numbers: Sequence[int], found: dict[int, Outcome], question: Question, num_devices: int) -> None:
    """Add the outcomes of such numbers of replicas, but of those whose training alone takes longer than the best."""
    trains_s = {num: question.train_s(num_devices - num) for num in numbers}
    for num in sorted(numbers, key=lambda num: trains_s[num]):
        if not found or trains_s[num] <= min(outcome.step_s for outcome in found.values()):
            found[num] = question.outcome(question.split(num, num_devices - num))


def _spread(least: int, most: int) -> list[int]:
    return sorted({least + round((most - least) * part / PARTS) for part in range(PARTS + 1)})


def _neighbours(found: dict[int, Outcome]) -> Iterator[int]:
    """The numbers half-way between the best one and those beside it, until these are a sixteenth away."""
    tried = sorted(found)
    place = min(range(len(tried)), key=lambda index: found[tried[index]].step_s)
    for other in tried[max(0, place - 1) : place] + tried[place + 1 : place + 2]:
        middle = (tried[place] + other) // 2
        if abs(tried[place] - other) > max(1, tried[-1] // 16):
            yield middle
