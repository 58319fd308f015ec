"""One task of reasoning-gym with one config: makes the items of the task, and scores answers."""

import copy
import dataclasses
import functools
import math
import random
from collections.abc import Mapping
from typing import Any

from slimrl.errors import RolloutError, UserError, nearest, require
from slimrl.io.cache import say
from slimrl.io.user_code import call_user_code
from slimrl.types import Split
from slimrl_envs.reasoning_gym.answers import is_safe

# A question belongs to the first of these splits that contains it, so held-out tasks do not depend on `num_train`.
SPLITS: tuple[Split, ...] = ("test", "validation", "train")
STRIDE = 10_000_000  # between the seeds of two splits: the package makes item `i` from `seed + i`
TRIES, MORE_TRIES = 4, 100  # make at most `TRIES` * (number of wanted items) + `MORE_TRIES` items
CACHED_ENTRIES = 1 << 14  # items to keep; other items are made again when an answer is scored
DECIDED = ("seed", "size")  # settings of a config that follow from the split
NOT_OURS = ("composite",)  # the package's own mixture of tasks
# Excluded tasks: their scorers reward answers that ignore the question, and a policy would learn these answers.
UNSOUND = {
    "coin_flip": "its scorer pays `0` in full for nearly every probability",
    "game_of_life_halting": "its scorer pays every answer",
    "puzzle24": "its scorer does not compare the numbers with those of the question, so one answer solves all",
}
# Tasks whose scorer gives a large partial score for the format of an answer, or for a nearly right answer. Only the
# full score of these tasks counts.
EXACT_ONLY = frozenset({"emoji_mystery", "game_of_life", "prime_factorization", "rectangle_count", "time_intervals"})
# Tasks in which one answer, given blindly to all questions, has a mean reward above 0.3. Each has the best blind answer
# and its mean reward. `benchmarks/checks/blind_answers.py` measured them with the package's own settings.
EASY = {
    "acre": ("on", 0.38),
    "circuit_logic": ("0", 0.64),
    "course_schedule": ("True", 0.58),
    "isomorphic_strings": ("False", 0.54),
    "letter_counting": ("1", 0.34),
    "mahjong_puzzle": ("Chi", 0.38),
    "maze": ("5", 0.33),
    "number_sequence": ("the last number of the question", 0.32),
    "polynomial_equations": ("0", 0.38),
    "ransom_note": ("True", 0.55),
    "rotten_oranges": ("-1", 0.31),
    "self_reference": ("2", 0.47),
    "shortest_path": ("infeasible", 0.44),
    "string_insertion": ("the last word of the question", 0.96),
    "string_manipulation": ("the last word of the question", 0.32),
    "syllogism": ("Yes", 0.68),
    "zebra_puzzles": ("bob", 0.31),
}
# The errors that scorers raise for answers that they cannot read.
UNREADABLE = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, SyntaxError, TypeError, ValueError
)  # fmt: skip

Entry = Mapping[str, Any]
Item = dict[str, Any]
"""The data of an item. `task` is the name of the task, `seed` regenerates the item, and `answer` is empty if the
package has no answer to the `question`."""


class Part:
    """A task of the package with its settings `config`. `sizes` has the wanted number of items in each split. A split
    has fewer items if too few different ones exist."""

    def __init__(self, name: str, config: Mapping[str, Any], seed: int, sizes: Mapping[Split, int]) -> None:
        datasets = _factory().DATASETS
        if name not in datasets or name in NOT_OURS:
            raise UserError(
                f"reasoning-gym has no task `{name}`.{nearest(name, task_names())} A mixture "
                "is named as in `reasoning-gym:chain_sum+leg_counting`."
            )
        if name in UNSOUND:
            raise UserError(f"reasoning-gym: {name} cannot be trained on: {UNSOUND[name]}.")
        self.name = name
        self._make_dataset, self._make_config = datasets[name]
        known = {field.name for field in dataclasses.fields(self._make_config) if field.init} - {*DECIDED}
        if unknown := [key for key in config if key not in known]:
            follows = " It follows from the args `seed`, `num_train` and `num_test`." if unknown[0] in DECIDED else ""
            hint = follows or nearest(unknown[0], known)
            raise UserError(f"reasoning-gym: {name} has no setting `{unknown[0]}`.{hint}")
        self._settings = config
        self._first_seed, self._sizes = seed * len(SPLITS) * STRIDE, sizes
        self._datasets: dict[Split, Any] = {}
        self._items: dict[Split, list[Item]] = {}
        self._config_of("train")  # raises at once if the config refuses a setting
        self._entry = functools.lru_cache(CACHED_ENTRIES)(self._make_entry)

    def items(self, split: Split) -> list[Item]:
        """Return the items of a split, the same at every call. All questions differ, within a split and between splits.

        An item is left out if the scorer gives less than the full score to the item's own answer. Raise UserError if no
        item is left.
        """
        if split not in self._items:
            self._items[split] = self._find_items(split)
        return self._items[split]

    def score(self, answer: str, item: Mapping[str, Any]) -> float:
        """Return the package's score of an answer, from 0 to 1. An unreadable or unsafe answer scores 0. Raise
        RolloutError if the score is not finite."""
        return self._score(answer, self._entry(item["seed"]), self._split_of(item["seed"]))

    def some_items(self) -> list[Item]:
        """Return the items of the first split whose wanted size is not 0; an empty list if all wanted sizes are 0."""
        return next((self.items(split) for split in SPLITS if self._sizes[split]), [])

    def _find_items(self, split: Split) -> list[Item]:
        wanted, num_tries, first = self._sizes[split], self._num_candidates(split), self._first_seed_of(split)
        found, refused, failure = dict[str, Item](), 0, ""
        taken = {item["question"] for other in SPLITS[: SPLITS.index(split)] for item in self.items(other)}
        for seed in range(first, first + num_tries):
            if len(found) == wanted:
                break
            try:
                entry = self._entry(seed)
            except UserError as error:
                failure = str(error)
                continue
            question, answer = entry["question"], entry["answer"] if isinstance(entry["answer"], str) else ""
            if question in taken or question in found:
                continue
            if answer and self._score(answer.strip(), entry, split) < 1.0:
                refused += 1
                continue
            found[question] = {"task": self.name, "seed": seed, "question": question, "answer": answer}
        text = (
            f"reasoning-gym: {self.name} has {len(found)} different questions for `num_{split}` = {wanted} in "
            f"{num_tries} items, and the scorer refused the package's own answer in {refused}."
        )
        if wanted and not found:
            advice = "Ask for fewer tasks in the other splits, or change its `config`."
            raise UserError(f"{text} {advice} {failure}".strip())
        if len(found) < wanted:
            say(text)
        return list(found.values())

    def _score(self, answer: str, entry: Entry, split: Split) -> float:
        if not is_safe(self.name, answer):
            return 0.0
        try:
            score = float(self._dataset(split).score_answer(answer, copy.deepcopy(entry)))
        except UNREADABLE:
            return 0.0
        if not math.isfinite(score):
            raise RolloutError("nonfinite_reward", f"the scorer of reasoning-gym's {self.name} gave {score}")
        return float(score >= 1.0) if self.name in EXACT_ONLY else min(max(score, 0.0), 1.0)

    def _make_entry(self, seed: int) -> Entry:
        """Make the item with this seed. Raise UserError if the package fails to make it."""
        split = self._split_of(seed)
        index = seed - self._first_seed_of(split)
        # Some tasks also draw from Python's global generator, besides the generator that they make from the seed.
        state = random.getstate()
        try:
            random.seed(seed)
            entry: Entry = call_user_code(
                f"reasoning-gym failed to make an item of {self.name}", lambda: self._dataset(split)[index]
            )
        finally:
            random.setstate(state)
        return entry

    def _dataset(self, split: Split) -> Any:
        if split not in self._datasets:
            self._datasets[split] = call_user_code(
                f"reasoning-gym failed to make {self.name}", lambda: self._make_dataset(config=self._config_of(split))
            )
        return self._datasets[split]

    def _config_of(self, split: Split) -> Any:
        settings = {**self._settings, "seed": self._first_seed_of(split), "size": self._num_candidates(split)}

        def make() -> Any:
            config = self._make_config(**copy.deepcopy(settings))
            vars(self._make_config).get("validate", lambda _: None)(config)  # one config class has no `validate`
            return config

        return call_user_code(f"reasoning-gym refuses the config of {self.name}", make)

    def _num_candidates(self, split: Split) -> int:
        return TRIES * self._sizes[split] + MORE_TRIES

    def _first_seed_of(self, split: Split) -> int:
        return self._first_seed + SPLITS.index(split) * STRIDE

    def _split_of(self, seed: int) -> Split:
        return SPLITS[(seed - self._first_seed) // STRIDE]


def task_names() -> list[str]:
    """Return the names of the package's tasks."""
    return sorted(set(_factory().DATASETS) - {*NOT_OURS, *UNSOUND})


def _factory() -> Any:
    return require("reasoning_gym", "reasoning-gym", "`reasoning-gym:NAME`").factory
