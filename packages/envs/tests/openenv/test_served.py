"""Episodes with servers of OpenEnv itself, which the tests start by its own Python."""

import asyncio
import subprocess

import pytest

from packages.envs.tests.openenv.installed import PYTHON, needs_openenv, server_of
from packages.envs.tests.openenv.players import play, played, prepared
from slimrl.errors import RolloutError

pytestmark = needs_openenv
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
    with server_of("served:guess") as base:
        yield prepared(base)


@pytest.fixture(scope="module")
def line():
    with server_of("served:line") as base:
        yield prepared(base)


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


def test_errors_cost_their_episode_and_a_server_that_is_gone_is_named():
    with server_of("served:guess") as base:
        taskset = prepared(base, connect_timeout_s=0.5)
        for reply, said in (("fail", "environment_error: .*environment is broken"), ("die", "environment_died")):
            with pytest.raises(RolloutError, match=said):
                played(taskset, reply, number=1)
        with pytest.raises(RolloutError, match=r"environment_busy: .*connect_timeout_s = 0\.5"):
            played(taskset, "7", number=7)


def test_tools_are_called_in_the_form_of_the_template():
    replies = [
        "add",
        '<tool_call>{"name": "add", "arguments": {"a": 2, "b": "x"}}</tool_call>',
        '<tool_call>{"name": "ad", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 4}}</tool_call>',
    ]
    with server_of("served:tools") as base:
        opening, turns = played(prepared(base), *replies)
    assert [tool["function"]["name"] for tool in opening[0]["tools"]] == ["add"]
    assert [turn.metrics["wrong_actions"] for turn in turns] == [1, 2, 3, 3]
    assert (turns[-1].messages[0]["role"], turns[-1].messages[0]["content"]) == ("tool", "6")


@pytest.mark.parametrize("name", ["alone", "two"])
def test_episodes_wait_for_the_few_sessions_of_a_server(name):
    async def many(taskset):
        return await asyncio.gather(*(play(taskset, ["5", "7"], 7) for _ in range(6)))

    with server_of(f"served:{name}") as base:
        assert all(turns[-1].done for _, turns in asyncio.run(many(prepared(base))))


def test_the_environment_that_openenv_itself_writes_can_be_played(tmp_path):
    """`openenv init` writes an environment that echoes, and pays for long messages: whatever they say."""
    command = [PYTHON, "-m", "openenv.cli", "init", "parrot", "--output-dir", str(tmp_path)]
    subprocess.run(command, capture_output=True, check=True)
    with server_of("parrot.server.app:app", tmp_path) as base:
        opening, turns = played(prepared(base, observe=["echoed_message"]), "hello", "hello hello")
    assert "ready" in opening[-1]["content"]
    assert [turn.reward for turn in turns] == [0.5, 1.0]
    assert turns[0].messages[0]["content"] == "hello"
