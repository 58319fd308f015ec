"""`alphabet-sort`: keep a list of names in alphabetical order while more of them arrive, over several turns.

Each turn adds names and asks for the whole list so far, sorted by first or by last name, with the new names tagged. The
reward of a turn is the similarity of the answer to the true list, raised to a power. The reward of an episode is the
mean over its turns. Replies do not change the requests. The rules are in `alphabet_sort/scoring.py`.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from slimrl.errors import UserError
from slimrl.types import Message, Rollout, Script, Split, Task, Taskset, Turn
from slimrl_envs.alphabet_sort.names import FIRST_NAMES, LAST_NAMES, is_held_out
from slimrl_envs.alphabet_sort.scoring import (
    KEYS,
    NEW_TAG,
    Arrival,
    Score,
    format_answer,
    request_text,
    score_answer,
    true_list,
)

INSTRUCTION = (
    "You sort lists of names. Answer with the whole list in <sorted> tags, one name a line. When names are added to a "
    "list, write (new) behind each of them, and behind no other."
)
SYSTEM: Message = {"role": "system", "content": INSTRUCTION}
# Kinds of failure by metric. The first metric that is below 1 names the kind.
KINDS = {"tagged": "no answer in tags", "names": "wrong names", "marks": "wrong marks", "exact": "wrong order"}
MIN_AT_FIRST = 2  # minimum number of names in the first turn, since a single name is already sorted
DRAWS = 20  # maximum number of draws for each wanted list, since short lists often repeat


@dataclass
class AlphabetSort(Taskset):
    """A taskset of games with seeded, distinct lists of names. The fields are the `args` of the config section.

    An episode has `min_turns` to `max_turns` turns. Each turn adds 1 to `max_names` names; the first turn adds at least
    two. The key, the first or the last name, is drawn for the episode. No two names of an episode share a first or a
    last name, so there are no ties. No training list has a first or a last name of a test list.

    The reward of a turn is the similarity to the true list, raised to `power`: a larger `power` makes small mistakes
    cost more. With `restate`, each later turn starts with the right list so far, for models that cannot recall it.

    Every task starts with `num_examples` training lists, sorted by the expert, as earlier turns of the conversation.
    These examples help models that would otherwise not write the tags. The longest examples are first, so that the last
    ones are as short as the start of a task. The keys are used in rotation. Scripts do not include the examples.
    """

    min_turns: PositiveInt = 1
    max_turns: int = 3
    max_names: Annotated[int, Field(ge=MIN_AT_FIRST)] = 5
    power: Annotated[float, Field(ge=1)] = 4.0
    restate: bool = False
    num_examples: NonNegativeInt = 0
    num_train: NonNegativeInt = 2000
    num_test: NonNegativeInt = 200

    def __post_init__(self) -> None:
        if self.min_turns > self.max_turns:
            raise UserError(f"alphabet-sort: `min_turns` = {self.min_turns} is more than max_turns = {self.max_turns}.")
        most, there_are = self.max_turns * self.max_names, min(map(len, _names("test")))
        if most > there_are:
            raise UserError(
                f"alphabet-sort: `max_turns` x `max_names` = {most}, and there are only {there_are} names for tests."
            )
        self._examples = self._make_examples(random.Random("alphabet-sort/0/examples"))

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split; `validation` has none. Raise UserError if too few different lists are found."""
        if split == "validation":
            return []
        size = self.num_train if split == "train" else self.num_test
        rng, names = random.Random(f"alphabet-sort/0/{split}"), _names(split)
        lists: dict[tuple[Arrival, ...], None] = {}
        for _ in range(DRAWS * size):
            num_turns, key = rng.randint(self.min_turns, self.max_turns), rng.choice(KEYS)
            lists[self._draw(rng, names, num_turns, key)] = None
            if len(lists) == size:
                break
        if len(lists) < size:
            raise UserError(f"alphabet-sort: found only {len(lists)} lists for `num_{split}` = {size}; lower it.")
        turns = ([{"names": list(one.names), "by": one.by} for one in arrivals] for arrivals in lists)
        return [Task(f"{split}/{place}", {"turns": of_task}) for place, of_task in enumerate(turns)]

    def environment(self, task: Task) -> "AlphabetSortEpisode":
        arrivals = _arrivals(task)
        return AlphabetSortEpisode(arrivals, self._requests(arrivals), self.power, self._examples)

    @property
    def scripts(self) -> dict[str, Script]:
        """The scripts by name. `expert` sorts the names. `random` writes the right names and tags in random order.
        `unsorted` keeps the names in the order in which they arrived."""

        def play(task: Task, answer: Callable[[list[str]], list[str]]) -> list[Message]:
            return [SYSTEM, *self._turns(_arrivals(task), answer)]

        def shuffle(task: Task, seed: int) -> list[Message]:
            rng = random.Random(f"{seed}/{task.id}")
            return play(task, lambda lines: rng.sample(lines, len(lines)))

        def leave_unsorted(task: Task, seed: int) -> list[Message]:
            order = [name for arrival in _arrivals(task) for name in arrival.names]
            return play(task, lambda lines: sorted(lines, key=lambda line: order.index(line.removesuffix(NEW_TAG))))

        return {"expert": lambda task, seed: play(task, list), "random": shuffle, "unsorted": leave_unsorted}

    def failure_kind(self, rollout: Rollout) -> str:
        """Return the first kind in `KINDS` whose metric is below 1. Return an empty text if the episode is unfinished,
        or if no metric is below 1."""
        if rollout.metrics.get("unfinished", 1.0):
            return ""
        return next((kind for name, kind in KINDS.items() if rollout.metrics[name] < 1.0), "")

    def _make_examples(self, rng: random.Random) -> list[Message]:
        """Return the examples as turns of a conversation. All numbers of turns, and all keys, are equally frequent if
        possible."""
        lengths, messages = self.max_turns - self.min_turns + 1, list[Message]()
        for place, key in zip(range(self.num_examples), cycle(KEYS), strict=False):
            num_turns = self.max_turns - place * lengths // self.num_examples
            messages += self._turns(self._draw(rng, _names("train"), num_turns, key), list)
        return messages

    def _turns(self, arrivals: Sequence[Arrival], answer: Callable[[list[str]], list[str]]) -> list[Message]:
        """Return the requests and answers of a script. `answer` takes the true list of a turn and returns the script's
        list."""
        messages = list[Message]()
        for turn, request in enumerate(self._requests(arrivals), start=1):
            messages += [request, {"role": "assistant", "content": format_answer(answer(true_list(arrivals[:turn])))}]
        return messages

    def _requests(self, arrivals: Sequence[Arrival]) -> list[Message]:
        turns = range(1, len(arrivals) + 1)
        return [{"role": "user", "content": request_text(arrivals[:turn], self.restate)} for turn in turns]

    def _draw(
        self, rng: random.Random, names: tuple[list[str], list[str]], num_turns: int, key: str
    ) -> tuple[Arrival, ...]:
        """Draw the turns of one episode from `names`, the first and the last names."""
        least = [MIN_AT_FIRST] + [1] * (num_turns - 1)
        sizes = [rng.randint(fewest, self.max_names) for fewest in least]
        # Samples without replacement: no two names share a first or a last name, so that no key has ties.
        firsts, lasts = (rng.sample(pool, sum(sizes)) for pool in names)
        drawn = (f"{first} {last}" for first, last in zip(firsts, lasts, strict=True))
        return tuple(Arrival(tuple(islice(drawn, size)), key) for size in sizes)


class AlphabetSortEpisode:
    """An episode on one list. It ends with the answer to the last request."""

    def __init__(
        self, arrivals: Sequence[Arrival], requests: Sequence[Message], power: float, examples: Sequence[Message]
    ) -> None:
        self._arrivals, self._requests, self._power, self._examples = arrivals, requests, power, examples
        self._scores: list[Score] = []

    async def start(self) -> list[Message]:
        return [SYSTEM, *self._examples, self._requests[0]]

    async def step(self, reply: str) -> Turn:
        self._scores.append(score_answer(reply, true_list(self._arrivals[: len(self._scores) + 1])))
        num_played = len(self._scores)
        # The turn's share of the mean over all turns. Turns that are never played earn nothing.
        reward = self._scores[-1].similarity ** self._power / len(self._arrivals)
        following = self._requests[num_played : num_played + 1]
        counts: dict[str, list[float]] = {
            "similarity": [score.similarity for score in self._scores],  # not raised to the power
            "exact": [score.similarity == 1.0 for score in self._scores],
            "tagged": [score.tagged for score in self._scores],
            "names": [score.names for score in self._scores],
            "marks": [score.new_tags for score in self._scores],
        }
        metrics = {name: sum(values) / num_played for name, values in counts.items()}
        return Turn(not following, following, reward, metrics)


def _names(split: Split) -> tuple[list[str], list[str]]:
    """Return the first and the last names of a split."""
    firsts, lasts = (
        [name for name in names if is_held_out(name) == (split == "test")] for names in (FIRST_NAMES, LAST_NAMES)
    )
    return firsts, lasts


def _arrivals(task: Task) -> list[Arrival]:
    return [Arrival(tuple(turn["names"]), turn["by"]) for turn in task.data["turns"]]
