"""reasoning-gym: tasks, splits, rewards, scripts, mixtures and levels, with the real package."""

import re

import pytest

from packages.envs.tests.episodes import opening_of, turns_of
from slimrl.environments.find import load_taskset, prepare_taskset, tasks_of
from slimrl.errors import UserError
from slimrl.types import Task, Turn
from slimrl_envs.reasoning_gym.part import EXACT_ONLY

pytest.importorskip("reasoning_gym", reason="needs the extra [reasoning-gym]")
pytest.importorskip("drawsvg", reason="needs the extra [reasoning-gym]: drawsvg")

SMALL = {"num_train": 40, "num_test": 10}
MIXTURE = "reasoning-gym:chain_sum+leg_counting"


def taskset(name, **args):
    return load_taskset(f"reasoning-gym:{name}", SMALL | args)


def answered(found, task: Task, reply: str) -> Turn:
    (turn,) = turns_of(found, task, [reply])
    assert turn.done
    return turn


def test_held_out_tasks_are_the_same_whatever_is_trained_on():
    assert tasks_of(taskset("chain_sum"), "test") == tasks_of(taskset("chain_sum", num_train=5), "test")


def test_another_seed_gives_other_tasks():
    first, second = (tasks_of(taskset("chain_sum", seed=seed), "train") for seed in (0, 1))
    assert not {task.data["question"] for task in first} & {task.data["question"] for task in second}


def test_a_mixture_has_equal_shares_its_configs_and_a_metric_for_each_task():
    found = load_taskset(MIXTURE, SMALL | {"config": {"chain_sum": {"min_terms": 2, "max_terms": 2}}})
    names = [task.data["task"] for task in tasks_of(found, "train")]
    assert names.count("chain_sum") == 20
    assert names[:20] != ["chain_sum"] * 20
    for task in tasks_of(found, "test"):
        turn = answered(found, task, found.scripts["expert"](task, 0)[-1]["content"])
        assert turn.metrics[task.data["task"]] == turn.reward == 1.0
        if task.data["task"] == "chain_sum":
            assert sum(task.data["question"].count(sign) for sign in (" + ", " - ")) == 1


def test_a_system_prompt_replaces_the_instruction_and_lets_the_policy_think():
    found = taskset("chain_sum", system="Think first.")
    task = tasks_of(found, "train")[0]
    conversation = found.scripts["expert"](task, 0)
    assert opening_of(found, task) == conversation[:2]
    assert conversation[0] == {"role": "system", "content": "Think first."}
    assert answered(found, task, f"1 + 1 is 2. {conversation[-1]['content']}").reward == 1.0


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("chain_sums", {}, "Did you mean `chain_sum`"),
        ("composite", {}, "mixture"),
        ("coin_flip", {}, "its scorer pays `0` in full"),
        ("", {}, "no task"),
        ("chain_sum+chain_sum", {}, "twice"),
        ("chain_sum", {"config": {"min_term": 2}}, "Did you mean `min_terms`"),
        ("chain_sum", {"config": {"seed": 2}}, "args `seed`"),
        ("chain_sum", {"config": {"min_terms": 9, "max_terms": 2}}, "refuses the config"),
        ("chain_sum", {"answer_format": "tags"}, "Did you mean `tag`"),
        ("chain_sum", {"seed": 101}, "`seed` cannot be 101: .* 100"),
        ("chain_sum", {"num_test": -1}, "num_test"),
        ("chain_sum+lcm", {"config": {"min_terms": 2}}, "under its name"),
        ("chain_sum+lcm", {"config": {"lcm": 2}}, "table"),
    ],
)
def test_a_mistake_is_named(name, args, said):
    with pytest.raises(UserError, match=said):
        taskset(name, **args)


def test_fewer_questions_than_asked_for_are_said(capsys):
    found = taskset("count_bits", config={"min_n": 1, "max_n": 9}, num_test=1)
    assert 0 < len(tasks_of(found, "train")) < 40
    assert "different questions" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(EXACT_ONLY))
def test_where_the_form_alone_would_pay_only_a_full_score_counts(name):
    found = taskset(name)
    for task in tasks_of(found, "test")[:3]:
        right = task.data["answer"]
        assert answered(found, task, f"<answer>{right}</answer>").reward == 1.0
        for wrong in (re.sub(r"\d", "0", right), "", "0"):
            assert answered(found, task, f"<answer>{wrong}</answer>").reward in (0.0, float(wrong == right))


def test_what_one_answer_earns_is_said_where_it_is_much(capsys):
    prepare_taskset(taskset("syllogism"))
    assert "syllogism pays 0.68 on average if every answer is `Yes`" in capsys.readouterr().err
    prepare_taskset(taskset("chain_sum"))
    assert capsys.readouterr().err == ""
