"""What a user's taskset gives is checked where it is asked: no traceback, whatever it does."""

import pytest

from slimrl.environments.find import tasks_of
from slimrl.environments.reverse_text import ReverseText
from slimrl.environments.scripts import demonstrate
from slimrl.errors import UserError
from slimrl.eval.evaluate import tasks_held_out
from slimrl.launch.tasksets import check_experts
from slimrl.orchestrator.curriculum import Curriculum
from slimrl.types import Task, Taskset
from tests.rollout.scripted import OneTask, Quiz, user

TASK = Task("one", {})


class Given(Taskset):
    """A taskset of which a function makes the tasks and another the demonstrations."""

    def __init__(self, tasks=lambda: [], solve=lambda: []):
        self._tasks, self._solve = tasks, solve

    def tasks(self, split):
        return self._tasks()

    def environment(self, task):
        return Quiz(task)

    @property
    def scripts(self):
        return {"expert": lambda task, seed: self._solve()}


def fails(error):
    def call():
        raise error

    return call


def test_tasks_may_come_from_a_generator():
    assert tasks_of(Given(lambda: (Task(str(n), {}) for n in range(2))), "test") == [Task("0", {}), Task("1", {})]


BAD_TASKS = {
    "raises": (fails(KeyError("path")), r"Given\.tasks\('train'\) failed: KeyError: 'path'"),
    "exits": (fails(SystemExit(1)), "failed: SystemExit: 1"),
    "nothing": (lambda: None, "failed: TypeError: 'NoneType' object is not iterable"),
    "not tasks": (lambda: [TASK, {"id": "two"}], "number 1 is {'id': 'two'}"),
    "id is a number": (lambda: [Task(7, {})], r"with a text as id, but number 0 is Task\(id=7"),
    "same id twice": (lambda: [TASK, Task("one", {"x": 1})], "two tasks with the id `one`"),
    "a set in the data": (lambda: [Task("one", {"seen": {1, 2}})], "the data of task `one` must be JSON"),
    "a number as a key": (lambda: [Task("one", {3: "x"})], "the data of task `one` must be JSON"),
    "an object in the data": (lambda: [Task("one", {"x": object()})], "the data of task `one` must be JSON"),
    "a mistake of the user's": (fails(UserError("set `args.path`")), r"^set `args\.path`$"),
}


@pytest.mark.parametrize("fault", BAD_TASKS)
def test_tasks_that_are_none_are_a_user_error(fault):
    tasks, message = BAD_TASKS[fault]
    with pytest.raises(UserError, match=message):
        Curriculum([Given(tasks)], "seed")
    with pytest.raises(UserError, match=message.replace("train", "test")):
        tasks_held_out({"given": Given(tasks)}, "test", 3)


BAD_DEMONSTRATIONS = {
    "raises": (fails(KeyError("answer")), r"Given\.scripts\['expert'\]\(one\) failed: KeyError: 'answer'"),
    "nothing": (lambda: None, "failed: TypeError"),
    "text": (lambda: ["the answer"], "needs a role and a text as content, not 'the answer'"),
    "no content": (lambda: [user("q"), {"role": "assistant"}], "needs a role and a text as content, not {'role'"),
}


@pytest.mark.parametrize("fault", BAD_DEMONSTRATIONS)
def test_a_demonstration_that_is_none_is_a_user_error(fault):
    solve, message = BAD_DEMONSTRATIONS[fault]
    with pytest.raises(UserError, match=message):
        demonstrate(Given(solve=solve), TASK)


def test_a_demonstration_is_the_experts_and_a_taskset_without_one_says_what_to_do():
    taskset = ReverseText(num_train=1)
    (task,) = tasks_of(taskset, "train")
    assert demonstrate(taskset, task) == taskset.scripts["expert"](task, 0)
    with pytest.raises(UserError, match=r'OneTask has no script "expert"'):
        demonstrate(OneTask(Quiz), TASK)
    check_experts([Given()], "rl")
    for command, advice in (("rl", "--warmup.max_steps 0"), ("sft", "--data.type file --data.path")):
        with pytest.raises(UserError, match=r'OneTask has no script "expert"') as caught:
            check_experts([Given(), OneTask(Quiz)], command)
        assert advice in str(caught.value) and ("--data" in str(caught.value)) == (command == "sft")
