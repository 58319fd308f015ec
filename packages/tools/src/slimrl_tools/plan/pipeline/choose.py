"""Divides N devices into samplers and trainers so that the simulation makes the most steps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from slimrl.errors import UserError
from slimrl_tools.plan.pipeline.episodes import RecordedEpisodes
from slimrl_tools.plan.pipeline.placement import Costs, Placement, Recipe
from slimrl_tools.plan.pipeline.simulate import Outcome, simulate
from slimrl_tools.plan.workload import Row

PARTS = 6  # steps between the divisions tried first; then the neighbours of the best one are tried
MOST_TURNS = 12_000  # per simulated run, about half a second, as far as FEWEST_STEPS allow
FEWEST_STEPS, MOST_STEPS = 5, 40
SAME = 0.02  # relative difference in speed below which two divisions count as equal


@dataclass(frozen=True, slots=True)
class Question:
    """A recipe with its costs and episodes, in search of its best placement. `level` and `level_alone` bound the lag of
    a rollout in versions, with processes and in one process. `slots` is the number per replica, and `least_trainers`
    the fewest ranks that can hold the trainer."""

    recipe: Recipe
    costs: Costs
    episodes: RecordedEpisodes
    level: int
    level_alone: int
    slots: int
    least_trainers: int = 1
    seed: int = 0

    def outcome(self, placement: Placement) -> Outcome:
        """Simulate a placement."""
        groups = self.episodes.groups
        turns = sum(len(one.turns) for group in groups for one in group.episodes)
        each = self.recipe.batch_size * turns / sum(len(group.episodes) for group in groups)
        steps = max(FEWEST_STEPS, min(MOST_STEPS, round(MOST_TURNS / each)))
        return simulate(placement, self.recipe, self.costs, self.episodes, steps, self.seed)

    def train_s(self, ranks: int) -> float:
        """Return the seconds of a training step on a mean batch."""
        groups = self.episodes.groups
        rows = [group.row for group in groups if group.has_signal] or [groups[0].row]
        mean = sum(rows, start=Row(0, 0, 0)).times(self.recipe.num_groups / len(rows))
        return self.costs.train_s(mean, self.recipe, ranks)

    def at_level(self, level: int) -> "Question":
        """Return the same question with another staleness bound."""
        return replace(self, level=level, level_alone=level)


def choose(question: Question, num_devices: int) -> Outcome:
    """Return the fastest division of `num_devices`. Raises UserError where the trainer needs more of them."""
    if num_devices == 1 and question.least_trainers == 1:
        return question.outcome(Placement("one-process", question.level_alone, slots=question.slots))
    most = num_devices - question.least_trainers  # replicas
    if most < 1:
        raise UserError(
            f"the trainer alone needs {question.least_trainers} such devices for its memory, and there are "
            f"{num_devices}: name more of them, or train an adapter (model.lora.rank)."
        )
    found = dict[int, Outcome]()  # by the number of replicas
    tried = set[int]()
    new = {1 + round((most - 1) * part / PARTS) for part in range(PARTS + 1)}
    while new := new - tried:
        tried |= new
        trains_s = {num: question.train_s(num_devices - num) for num in new}
        for num in sorted(new, key=lambda num: (trains_s[num], num)):
            # Skip divisions with a training time above the best step's time.
            if not found or trains_s[num] <= min(outcome.step_s for outcome in found.values()):
                placement = Placement("processes", question.level, num, num_devices - num, question.slots)
                found[num] = question.outcome(placement)
        new = set(_neighbours(found))
    fastest = min(outcome.step_s for outcome in found.values())
    # Among equally fast divisions, choose the one with the least idle time.
    as_fast = [one for one in found.values() if one.step_s <= (1 + SAME) * fastest]
    return min(as_fast, key=lambda one: one.sampler_idle + one.trainer_idle)


def smallest_as_fast(outcomes: Sequence[Outcome], share: float = 0.9) -> Outcome:
    """Return the outcome with the fewest devices among those with at least `share` of the highest steps per hour."""
    fastest = max(one.steps_per_hour for one in outcomes)
    enough = [one for one in outcomes if one.steps_per_hour >= share * fastest]
    return min(enough, key=lambda one: one.placement.num_devices)


def _neighbours(found: dict[int, Outcome]) -> Iterator[int]:
    """Yield the numbers half-way between the best one and its neighbours, until they are a sixteenth away."""
    tried = sorted(found)
    place = min(range(len(tried)), key=lambda index: found[tried[index]].step_s)
    for other in tried[max(0, place - 1) : place] + tried[place + 1 : place + 2]:
        if abs(tried[place] - other) > max(1, tried[-1] // 16):
            yield (tried[place] + other) // 2
