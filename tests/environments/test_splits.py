"""Tasks that training and the held-out split share are found by what they hold."""

import random

import pytest

from slimrl.environments.find import load_taskset
from slimrl.environments.splits import shared_tasks
from slimrl.launch.tasksets import warning_of_shared
from slimrl.types import Environment, Split, Task, Taskset


def generated(split: str, seed: int, num: int) -> list[Task]:
    """Tasks as from reasoning-gym: entry `i` of a data set is made by `Random(seed + i)`, and holds its index."""
    tasks = []
    for index in range(num):
        rng = random.Random(seed + index)
        legs = rng.randint(1, 10**6)
        metadata = {"source_dataset": "leg_counting", "source_index": index, "difficulty": {"animals": [3, 10]}}
        data = {"question": f"How many legs have {legs} cows?", "answer": str(4 * legs), "metadata": metadata}
        tasks.append(Task(f"{split}/{index}", data))
    return tasks


def of(split: str, *data: dict[str, object]) -> list[Task]:
    return [Task(f"{split}/{number}", each) for number, each in enumerate(data)]


def test_splits_of_seeds_that_are_near_share_all_but_the_ends() -> None:
    found = shared_tasks(generated("train", 1, 100), generated("test", 2, 20))
    assert [(task.id, other.id) for task, other in found] == [(f"test/{n}", f"train/{n + 1}") for n in range(20)]
    assert shared_tasks(generated("train", 1, 100), generated("test", 10**6, 20)) == []
    assert len(shared_tasks(generated("train", 1, 100), generated("test", 95, 20))) == 6


@pytest.mark.parametrize(
    ("train", "test", "num"),
    [
        (of("train", {"n": 1}, {"n": 2}), of("test", {"n": 2}, {"n": 3}), 1),  # the number is the task itself
        (of("train", {"n": 1}, {"n": 2}), of("test", {"n": 3}, {"n": 4}), 0),
        (of("train", {"seed": 5}, {"seed": 6}), of("test", {"seed": 6}, {"seed": 7}), 1),
        (of("train", {"q": "a", "id": "train/0"}), of("test", {"q": "a", "id": "test/0"}), 1),
        (of("train", {"t": [[1, 2]]}, {"t": [[3, 4]]}), of("test", {"t": [[1, 3]]}, {"t": [[3, 4]]}), 1),
        (of("train", {"q": "a", "x": 1.5}), of("test", {"x": 1.5, "q": "a"}), 1),  # whatever the order of keys
        (of("train", {"q": "a", "x": True}), of("test", {"q": "a", "x": False}), 0),
        (of("train", {"q": "a"}), of("test", {"q": "a"}, {"q": "a"}), 2),
        (of("train"), of("test", {"q": "a"}), 0),
    ],
)
def test_content_decides(train: list[Task], test: list[Task], num: int) -> None:
    assert len(shared_tasks(train, test)) == num


class Generated(Taskset):
    """A taskset whose splits have these seeds."""

    def __init__(self, train: int, test: int) -> None:
        self._seeds = {"train": train, "validation": 0, "test": test}

    def tasks(self, split: Split) -> list[Task]:
        return generated(split, self._seeds[split], 50)

    def environment(self, task: Task) -> Environment:
        raise NotImplementedError


def test_the_warning_names_the_tasks_and_the_remedy() -> None:
    warning = warning_of_shared(Generated(1, 2))
    assert "49 of the 50 held-out tasks of Generated are training tasks too (test/0 is train/1)" in warning
    assert "seed + i" in warning
    assert warning_of_shared(Generated(1, 1000)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("args", [{}, {"style": "word"}])
def test_reverse_text_shares_none(args: dict[str, object]) -> None:
    taskset = load_taskset("reverse-text", args)
    train, test = ([*taskset.tasks(split)] for split in ("train", "test"))
    assert shared_tasks(train, test) == [] and len(test) >= 200
    assert len({task.data["text"] for task in train}) == len(train)
