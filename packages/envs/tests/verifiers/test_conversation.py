"""A program that asks by itself is played turn by turn, and one that forks its conversation is no episode."""

import asyncio
import contextlib

import pytest

from packages.envs.tests.verifiers.plays import HAS_VERIFIERS
from slimrl.environments.find import load_taskset
from slimrl.errors import RolloutError, UserError
from slimrl.types import Turn
from slimrl_envs.verifiers.conversation import Conversation, read_reply, text_of


def said(role, text, calls=(), **more):
    """A message; `calls` are pairs of an id and a tool that is called without arguments."""
    made = [{"id": one, "function": {"name": name, "arguments": "{}"}} for one, name in calls]
    return {"role": role, "content": text, **({"tool_calls": made} if made else {}), **more}


USER = said("user", "question")
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "add"}}]


def run(program, *replies):
    """The first messages and the turns of an episode; the program may end without a turn."""

    async def play(ask):
        return await program(ask) or Turn(done=True)

    async def episode():
        conversation = Conversation(play)
        try:
            return [await conversation.start(), *[await conversation.step(reply) for reply in replies]]
        finally:
            await conversation.close()

    return asyncio.run(asyncio.wait_for(episode(), 10))


def test_each_question_is_a_turn():
    async def program(ask):
        chat = [USER]
        for _ in range(2):
            chat = [*chat, await ask(chat, []), said("user", "and?")]
        return Turn(done=True, reward=float(len(chat[3]["content"])))

    assert run(program, "a", "bcd") == [
        [USER],
        Turn(done=False, messages=[{"role": "user", "content": "and?"}]),
        Turn(done=True, reward=3.0),
    ]


def test_calls_are_read_where_there_are_tools():
    async def program(ask):
        reply = await ask([USER], TOOLS)
        assert reply["tool_calls"] == [{"id": "call_1_0", "function": {"name": "add", "arguments": '{"a": 1}'}}]
        await ask([USER, reply, said("tool", "2", name="add")], TOOLS)

    opening, second, _ = run(program, f"I add. {CALL}", "2")
    assert opening[0]["tools"] == TOOLS
    assert second.messages == [{"role": "tool", "content": "2", "name": "add"}]
    assert read_reply(CALL, has_tools=False, number=1)["content"] == CALL


@pytest.mark.parametrize("ids", [("call_5_1", "call_5_0"), ("other", "call_5_0")])
def test_results_are_read_in_the_order_of_their_calls(ids):
    async def program(ask):
        shots = [
            USER,
            said("assistant", "", [("a", "add"), ("m", "mul")]),
            said("tool", "6", tool_call_id="m"),
            said("tool", "2", tool_call_id="a"),
            USER,
        ]
        reply = await ask(shots, TOOLS)
        pairs = zip("62", ("mul", "add"), ids, strict=True)
        results = [said("tool", text, name=name, tool_call_id=one) for text, name, one in pairs]
        reply = await ask(shots := [*shots, reply, *results, USER], TOOLS)
        await ask([*shots, reply, USER], TOOLS)

    opening, second, third, _ = run(program, CALL + CALL.replace("add", "mul"), "b", "c")
    assert [one["content"] for one in opening[2:4]] == ["2", "6"]
    # An unknown id is for the program to explain: then the results stay as they are.
    texts = ["6", "2", "question"] if "other" in ids else ["2", "6", "question"]
    assert [one["content"] for one in second.messages] == texts
    assert third.messages == [USER]


@pytest.mark.parametrize("arguments", ['"' + "[" * 100_000 + '"', '{"a":' * 100_000 + "1" + "}" * 100_000])
def test_a_call_that_nobody_could_read_is_text(arguments):
    reply = f'<tool_call>\n{{"name": "add", "arguments": {arguments}}}\n</tool_call>'
    assert read_reply(reply, has_tools=True, number=1) == said("assistant", reply)


@pytest.mark.parametrize(
    ("second", "tools", "reason"),
    [
        (lambda reply: [said("user", "a summary"), reply, USER], [], "another conversation"),
        (lambda reply: [USER, said("assistant", "not what it said"), USER], [], "another conversation"),
        (lambda reply: [USER], [], "another conversation"),
        (lambda reply: [USER, reply], [], "second reply in a row"),
        (lambda reply: [USER, reply, USER, said("assistant", "yes"), USER], [], "policy's mouth"),
        (lambda reply: [USER, reply, USER], TOOLS, "the tools of the policy changed"),
    ],
)
def test_a_conversation_that_does_not_go_on_is_branched(second, tools, reason):
    async def program(ask):
        reply = await ask([USER], [])
        with contextlib.suppress(RolloutError):  # as verifiers does, which writes it down and goes on
            await ask(second(reply), tools)

    with pytest.raises(RolloutError, match=f"branched: .*{reason}"):
        run(program, "a")


async def asks_twice_at_once(ask):
    await asyncio.gather(ask([USER], []), ask([said("user", "another")], []), return_exceptions=True)


async def asks_nothing(ask):
    pass


async def fails(ask):
    await ask([USER], [])
    raise ZeroDivisionError("own")


@pytest.mark.parametrize(
    ("program", "kind", "reason"),
    [
        (asks_twice_at_once, RolloutError, "branched: .*two conversations at once"),
        (asks_nothing, RolloutError, "ended before it asked"),
        (fails, ZeroDivisionError, "own"),
    ],
)
def test_a_program_that_is_no_episode_fails(program, kind, reason):
    with pytest.raises(kind, match=reason):
        run(program, "a")


def test_closing_ends_the_program():
    ended = []

    async def program(ask):
        try:
            await ask([USER], [])
        finally:
            ended.append(True)

    assert len(run(program)) == 1
    assert ended == [True]


@pytest.mark.skipif(HAS_VERIFIERS, reason="verifiers 0.4 is installed")
def test_another_version_is_refused():
    with pytest.raises(UserError, match=r"extra \[verifiers\]|ImportError"):
        load_taskset("verifiers:slim-guess-v1", {})


def test_only_text_is_read():
    assert text_of([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]) == "a\nb"
    with pytest.raises(RolloutError, match="image_url"):
        text_of([{"type": "image_url", "image_url": {"url": "data:"}}])
