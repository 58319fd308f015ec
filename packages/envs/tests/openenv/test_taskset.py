"""What the args of `openenv:` mean, without a server."""

import json
import os
import stat

import pytest

from packages.envs.tests.openenv.fake_server import observation, serving
from slimrl.environments.find import load_taskset
from slimrl.environments.splits import shared_tasks
from slimrl.errors import RolloutError, UserError
from slimrl.types import Task
from slimrl_envs.openenv.actions import act_tool, is_tool_schema, reader_of, text_of
from slimrl_envs.openenv.server import Server, engine_of
from slimrl_envs.openenv.taskset import OpenEnv


def test_splits_have_seeds_of_their_own():
    taskset = load_taskset(
        "openenv:http://127.0.0.1:1", {"num_train": 50, "num_validation": 5, "num_test": 5, "seed": 7}
    )
    splits = [taskset.tasks(split) for split in ("train", "validation", "test")]
    assert [len(tasks) for tasks in splits] == [50, 5, 5]
    seeds = [task.data["seed"] for tasks in splits for task in tasks]
    assert len({*seeds}) == 60 and max(seeds) < 2**32
    assert shared_tasks(splits[0], splits[2]) == []


def test_tasks_of_a_file_are_the_arguments_of_reset(tmp_path):
    rows = [{"game": number} for number in range(100)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    taskset = OpenEnv("http://127.0.0.1:1", task_file=str(tmp_path / "tasks.jsonl"), reset_args={"level": 2})
    train, test = taskset.tasks("train"), taskset.tasks("test")
    assert sorted(task.data["game"] for task in (*train, *test)) == list(range(100))
    assert 5 < len(test) < 40 and all(task.data["level"] == 2 for task in train)
    (tmp_path / "bad.jsonl").write_text("[1]\n")
    with pytest.raises(UserError, match=r"bad\.jsonl:1 is no JSON object"):
        OpenEnv("http://127.0.0.1:1", task_file=str(tmp_path / "bad.jsonl")).tasks("train")


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("echo", {}, "names no environment"),
        ("docker/", {}, "names no environment"),
        ("docker/--privileged", {}, "names no environment"),
        ("http://me:secret@host", {}, "a user or a password"),
        ("ws://host/ws?token=1", {}, "a query"),
        ("http://", {}, "no URL with a host"),
        ("http://127.0.0.1:1", {"format": "jsn"}, "Did you mean `json`"),
        ("http://127.0.0.1:1", {"tag": "<a>"}, "is no name of a tag"),
        ("http://127.0.0.1:1", {"python": "python3"}, "its own"),
        ("http://127.0.0.1:1", {"num_train": -1}, "`num_train` must be from 0"),
        ("http://127.0.0.1:1", {"test_file": "x"}, "needs `task_file`"),
        ("http://127.0.0.1:1", {"task_file": "x", "num_train": 5}, "`num_train` has no effect"),
        ("http://127.0.0.1:1", {"format": "json", "text_field": "x"}, "`text_field` has no effect"),
    ],
)
def test_what_cannot_work_is_said_at_once(name, args, said):
    with pytest.raises(UserError, match=said):
        load_taskset(f"openenv:{name}", args)


def test_a_python_without_openenv_is_told_what_to_do():
    with pytest.raises(UserError, match="envs/openenv/bin/python"):
        OpenEnv("json:JSONDecoder").prepare()


def test_an_image_needs_an_engine(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="needs Docker or Podman"):
        OpenEnv("docker/echo-env:latest").prepare()


def test_an_engine_that_does_not_answer_is_none(monkeypatch, tmp_path):
    for engine, status in (("docker", 1), ("podman", 0)):
        (tmp_path / engine).write_text(f"#!/bin/sh\necho $0\nexit {status}\n")
        os.chmod(tmp_path / engine, stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert engine_of() == "podman"


def test_the_commands_of_an_engine(monkeypatch, tmp_path):
    """A program in the place of an engine notes what it is asked."""
    with serving(observation(done=True)) as base:
        script = f"""#!/bin/sh
echo "$@" >> {tmp_path}/asked
case "$1" in info) echo well;; run) echo pulled; echo c0ffee;; inspect) cat {tmp_path}/runs;;
port) echo 127.0.0.1:{base.rpartition(":")[2]};; esac
"""
        (tmp_path / "docker").write_text(script)
        os.chmod(tmp_path / "docker", stat.S_IRWXU)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        taskset = OpenEnv("docker/echo-env:latest")
        taskset.prepare()
        taskset.close()
        container = Server("docker/echo-env:latest")
        for runs in ("true", "true", "false"):
            (tmp_path / "runs").write_text(runs)
            container.url()
        container.close()
    start = ["info", "run --detach --rm --publish 127.0.0.1::8000 echo-env:latest", "port c0ffee 8000/tcp"]
    inspect, end = "inspect --format {{.State.Running}} c0ffee", "rm --force c0ffee"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == [*start, end, *start, inspect, inspect, end, *start, end]


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
    with pytest.raises(UserError, match="no text `lines`"):
        reader_of(BOTH, "auto", "", "lines")
    with pytest.raises(UserError, match="needs an action with one text"):
        reader_of(BOTH, "text", "", "")


def test_observations_become_texts():
    called = {"tool_name": "add", "result": {"content": [{"type": "text", "text": "6"}]}, "error": None, "metadata": {}}
    assert text_of(called, ()) == "6"
    silent = [{"type": "text", "text": " \n"}, {"type": "resource", "resource": {"uri": "file:///a", "blob": "aGk="}}]
    assert text_of({**called, "result": {"content": silent}}, ()) == " \n\n[resource file:///a]"
    for key in ("structured_content", "structuredContent"):
        shown = text_of({**called, "result": {"content": silent, key: {"t": 21.5}}}, ())
        assert shown == '[resource file:///a]\n{"t": 21.5}'
    assert text_of({**called, "error": {"message": "no"}}, ()) == "Error: no"
    assert text_of({"a": "x", "b": [1], "c": None}, ["b"]) == "b: [1]"
    assert text_of({}, ()) == "(nothing to see)"
    with pytest.raises(RolloutError, match="no field `z`"):
        text_of({"a": "x"}, ["z"])


def test_an_episode_is_closed_also_if_it_never_began():
    import asyncio

    asyncio.run(OpenEnv("http://127.0.0.1:1").environment(Task("a", {})).close())
