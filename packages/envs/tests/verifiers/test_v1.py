"""Tasksets of verifiers 0.4, unmodified, played by slimrl's agent loop: `make verifiers`."""

import json

import pytest

from packages.envs.tests.verifiers.plays import HAS_VERIFIERS, assert_unpaid, play, play_all
from slimrl.environments.find import load_taskset, tasks_of
from slimrl.environments.reverse_text import ReverseText
from slimrl.errors import RolloutError, UserError

pytestmark = [
    pytest.mark.skipif(not HAS_VERIFIERS, reason="verifiers 0.4 is not installed; `make verifiers` installs it"),
    # Its dependencies', on import.
    pytest.mark.filterwarnings("default"),
]


def call(thing):
    return f"<tool_call>\n{json.dumps({'name': 'shop_price', 'arguments': {'thing': thing}})}\n</tool_call>"


def test_rewards_are_those_of_the_native_environment():
    own, native = load_taskset("verifiers:slim-reverse-v1", {}), ReverseText(num_train=40)
    by_text = {task.data["text"]: task for task in native.tasks("train")}
    for task in tasks_of(own, "train")[:5]:
        text = task.data["text"]
        for answer in (text[::-1], text, text[:2], ""):
            for form in ("<reversed_text>{}</reversed_text>", "{}", "<reversed_text> {} </reversed_text>x"):
                opening, (turn,) = play(own, task, [form.format(answer)])
                expected_opening, (expected,) = play(native, by_text[text], [form.format(answer)])
                assert opening == expected_opening
                assert (turn.reward, turn.metrics["tagged"]) == (expected.reward, expected.metrics["tagged"])


def test_splits_are_apart():
    alone = load_taskset("verifiers:slim-reverse-v1", {})
    train, test = ({task.data["text"] for task in tasks_of(alone, split)} for split in ("train", "test"))
    assert len(train) + len(test) == 40 and test and not train & test
    own = load_taskset("verifiers:slim-reverse-v1", {"test": {"taskset": {"split": "test", "size": 5}}})
    held_out = tasks_of(own, "test")
    assert (len(tasks_of(own, "train")), len(held_out), tasks_of(own, "validation")) == (40, 5, [])
    texts = [task.data["text"] for task in held_out]
    assert {*texts} == {task.data["text"] for task in ReverseText(num_test=5).tasks("test")}
    _, turns = play(own, held_out[0], [f"<reversed_text>{texts[0][::-1]}</reversed_text>"])
    assert turns[-1].reward == 1.0


def test_an_env_is_the_user_of_several_turns():
    taskset = load_taskset("verifiers:slim-guess-v1", {"num_tasks": 20})
    task = tasks_of(taskset, "train")[1]
    _, turns = play(taskset, task, ["100", "no", f"It is {task.data['number']}."])
    assert [turn.messages[0]["content"] if turn.messages else "" for turn in turns] == ["Lower.", "No number.", ""]
    assert turns[-1].reward == 1.0 and turns[-1].metrics == {"guesses": 3.0, "found": 1.0}


@pytest.mark.parametrize(("reply", "num_turns"), [("I give up", 1), ("100", 6)])
def test_stops_and_limits_of_turns_end_an_episode(reply, num_turns):
    taskset = load_taskset("verifiers:slim-guess-v1", {"num_tasks": 20})
    _, turns = play(taskset, tasks_of(taskset, "train")[0], [reply])
    assert len(turns) == num_turns and turns[-1].done and turns[-1].reward == 0.0


@pytest.mark.parametrize("own_server", [False, True])
def test_tools_are_those_of_an_mcp_server(own_server):
    taskset = load_taskset("verifiers:slim-shop-v1", {"taskset": {"task": {"own_server": own_server}}})
    task = next(task for task in tasks_of(taskset, "train") if task.data["thing"] == "hat")
    opening, turns = play(
        taskset, task, [call("hat"), call("elk"), call("hat").replace("price", "sell"), "It costs 12."]
    )
    assert opening[0]["tools"][0]["function"]["name"] == "shop_price"
    results = [turn.messages[0] for turn in turns[:-1]]
    assert results[0] == {"role": "tool", "content": "12", "name": "shop_price"}
    assert "elk is not for sale" in results[1]["content"]
    assert "unknown tool 'shop_sell'" in results[2]["content"]
    assert turns[-1].reward == 1.0 and turns[-1].metrics["asked"] == 1.0


def test_a_harness_of_the_taskset_is_reached_by_http():
    taskset = load_taskset("verifiers:slim-http-v1", {})
    opening, turns = play(taskset, tasks_of(taskset, "train")[0], ["one", "two"])
    assert opening == [{"role": "user", "content": "question 0"}]
    assert turns[0].messages == [{"role": "user", "content": "again"}]
    assert turns[-1].reward == 1.0


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("slim-http-v1", {"agent": {"harness": {"id": "slim-http-v1", "rewrites": True}}}),
        ("slim-guess-v1", {"num_tasks": 20, "twice": True}),
    ],
)
def test_a_rollout_that_is_more_than_one_conversation_is_branched(name, args):
    taskset = load_taskset(f"verifiers:{name}", args)
    with pytest.raises(RolloutError, match="branched"):
        play(taskset, tasks_of(taskset, "train")[0], ["one", "two"])


def test_the_time_limit_of_the_env_is_kept():
    taskset = load_taskset("verifiers:slim-guess-v1", {"num_tasks": 20, "timeout": {"episode": 1e-9}})
    with pytest.raises(RolloutError, match=r"timeout\.episode"):
        play(taskset, tasks_of(taskset, "train")[0], ["I give up"])


def test_many_episodes_at_once_do_not_meet():
    taskset = load_taskset("verifiers:slim-guess-v1", {"num_tasks": 40})
    tasks = tasks_of(taskset, "train")
    results = play_all(taskset, [(task, ["50"]) for task in tasks])
    expected = [task.data["number"] == 50 for task in tasks]
    assert [turns[-1].reward == 1.0 for _, turns in results] == expected
    assert [opening[0]["content"] for opening, _ in results] == [task.data["prompt"] for task in tasks]


ENDPOINT = {"client": {"type": "eval", "base_url": "http://127.0.0.1:9/v1"}, "model": "m"}


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("slim-guess-v1", {}, "num_tasks = 1000"),
        ("slim-guess-v1", {"num_tasks": 5, "player": {"max_output_tokens": 5}}, "max_output_tokens` cannot act"),
        ("slim-reverse-v1", {"taskset": {"no_such_field": 1}}, "no_such_field"),
        ("no-such-taskset", {}, "no-such-taskset"),
        ("slim-reverse-v1", {"agent": ENDPOINT}, "0 of its seats"),
    ],
)
def test_what_cannot_work_is_said(name, args, said):
    with pytest.raises(UserError, match=said):
        load_taskset(f"verifiers:{name}", args)


@pytest.mark.parametrize(
    ("name", "args"), [("slim-reverse-v1", {}), ("slim-guess-v1", {"num_tasks": 20}), ("slim-shop-v1", {})]
)
def test_hostile_replies_earn_nothing(name, args):
    taskset = load_taskset(f"verifiers:{name}", args)
    assert_unpaid(taskset, tasks_of(taskset, "train")[1])
