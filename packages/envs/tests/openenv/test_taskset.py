"""What the args of `openenv:` mean, without a server."""

import pytest

from slimrl.environments.find import load_taskset
from slimrl.environments.splits import shared_tasks
from slimrl.errors import RolloutError
from slimrl_envs.openenv.actions import is_tool_schema, reader_of, text_of

HERE = "http://127.0.0.1:1"  # where nobody listens


def test_splits_have_seeds_of_their_own():
    sizes = {"num_train": 50, "num_test": 5}
    taskset = load_taskset(f"openenv:{HERE}", {**sizes, "seed": 7, "reset_args": {"level": 2}})
    splits = [taskset.tasks(split) for split in ("train", "test")]
    seeds = [task.data["seed"] for tasks in splits for task in tasks]
    assert len(seeds) == len({*seeds}) == 55 and max(seeds) < 2**32
    assert shared_tasks(*splits) == [] and all(task.data["level"] == 2 for task in splits[0])


TEXT = {"properties": {"code": {"type": "string"}, "metadata": {"type": "object"}}}
BOTH = {"properties": {"code": {"type": "string"}, "lines": {"type": "integer"}}, "required": ["code"]}


@pytest.mark.parametrize(
    ("schema", "reply", "action"),
    [
        (TEXT, " 1 + 1 ", {"code": "1 + 1"}),
        (BOTH, 'so <action>{"code": "1"}</action> <action>{"code": "2"}</action>', {"code": "1"}),
        (BOTH, '<action>{"code": "1", "lines": 2}</action>', {"code": "1", "lines": 2}),
    ],
)
def test_the_form_of_an_action_follows_its_schema(schema, reply, action):
    assert not is_tool_schema(schema) and is_tool_schema({"properties": {"metadata": {}}})
    assert reader_of(schema).read(reply) == action


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
