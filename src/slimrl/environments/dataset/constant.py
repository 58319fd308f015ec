"""Finds the best constant answer. Its reward is the baseline of a policy that ignores the question."""

import time
from collections import Counter
from collections.abc import Callable, Sequence

from slimrl.environments.dataset.rows import references_of
from slimrl.io.rows import hash_fraction
from slimrl.types import Task

NUM_CANDIDATES = 8  # of the most frequent right answers
NUM_TASKS = 200  # to grade each candidate on
BUDGET_S = 10.0  # in total, since a function may be slow


def best_constant(tasks: Sequence[Task], score: Callable[[Task, str], float]) -> str:
    """Return the candidate with the highest sum of `score` over tasks that a hash picks: `NUM_TASKS` of them, or fewer
    if time runs out. Empty without right answers."""
    answers = Counter(references[0] for task in tasks if (references := references_of(task.data)))
    candidates = [answer for answer, _ in answers.most_common(NUM_CANDIDATES)]
    sums, began = dict.fromkeys(candidates, 0.0), time.monotonic()
    for task in sorted(tasks, key=lambda task: hash_fraction(task.id))[:NUM_TASKS]:
        if time.monotonic() - began > BUDGET_S:
            break
        for answer in candidates:
            sums[answer] += score(task, answer)
    return max(candidates, key=sums.__getitem__, default="")
