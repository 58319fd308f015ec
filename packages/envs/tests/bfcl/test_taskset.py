"""BFCL's tasks: splits, rewards, episodes of several turns and scripts, with the real package bfcl-eval."""

import json
import sys
import time
from dataclasses import replace

import pytest

from packages.envs.tests.episodes import opening_of, replies_of, reward_of, turns_of
from slimrl.environments.find import load_taskset, prepare_taskset, tasks_of
from slimrl.errors import UserError
from slimrl.types import Rollout, StopReason, Task, Taskset, Turn
from slimrl_envs.bfcl.multi_turn import MAX_STEPS, World
from slimrl_envs.bfcl.package import load_entries
from slimrl_envs.bfcl.taskset import DONE, HELD_OUT_APIS, MULTI, REFUSAL, SINGLE

pytest.importorskip("bfcl_eval", reason="needs bfcl-eval, without its requirements")

ALL = "+".join(SINGLE + MULTI)


def whole(category: str, **args: object) -> Taskset:
    return load_taskset(f"bfcl:{category}", {"held_out": "all", **args})


def task_of(taskset: Taskset, name: str) -> Task:
    return next(task for task in tasks_of(taskset, "test") if task.id == name)


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def reply_calls(replies: list[str]) -> int:
    return sum(reply.count("<tool_call>") for reply in replies)


def play_expert(taskset: Taskset, task: Task) -> list[Turn]:
    return turns_of(taskset, task, replies_of(taskset.scripts["expert"](task, 0)))


def test_a_held_out_function_is_in_no_training_task():
    taskset = load_taskset(f"bfcl:{ALL}", {})
    train, middle, test = ({task.id for task in tasks_of(taskset, split)} for split in ("train", "validation", "test"))
    entries = {name: entry for category in SINGLE + MULTI for name, entry in load_entries(category).items()}
    assert entries.keys() == train | middle | test and len(entries) == len(train) + len(middle) + len(test)

    def functions(names: set[str]) -> set[str]:
        return {function["name"] for name in names for function in entries[name]["function"]}

    called = {
        name for one in test for truth in entries[one]["ground_truth"] if isinstance(truth, dict) for name in truth
    }
    assert called and not called & functions(train)
    multi = {one for one in test if one.startswith("multi_turn")}
    assert multi and not functions(multi) & functions({one for one in train if one.startswith("multi_turn")})
    assert all(set(entries[one]["involved_classes"]) <= {*HELD_OUT_APIS} for one in multi)


@pytest.mark.parametrize(("category", "fewest"), [("simple_python", 400), ("live_simple", 256), ("parallel", 200)])
def test_the_ground_truth_is_right(category: str, fewest: int):
    taskset = whole(category)
    assert sum(reward_of(play_expert(taskset, task)) for task in tasks_of(taskset, "test")) >= fewest


@pytest.mark.slow
@pytest.mark.parametrize("category", MULTI)
def test_the_ground_truth_of_several_turns_is_right_on_all_tasks(category: str):
    taskset = whole(category)
    assert [reward_of(play_expert(taskset, task)) for task in tasks_of(taskset, "test")] == [1.0] * 200


AREA = {"base": 10, "height": 5}


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        (call("calculate_triangle_area", **AREA), 1.0),
        (f"I call it. {call('calculate_triangle_area', unit='units', **AREA)}", 1.0),
        (f"<think>{call('no_such_function')}</think>{call('calculate_triangle_area', **AREA)}", 1.0),
        (call("calculate_triangle_area", base=5, height=10), 0.0),
        (call("calculate_triangle_area", base="10", height="5"), 0.0),
        (call("calculate_triangle_area", base=10), 0.0),
        (call("calculate_triangle_area", base=10, height={"a": [None]}), 0.0),
        (call("calculate_triangle_area", **AREA) * 2, 0.0),
        (call("calculate_square_area", **AREA), 0.0),
        ('<tool_call>{"name": "calculate_triangle_area", "arguments": "[]"}</tool_call>', 0.0),
        ("calculate_triangle_area(base=10, height=5)", 0.0),
        ("", 0.0),
    ],
)
def test_bfcls_checker_decides_about_a_reply(reply: str, reward: float):
    taskset = whole("simple_python")
    (turn,) = turns_of(taskset, task_of(taskset, "simple_python_0"), [reply])
    assert (turn.done, turn.reward, turn.metrics["simple_python"]) == (True, reward, reward)


def test_functions_are_shown_as_json_schemas_of_tools():
    taskset = whole("multiple+live_simple")
    tools = opening_of(taskset, task_of(taskset, "multiple_0"))[0]["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["triangle_properties.get", "circle_properties.get"]
    properties = tools[1]["function"]["parameters"]["properties"]
    assert (tools[1]["function"]["parameters"]["type"], properties["radius"]["type"]) == ("object", "number")
    assert '"dict"' not in json.dumps([opening_of(taskset, task) for task in tasks_of(taskset, "test")])


def test_irrelevance_pays_for_a_reply_without_a_call_and_says_so(capsys: pytest.CaptureFixture[str]):
    taskset = whole("irrelevance")
    task = tasks_of(taskset, "test")[0]
    assert [reward_of(turns_of(taskset, task, [reply])) for reply in (REFUSAL, "", call("any"))] == [1.0, 1.0, 0.0]
    prepare_taskset(taskset)
    assert "a reply without a call earns 1" in capsys.readouterr().err


def test_several_turns_answer_calls_by_results_and_the_rest_by_the_next_request():
    taskset = whole("multi_turn_base")
    task = task_of(taskset, "multi_turn_base_0")
    replies = [
        call("cd", folder="document") + call("mkdir", dir_name="temp"),
        "That is all.",
        call("ls"),
        DONE,
        DONE,
        DONE,
    ]
    turns = turns_of(taskset, task, replies)
    results = [(message["role"], message["content"]) for message in turns[0].messages]
    assert results == [("tool", '{"current_working_directory": "document"}'), ("tool", "None")]
    assert turns[1].messages == [{"role": "user", "content": task.data["question"][1]}]
    assert "temp" in turns[2].messages[0]["content"]
    assert turns[-1].done and reward_of(turns) == 0.0
    assert turns[-1].metrics == {"correct": 0.0, "multi_turn_base": 0.0, "turns_right": 0.0, "calls": 3.0}


def test_each_right_turn_pays_a_share_if_asked_for():
    taskset = whole("multi_turn_base", partial=True)
    task = task_of(taskset, "multi_turn_base_0")
    replies = replies_of(taskset.scripts["expert"](task, 0))
    assert [turn.reward for turn in turns_of(taskset, task, replies)] == [0, 0.25] * 4
    broken = [*replies[:4], DONE, *replies[6:]]
    assert [turn.reward for turn in turns_of(taskset, task, broken)] == [0, 0.25, 0, 0.25, 0, 0, 0]


def test_functions_that_are_added_later_are_shown_in_the_request():
    taskset = whole("multi_turn_miss_func", partial=True)
    task = task_of(taskset, "multi_turn_miss_func_0")
    names = [tool["function"]["name"] for tool in opening_of(taskset, task)[0]["tools"]]
    assert "sort" not in names and "cd" in names
    turns = play_expert(taskset, task)
    shown = [message["content"] for turn in turns for message in turn.messages if message["role"] == "user"]
    assert [text.startswith('[{"type": "function", "function": {"name": "sort"') for text in shown].count(True) == 1
    assert reward_of(turns) == 1.0
    assert reward_of(turns_of(taskset, task, [REFUSAL] * 5)) == 0.0


def test_too_many_replies_with_calls_end_the_episode():
    taskset = whole("multi_turn_base")
    turns = turns_of(taskset, tasks_of(taskset, "test")[0], [call("ls")] * 30)
    assert (len(turns), turns[-1].done, reward_of(turns)) == (MAX_STEPS + 1, True, 0.0)


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("power", {"base": 10, "exponent": 10**10}, "must be at most 1000"),
        ("round_number", {"number": 5, "decimal_places": -(10**9)}, "must be at least -1000"),
        ("logarithm", {"value": 2, "base": 10, "precision": 10**9}, "must be at most 1000"),
        ("square_root", {"number": 2, "precision": 10**9}, "must be at most 1000"),
        ("add", {"a": "__import__('os')", "b": 1}, "must be a number"),
        ("add", {"a": 1, "b": 2, "c": 3}, "there is no parameter `c`"),
        ("exit", {}, "there is no tool `exit`"),
        ("_load_scenario", {"scenario": {}, "long_context": True}, "there is no tool"),
        ("__init__", {}, "there is no tool"),
        ("mean", {"numbers": [1e308, 1e308]}, "Infinity"),
        ("divide", {"a": 1, "b": 0}, "Cannot divide by zero"),
    ],
)
def test_calls_are_bounded_checked_against_schemas_and_never_evaluated(name: str, arguments: dict, answer: str):
    entry = next(one for one in load_entries("multi_turn_base").values() if "MathAPI" in one["involved_classes"])
    began = time.perf_counter()
    assert answer in World(entry).execute((name, arguments))
    assert time.perf_counter() - began < 1.0


@pytest.mark.parametrize(
    ("category", "replies", "kind"),
    [
        ("simple_python", [call("no_such_function")], "simple_function_checker:wrong_func_name"),
        ("parallel", [REFUSAL], "parallel_function_checker_no_order:wrong_count"),
        ("irrelevance", [call("any")], "irrelevance_error:decoder_success"),
        ("irrelevance", [REFUSAL], None),
        ("multi_turn_base", [DONE] * 9, "multi_turn:empty_turn_model_response"),
    ],
)
def test_a_failure_has_bfcls_name(category: str, replies: list[str], kind: str | None):
    taskset = whole(category)
    task = tasks_of(taskset, "test")[0]
    rollout = Rollout(
        *(f"bfcl/{task.id}", (), (), (), (), 0.0),
        messages=[{"role": "assistant", "content": reply} for reply in replies],
        metrics={"calls": float(reply_calls(replies))},
    )
    assert taskset.failure_kind(rollout) == kind
    assert taskset.failure_kind(replace(rollout, metrics={"calls": 7.0})) == ""  # they were read in another form


def test_an_episode_that_was_cut_off_has_no_name_of_bfcls():
    taskset = whole("multi_turn_base")
    rollout = Rollout("bfcl/multi_turn_base_0", (), (), (), (), 0.0, stop_reason=StopReason.MAX_TURNS)
    assert taskset.failure_kind(rollout) == ""


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("simple", {}, "there is no category `simple`"),
        ("parallel+parallel", {}, "twice"),
        ("parallel", {"held_out": "none"}, "no `held_out` 'none'"),
        ("parallel", {"partial": True}, "`partial` has no effect"),
    ],
)
def test_wrong_args_are_refused(name: str, args: dict, message: str):
    with pytest.raises(UserError, match=message):
        load_taskset(f"bfcl:{name}", args)


def test_the_package_stays_as_it_is():
    whole("simple_python+multi_turn_base")
    assert "bfcl_eval.constants.model_config" not in sys.modules
    assert "bfcl_eval.eval_checker.ast_eval.ast_checker" not in sys.modules
