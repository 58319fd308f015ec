"""Servers that answer garbage, too much, nothing, or send elsewhere: an episode fails with a reason."""

import asyncio
import json

import pytest

from packages.envs.tests.openenv.players import play, played_at, prepared
from packages.envs.tests.openenv.scripted import READY, observation, serving
from slimrl.errors import RolloutError, UserError
from slimrl.rollout.failures import run_with_timeout
from slimrl_envs.openenv.session import MAX_MESSAGE

pytestmark = pytest.mark.slow


def error(**data):
    return json.dumps({"type": "error", "data": data})


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
    "an error of its own": error(message="\x1b[2J", code=["x"]),
    "huge": "x" * (MAX_MESSAGE + 1),
    "the end": lambda connection: connection.close(),
}
RESETS = ["no JSON", "deep", "nothing of an observation", "an error of its own", "huge", "the end"]


@pytest.mark.parametrize(
    "given", [*({"answer": bad} for bad in BAD.values()), *({"reset": BAD[one]} for one in RESETS)]
)
def test_a_bad_answer_fails_the_episode(given):
    with serving(**given) as base, pytest.raises(RolloutError) as failure:
        played_at(base, "hello", connect_timeout_s=1.0)
    assert failure.value.reason in ("environment_error", "environment_died", "nonfinite_reward", "environment_busy")
    assert "\x1b" not in failure.value.detail and len(failure.value.detail) < 2500


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"reset": observation(done=True)}, RolloutError, "over before the first"),
        ({"page": {"/ws": (403, {}, "")}}, RolloutError, "opens no session: status 403"),
        ({"page": {"/schema": (200, {}, "{}")}}, UserError, "no schema of an action"),
    ],
)
def test_a_server_that_cannot_be_played_is_explained(given, kind, said):
    with serving(**given) as base, pytest.raises(kind, match=said):
        played_at(base, "hello")


def test_a_server_that_never_answers_takes_the_time_of_a_step():
    with serving(None) as base:

        async def wait():
            await run_with_timeout(play(prepared(base), ["hello"]), "environment", 1.0)

        with pytest.raises(RolloutError, match="episode_timeout_s = 1 s"):
            asyncio.run(wait())


def test_an_action_that_the_server_refuses_is_answered():
    faults = [{"loc": ["message"], "msg": "too rude"}]
    with serving(error(message="Invalid", code="VALIDATION_ERROR", errors=faults)) as base:
        (turn,) = played_at(base, "hello")
    assert (turn.messages[0]["content"], turn.reward) == ("Error: message: too rude", 0.0)


def test_a_schema_cannot_have_another_document_fetched():
    with serving() as elsewhere:
        schema = {"properties": {"message": {"$ref": f"{elsewhere}/no-such-page"}}}
        with serving(schema=schema) as base:
            (turn,) = played_at(base, '<action>{"message": "x"}</action>')
    assert turn.metrics["actions"] == 1.0


def test_a_full_server_is_asked_again():
    tries = []

    def full_once(connection):
        tries.append(1)
        connection.send(error(message="full", code="CAPACITY_REACHED") if len(tries) == 1 else READY)

    with serving(observation(done=True), reset=full_once) as base:
        (turn,) = played_at(base, "hello")
    assert (turn.done, len(tries)) == (True, 2)
