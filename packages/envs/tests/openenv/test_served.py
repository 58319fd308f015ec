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
from packages.envs.tests.openenv.players import PYTHON, children_of, needs_openenv, numbered, own, play
from slimrl.errors import RolloutError, UserError
from slimrl_envs.openenv.taskset import OpenEnv
from slimrl_tools.check.hostile import GENERAL

pytestmark = needs_openenv
RIGHT = '<action>{"direction": "right", "steps": 3}</action>'
HOSTILE = {
    **GENERAL,
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
        taskset = own(patch, "Guess")
        taskset.prepare()
        yield taskset
    taskset.close()


@pytest.fixture(scope="module")
def line():
    with pytest.MonkeyPatch.context() as patch:
        taskset = own(patch, "Line")
        taskset.prepare()
        yield taskset
    taskset.close()


def test_a_text_is_the_action_and_every_step_has_a_reward(guess):
    opening, turns = asyncio.run(play(guess, ["3", " 7 "], numbered(7)))
    assert [message["content"] for message in opening] == [
        "Guess environment",
        "Guess a number from 0 to 9. Hint: 9",
    ]
    assert [(turn.reward, turn.done) for turn in turns] == [(-0.25, False), (1.0, True)]
    assert turns[1].metrics == {"actions": 2.0, "wrong_actions": 0.0}


def test_the_same_seed_gives_the_same_episode(guess):
    task, other = guess.tasks("train")[:2]
    first, second, third = (asyncio.run(play(guess, ["0"], one)) for one in (task, task, other))
    assert first == second
    assert first != third


def test_a_long_observation_is_marked_to_be_cut(guess):
    _, (turn,) = asyncio.run(play(guess, ["long"], numbered(1)))
    assert turn.messages[0]["excerpt"] == {"begin": 0, "end": 100_000, "max_tokens": 1000}


def test_episodes_have_sessions_of_their_own(guess):
    async def many():
        return await asyncio.gather(
            *(play(guess, ["5", str(number % 10)], numbered(number % 10)) for number in range(40))
        )

    assert all(turns[-1].done for _, turns in asyncio.run(many()))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_reply_earns_nothing_and_breaks_nothing(line, name):
    _, (first, second) = asyncio.run(play(line, [HOSTILE[name], RIGHT]))
    assert (first.reward, first.done, first.metrics["wrong_actions"]) == (0.0, False, 1.0)
    assert (second.reward, second.done) == (1.0, True)


@pytest.mark.parametrize("name", GENERAL)
def test_a_hostile_text_is_an_action_that_earns_nothing(guess, name):
    _, turns = asyncio.run(play(guess, [GENERAL[name], "7"], numbered(7)))
    assert turns[0].reward <= 0
    assert turns[-1].done


def test_what_the_schema_does_not_take_is_answered(line):
    _, (turn, _) = asyncio.run(play(line, ['<action>{"direction": "up"}</action>', RIGHT]))
    assert turn.messages[0]["content"] == (
        "Error: act: `direction` must be one of 'left', 'right', not 'up'. "
        'It is called as act(direction: "left" | "right", steps: integer = ...).'
    )


def test_an_error_of_the_environment_drops_the_episode(guess):
    with pytest.raises(RolloutError, match="environment is broken") as error:
        asyncio.run(play(guess, ["fail"], numbered(1)))
    assert error.value.reason == "environment_error"


def test_a_server_that_dies_costs_an_episode_and_is_started_again(guess):
    with pytest.raises(RolloutError) as error:
        asyncio.run(play(guess, ["die"], numbered(1)))
    assert error.value.reason == "environment_died"
    _, turns = asyncio.run(play(guess, ["7"], numbered(7)))
    assert turns[-1].reward == 1.0


def test_tools_are_called_in_the_native_form_and_in_tags(monkeypatch):
    taskset = own(monkeypatch, "Tools")
    opening, turns = asyncio.run(
        play(
            taskset,
            [
                "add",
                '<tool_call>{"name": "add", "arguments": {"a": 2, "b": "x"}}</tool_call>',
                '<tool_call>{"name": "ad", "arguments": {}}</tool_call>',
                '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 4}}</tool_call>',
            ],
        )
    )
    assert [tool["function"]["name"] for tool in opening[0]["tools"]] == ["add"]
    assert [turn.metrics["wrong_actions"] for turn in turns] == [1, 2, 3, 3]
    assert (turns[-1].messages[0]["role"], turns[-1].messages[0]["content"]) == ("tool", "6")
    tagged = own(monkeypatch, "Tools", format="json")
    tagged.__dict__["_server"] = taskset._server
    _, (turn,) = asyncio.run(play(tagged, ['<action>{"name": "add", "arguments": {"a": 2, "b": 4}}</action>']))
    assert (turn.messages[0]["role"], turn.messages[0]["content"]) == ("user", "6")
    taskset.close()


@pytest.mark.parametrize(("name", "args"), [("Alone", {}), ("app", {"max_concurrent": 2}), ("app", {})])
def test_episodes_wait_for_the_few_sessions_of_a_server(monkeypatch, name, args):
    taskset = own(monkeypatch, name, **args)

    async def many():
        return await asyncio.gather(*(play(taskset, ["5", "7"], numbered(7)) for _ in range(6)))

    assert all(turns[-1].done for _, turns in asyncio.run(many()))
    taskset.close()


def test_a_session_that_is_not_free_in_time_is_named(monkeypatch):
    taskset = own(monkeypatch, "Alone", connect_timeout_s=0.5)
    taskset.prepare()

    async def two():
        first, second = (taskset.environment(numbered(1)) for _ in range(2))
        await first.start()
        try:
            await second.start()
        finally:
            await first.close()
            await second.close()

    with pytest.raises(RolloutError, match=r"connect_timeout_s = 0\.5") as error:
        asyncio.run(two())
    assert error.value.reason == "environment_busy"
    taskset.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Nothing", "has no attribute 'Nothing'"),
        ("Word", "gives Word, which is neither an Environment"),
    ],
)
def test_what_cannot_be_served_is_a_mistake_of_the_users(monkeypatch, name, said):
    with pytest.raises(UserError, match=said):
        own(monkeypatch, name).prepare()


@pytest.mark.skipif(not Path("/proc").exists(), reason="it looks for processes with ps")
def test_the_server_ends_when_the_run_is_killed(tmp_path):
    program = (
        "import sys, time; from slimrl_envs.openenv.taskset import OpenEnv\n"
        f"e = OpenEnv('served:Guess', python={PYTHON!r}); e.prepare(); print(e._server.url(), flush=True)\n"
        "time.sleep(600)"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(slimrl.__file__).parents[1])])
    run = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}, text=True
    )
    assert run.stdout is not None
    url = run.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:")
    (server,) = children_of(run.pid)
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{server}").exists() and "Z" not in Path(f"/proc/{server}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline, "the server goes on"
        time.sleep(0.1)


def test_the_environment_that_openenv_itself_writes_can_be_played(tmp_path, monkeypatch):
    """`openenv init` writes an environment that echoes, and pays for long messages: whatever they say."""
    made = subprocess.run(
        [PYTHON, "-m", "openenv.cli", "init", "parrot", "--output-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    taskset = OpenEnv("parrot.server.app:app", python=PYTHON, observe=["echoed_message"], max_concurrent=1)
    opening, turns = asyncio.run(play(taskset, ["hello", "hello hello"]))
    taskset.close()
    assert "ready" in opening[-1]["content"]
    assert [turn.reward for turn in turns] == [0.5, 1.0]
    assert turns[0].messages[0]["content"] == "hello"
