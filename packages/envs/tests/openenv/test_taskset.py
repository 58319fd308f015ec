"""What the args of `openenv:` mean, without a server."""

import asyncio
import json
from pathlib import Path

import pytest

from slimrl.environments.find import load_taskset
from slimrl.environments.splits import shared_tasks
from slimrl.errors import RolloutError, UserError
from slimrl.types import Task
from slimrl_envs.openenv.actions import act_tool, is_tool_schema, reader_of, text_of
from slimrl_envs.openenv.taskset import OpenEnv

HERE = "http://127.0.0.1:1"  # where nobody listens


def test_splits_have_seeds_of_their_own():
    taskset = load_taskset(f"openenv:{HERE}", {"num_train": 50, "num_validation": 5, "num_test": 5, "seed": 7})
    splits = [taskset.tasks(split) for split in ("train", "validation", "test")]
    assert [len(tasks) for tasks in splits] == [50, 5, 5]
    seeds = [task.data["seed"] for tasks in splits for task in tasks]
    assert len({*seeds}) == 60 and max(seeds) < 2**32
    assert shared_tasks(splits[0], splits[2]) == []


def test_tasks_of_a_file_are_the_arguments_of_reset(tmp_path):
    rows, bad = tmp_path / "tasks.jsonl", tmp_path / "bad.jsonl"
    rows.write_text("\n".join(json.dumps({"game": number}) for number in range(100)))
    taskset = OpenEnv(HERE, task_file=str(rows), reset_args={"level": 2})
    train, test = taskset.tasks("train"), taskset.tasks("test")
    assert sorted(task.data["game"] for task in (*train, *test)) == list(range(100))
    assert 5 < len(test) < 40 and all(task.data["level"] == 2 for task in train)
    bad.write_text("[1]\n")
    with pytest.raises(UserError, match=r"bad\.jsonl:1 is no JSON object"):
        OpenEnv(HERE, task_file=str(rows), test_file=str(bad)).tasks("test")


def test_a_python_without_openenv_is_told_what_to_do(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    with pytest.raises(UserError, match="envs/openenv/bin/python"):
        OpenEnv("served:guess").prepare()


TEXT = act_tool({"properties": {"code": {"type": "string"}, "metadata": {"type": "object"}}})
BOTH = act_tool({"properties": {"code": {"type": "string"}, "lines": {"type": "integer"}}, "required": ["code"]})


@pytest.mark.parametrize(
    ("tool", "tag", "field", "reply", "action"),
    [
        (TEXT, "", "", " 1 + 1 ", {"code": "1 + 1"}),
        (TEXT, "code", "", "so <code>1</code> <code>2</code>", {"code": "1"}),
        (BOTH, "", "code", "1", {"code": "1"}),
        (BOTH, "", "", '<action>{"code": "1", "lines": 2}</action>', {"code": "1", "lines": 2}),
    ],
)
def test_the_form_of_an_action_follows_its_schema(tool, tag, field, reply, action):
    assert reader_of(tool, "auto", tag, field).read(reply) == action


def test_a_form_that_the_schema_does_not_have_is_refused():
    assert is_tool_schema({"properties": {"metadata": {}}})
    for format, field, said in (("auto", "lines", "no text `lines`"), ("text", "", "needs an action with one text")):
        with pytest.raises(UserError, match=said):
            reader_of(BOTH, format, "", field)


CALLED = {"tool_name": "add", "result": {"content": [{"type": "text", "text": "6"}]}, "error": None, "metadata": {}}
SILENT = [{"type": "text", "text": " \n"}, {"type": "resource", "resource": {"uri": "file:///a", "blob": "aGk="}}]


@pytest.mark.parametrize(
    ("fields", "names", "text"),
    [
        (CALLED, (), "6"),
        ({**CALLED, "result": {"content": SILENT}}, (), " \n\n[resource file:///a]"),
        *(
            ({**CALLED, "result": {"content": SILENT, key: {"t": 21.5}}}, (), '[resource file:///a]\n{"t": 21.5}')
            for key in ("structured_content", "structuredContent")
        ),
        ({**CALLED, "error": {"message": "no"}}, (), "Error: no"),
        ({"a": "x", "b": [1], "c": None}, ["b"], "b: [1]"),
        ({}, (), "(nothing to see)"),
    ],
)
def test_observations_become_texts(fields, names, text):
    assert text_of(fields, names) == text


def test_a_field_that_is_missing_drops_the_episode():
    with pytest.raises(RolloutError, match="no field `z`"):
        text_of({"a": "x"}, ["z"])


def test_an_episode_is_closed_also_if_it_never_began():
    asyncio.run(OpenEnv(HERE).environment(Task("a", {})).close())
