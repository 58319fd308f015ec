"""Episodes with servers of OpenEnv itself, which are started here by its own Python."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import slimrl
import slimrl_envs.openenv
from packages.envs.tests.openenv.installed import PYTHON, needs_openenv
from packages.envs.tests.openenv.players import own, play, played
from slimrl.errors import RolloutError, UserError
from slimrl.io.process_tree import find_process_tree, start_time
from slimrl_envs.openenv.taskset import OpenEnv

pytestmark = needs_openenv
HERE, OURS = Path(__file__).parent, Path(slimrl_envs.openenv.__file__).parent
RIGHT = '<action>{"direction": "right", "steps": 3}</action>'
HOSTILE = {
    "half of a pair": "\ud800",
    "a bomb": "<action>" + '{"a":' * 20_000 + "</action>",
    "nested tags": "<action><action>{}</action></action>",
    "infinity": '<action>{"direction": "right", "steps": 1e999}</action>',
    "not a number": '<action>{"direction": "right", "steps": NaN}</action>',
    "digits": '<action>{"direction": "right", "steps": ' + "9" * 5000 + "}</action>",
    "escaped half": r'<action>{"direction": "\ud800"}</action>',
    "another field": '<action>{"direction": "right", "steps": 3, "reward": 1, "done": true}</action>',
    "metadata": '<action>{"direction": "right", "steps": 3, "metadata": {"a": 1}}</action>',
    "a list": "<action>[]</action>",
    "a message of the protocol": '<action>{"type": "close"}</action>',
    "colours": "\x1b[2J\x1b[31m<action>\x1b[0m</action>",
    "no closing tag": RIGHT.removesuffix("</action>"),
    "only thought": f"<think>{RIGHT}</think>",
}


@pytest.fixture(scope="module")
def guess():
    with pytest.MonkeyPatch.context() as patch:
        taskset = own(patch, "guess")
        yield taskset
    taskset.close()


@pytest.fixture(scope="module")
def line():
    with pytest.MonkeyPatch.context() as patch:
        taskset = own(patch, "line")
        yield taskset
    taskset.close()


def test_a_text_is_the_action_and_every_step_has_a_reward(guess):
    opening, turns = played(guess, "3", " 7 ", number=7)
    assert [message["content"] for message in opening] == ["Guess environment", "Guess a number from 0 to 9. Hint: 9"]
    assert [(turn.reward, turn.done) for turn in turns] == [(-0.25, False), (1.0, True)]
    assert turns[1].metrics == {"actions": 2.0, "wrong_actions": 0.0}
    _, (turn,) = played(guess, "long", number=1)
    assert turn.messages[0]["excerpt"] == {"begin": 0, "end": 100_000, "max_tokens": 1000}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_reply_earns_nothing_and_breaks_nothing(line, name):
    _, (first, second) = played(line, HOSTILE[name], RIGHT)
    assert (first.reward, first.done, first.metrics["wrong_actions"]) == (0.0, False, 1.0)
    assert (second.reward, second.done) == (1.0, True)


def test_what_the_schema_does_not_take_is_answered(line):
    _, (turn, _) = played(line, '<action>{"direction": "up"}</action>', RIGHT)
    assert turn.messages[0]["content"] == (
        "Error: act: `direction` must be one of 'left', 'right', not 'up'. "
        'It is called as act(direction: "left" | "right", steps: integer = ...).'
    )


def test_errors_cost_their_episode_and_a_server_that_dies_is_started_again(guess):
    for reply, said in (("fail", "environment_error: .*environment is broken"), ("die", "environment_died")):
        with pytest.raises(RolloutError, match=said):
            played(guess, reply, number=1)
    assert played(guess, "7", number=7)[1][-1].reward == 1.0


def test_tools_are_called_in_the_native_form_and_in_tags(monkeypatch):
    taskset = own(monkeypatch, "tools")
    opening, turns = played(
        taskset,
        "add",
        '<tool_call>{"name": "add", "arguments": {"a": 2, "b": "x"}}</tool_call>',
        '<tool_call>{"name": "ad", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 4}}</tool_call>',
    )
    assert [tool["function"]["name"] for tool in opening[0]["tools"]] == ["add"]
    assert [turn.metrics["wrong_actions"] for turn in turns] == [1, 2, 3, 3]
    assert (turns[-1].messages[0]["role"], turns[-1].messages[0]["content"]) == ("tool", "6")
    tagged = OpenEnv(taskset._server.url(), format="json")
    tagged.prepare()
    _, (turn,) = played(tagged, '<action>{"name": "add", "arguments": {"a": 2, "b": 4}}</action>')
    assert (turn.messages[0]["role"], turn.messages[0]["content"]) == ("user", "6")
    taskset.close()


@pytest.mark.parametrize(("name", "args"), [("alone", {}), ("two", {"max_concurrent": 2}), ("two", {})])
def test_episodes_wait_for_the_few_sessions_of_a_server(monkeypatch, name, args):
    taskset = own(monkeypatch, name, **args)

    async def many():
        return await asyncio.gather(*(play(taskset, ["5", "7"], 7) for _ in range(6)))

    assert all(turns[-1].done for _, turns in asyncio.run(many()))
    taskset.close()


def test_a_session_that_is_not_free_in_time_is_named(monkeypatch):
    taskset = own(monkeypatch, "alone", connect_timeout_s=0.5)

    async def two():
        first, second = (taskset.environment(task) for task in taskset.tasks("train")[:2])
        await first.start()
        try:
            await second.start()
        finally:
            await first.close()
            await second.close()

    with pytest.raises(RolloutError, match=r"environment_busy: .*connect_timeout_s = 0\.5"):
        asyncio.run(two())
    taskset.close()


@pytest.mark.parametrize(
    ("name", "said"), [("Nothing", "has no attribute 'Nothing'"), ("Guess", "served:Guess is no app")]
)
def test_what_cannot_be_served_is_a_mistake_of_the_users(monkeypatch, name, said):
    with pytest.raises(UserError, match=said):
        own(monkeypatch, name)


def test_the_server_ends_when_the_run_is_killed():
    program = (
        "import sys, time; from slimrl_envs.openenv.taskset import OpenEnv\n"
        f"e = OpenEnv('served:guess', python={PYTHON!r}); e.prepare(); print(e._server.url(), flush=True)\n"
        "time.sleep(600)"
    )
    paths = os.pathsep.join(map(str, (HERE, Path(slimrl.__file__).parents[1], OURS.parents[1])))
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}, text=True) as run:
        assert run.stdout is not None and run.stdout.readline().startswith("http://127.0.0.1:")
        servers = find_process_tree({run.pid: start_time(run.pid)})
        servers.pop(run.pid)
        run.send_signal(signal.SIGKILL)
    assert servers
    deadline = time.monotonic() + 20
    while any(start_time(pid) == began for pid, began in servers.items()):
        assert time.monotonic() < deadline, "the server goes on"
        time.sleep(0.1)


def test_the_environment_that_openenv_itself_writes_can_be_played(tmp_path, monkeypatch):
    """`openenv init` writes an environment that echoes, and pays for long messages: whatever they say."""
    command = [PYTHON, "-m", "openenv.cli", "init", "parrot", "--output-dir", str(tmp_path)]
    subprocess.run(command, capture_output=True, check=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    taskset = OpenEnv("parrot.server.app:app", python=PYTHON, observe=["echoed_message"], max_concurrent=1)
    taskset.prepare()
    opening, turns = played(taskset, "hello", "hello hello")
    taskset.close()
    assert "ready" in opening[-1]["content"]
    assert [turn.reward for turn in turns] == [0.5, 1.0]
    assert turns[0].messages[0]["content"] == "hello"
