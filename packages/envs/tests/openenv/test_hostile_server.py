"""Servers that answer garbage, too much, nothing, or send elsewhere: an episode fails with a reason."""

import asyncio
import json

import pytest

from packages.envs.tests.openenv.fake_server import READY, observation, serving
from packages.envs.tests.openenv.players import play
from slimrl.errors import RolloutError, UserError
from slimrl.rollout.failures import run_with_timeout
from slimrl_envs.openenv.session import MAX_MESSAGE
from slimrl_envs.openenv.taskset import OpenEnv

pytestmark = pytest.mark.slow

BAD = {
    "no JSON": "garbage",
    "bytes": b"\x00\xff",
    "a list": "[]",
    "deep": "[" * 200_000,
    "nothing of an observation": "{}",
    "a text as data": json.dumps({"type": "observation", "data": "x"}),
    "a list of fields": observation(observation=[1]),
    "done in words": observation(done="no"),
    "reward in words": observation(reward="1"),
    "reward is a list": observation(reward=[1]),
    "reward without a limit": observation(reward=float("inf")),
    "reward is not a number": observation(reward=float("nan")),
    "reward of many digits": observation().replace("0.5", "9" * 400),
    "an error without a word": json.dumps({"type": "error"}),
    "an error of its own": json.dumps({"type": "error", "data": {"message": "\x1b[2J", "code": ["x"]}}),
    "huge": "x" * (MAX_MESSAGE + 1),
    "the end": lambda connection: connection.close(),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_fails_the_episode(name):
    with serving(BAD[name]) as base, pytest.raises(RolloutError) as error:
        asyncio.run(play(OpenEnv(base), ["hello"]))
    assert error.value.reason in ("environment_error", "environment_died", "nonfinite_reward")
    assert "\x1b" not in error.value.detail and len(error.value.detail) < 2500


@pytest.mark.parametrize(
    "name", ["no JSON", "deep", "nothing of an observation", "an error of its own", "huge", "the end"]
)
def test_a_bad_reset_fails_the_episode(name):
    with serving(reset=BAD[name]) as base, pytest.raises(RolloutError):
        asyncio.run(play(OpenEnv(base, connect_timeout_s=1.0), ["hello"]))


def test_a_server_that_never_answers_takes_the_time_of_a_step():
    async def wait(base):
        await run_with_timeout(play(OpenEnv(base), ["hello"]), "environment", 1.0)

    with serving(None) as base, pytest.raises(RolloutError, match="episode_timeout_s = 1 s"):
        asyncio.run(wait(base))


def test_an_action_that_the_server_refuses_is_answered():
    refused = {"message": "Invalid", "code": "VALIDATION_ERROR", "errors": [{"loc": ["message"], "msg": "too rude"}]}
    with serving(json.dumps({"type": "error", "data": refused})) as base:
        _, (turn,) = asyncio.run(play(OpenEnv(base), ["hello"]))
    assert (turn.messages[0]["content"], turn.reward) == ("Error: message: too rude", 0.0)


def test_an_episode_that_is_over_at_once_has_nothing_to_learn():
    with serving(reset=observation(done=True)) as base, pytest.raises(RolloutError, match="over before the first"):
        asyncio.run(play(OpenEnv(base), ["hello"]))


REDIRECT = (307, {"Location": "http://127.0.0.1:1/schema"}, "")


def test_a_bad_schema_is_said_before_the_run():
    with serving(page={"/schema": (200, {}, "{}")}) as base, pytest.raises(UserError, match="no schema of an action"):
        OpenEnv(base).prepare()


def test_sessions_are_not_redirected():
    with serving(page={"/ws": REDIRECT}) as base, pytest.raises(RolloutError, match="which is not followed"):
        asyncio.run(play(OpenEnv(base), ["hello"]))


def test_a_schema_cannot_have_another_document_fetched():
    with serving() as elsewhere:
        schema = {"properties": {"message": {"$ref": f"{elsewhere}/no-such-page"}}}
        with serving(schema=schema) as base:
            _, (turn,) = asyncio.run(play(OpenEnv(base), ['<action>{"message": "x"}</action>']))
    assert turn.metrics["actions"] == 1.0


def test_a_full_server_is_asked_again():
    tries = []

    def full_once(connection):
        tries.append(1)
        full = {"type": "error", "data": {"message": "full", "code": "CAPACITY_REACHED"}}
        connection.send(json.dumps(full) if len(tries) == 1 else READY)

    with serving(observation(done=True), reset=full_once) as base:
        _, (turn,) = asyncio.run(play(OpenEnv(base), ["hello"]))
    assert (turn.done, len(tries)) == (True, 2)
