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


def run(program, replies):
    async def episode():
        conversation = Conversation(program)
        try:
            found = [await conversation.start()]
            for reply in replies:
                found.append(await conversation.step(reply))
            return found
        finally:
            await conversation.close()

    return asyncio.run(asyncio.wait_for(episode(), 10))


def test_each_question_is_a_turn():
    async def program(ask):
        chat = [USER]
        for _ in range(2):
            chat = [*chat, await ask(chat, []), said("user", "and?")]
        return Turn(done=True, reward=float(len(chat[3]["content"])))

    opening, second, last = run(program, ["a", "bcd"])
    assert opening == [{"role": "user", "content": "question"}]
    assert second == Turn(done=False, messages=[{"role": "user", "content": "and?"}])
    assert last == Turn(done=True, reward=3.0)


def test_calls_are_read_where_there_are_tools():
    async def program(ask):
        tools = [{"type": "function", "function": {"name": "add"}}]
        reply = await ask([USER], tools)
        assert reply["tool_calls"] == [{"id": "call_1_0", "function": {"name": "add", "arguments": '{"a": 1}'}}]
        await ask([USER, reply, said("tool", "2", name="add")], tools)
        return Turn(done=True)

    opening, second, _ = run(program, [f"I add. {CALL}", "2"])
    assert opening[0]["tools"] == [{"type": "function", "function": {"name": "add"}}]
    assert second.messages == [{"role": "tool", "content": "2", "name": "add"}]
    assert read_reply(CALL, has_tools=False, number=1)["content"] == CALL


@pytest.mark.parametrize("ids", [("call_5_1", "call_5_0"), ("", ""), ("other", "call_5_0")])
def test_results_are_read_in_the_order_of_their_calls(ids):
    async def program(ask):
        shots = [
            USER,
            said("assistant", "", [("a", "add"), ("m", "mul")]),
            said("tool", "6", tool_call_id="m"),
            said("tool", "2", tool_call_id="a"),
            USER,
        ]
        tools = [{"type": "function", "function": {"name": "add"}}]
        reply = await ask(shots, tools)
        pairs = zip("62", ("mul", "add"), ids, strict=True)
        results = [said("tool", text, name=name, tool_call_id=one) for text, name, one in pairs]
        reply = await ask(shots := [*shots, reply, *results, USER], tools)
        await ask([*shots, reply, USER], tools)
        return Turn(done=True)

    opening, second, third, _ = run(program, [CALL + CALL.replace("add", "mul"), "b", "c"])
    assert [one["content"] for one in opening[2:4]] == ["2", "6"]
    # An unknown id is for the program to explain: then the results stay as they are.
    texts = ["6", "2", "question"] if "other" in ids else ["2", "6", "question"]
    assert [one["content"] for one in second.messages] == texts
    assert third.messages == [{"role": "user", "content": "question"}]


def test_a_call_that_nobody_could_read_is_text():
    for arguments in ('"' + "[" * 100_000 + '"', '{"a":' * 100_000 + "1" + "}" * 100_000):
        reply = f'<tool_call>\n{{"name": "add", "arguments": {arguments}}}\n</tool_call>'
        assert read_reply(reply, has_tools=True, number=1) == said("assistant", reply)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (lambda reply: [said("user", "a summary"), reply, USER], "another conversation"),
        (lambda reply: [USER, said("assistant", "not what it said"), USER], "another conversation"),
        (lambda reply: [USER], "another conversation"),
        (lambda reply: [USER, reply], "second reply in a row"),
        (lambda reply: [USER, reply, USER, said("assistant", "yes"), USER], "policy's mouth"),
    ],
)
def test_a_conversation_that_does_not_go_on_is_branched(second, reason):
    async def program(ask):
        reply = await ask([USER], [])
        with contextlib.suppress(RolloutError):  # as verifiers does, which writes it down and goes on
            await ask(second(reply), [])
        return Turn(done=True, reward=1.0)

    with pytest.raises(RolloutError, match=reason) as caught:
        run(program, ["a"])
    assert caught.value.reason == "branched"


def test_two_conversations_at_once_are_branched():
    async def program(ask):
        await asyncio.gather(ask([USER], []), ask([said("user", "another")], []), return_exceptions=True)
        return Turn(done=True, reward=1.0)

    with pytest.raises(RolloutError, match="two conversations at once"):
        run(program, ["a"])


def test_other_tools_are_branched():
    async def program(ask):
        reply = await ask([USER], [])
        await ask([USER, reply, USER], [{"type": "function", "function": {"name": "new"}}])
        return Turn(done=True)

    with pytest.raises(RolloutError, match="tools"):
        run(program, ["a"])


def test_a_program_without_a_question_is_no_episode():
    async def program(ask):
        return Turn(done=True, reward=1.0)

    with pytest.raises(RolloutError, match="ended before it asked"):
        run(program, [])


def test_its_errors_are_the_episodes():
    async def program(ask):
        await ask([USER], [])
        raise ZeroDivisionError("own")

    with pytest.raises(ZeroDivisionError, match="own"):
        run(program, ["a"])


def test_closing_ends_the_program():
    ended = []

    async def program(ask):
        try:
            await ask([USER], [])
        finally:
            ended.append(True)
        return Turn(done=True)

    assert len(run(program, [])) == 1
    assert ended == [True]


@pytest.mark.skipif(HAS_VERIFIERS, reason="verifiers 0.4 is installed")
def test_another_version_is_refused():
    with pytest.raises(UserError, match=r"verifiers==0\.4|extra \[verifiers\]"):
        load_taskset("verifiers:slim-guess-v1", {})


def test_only_text_is_read():
    assert text_of([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]) == "a\nb"
    with pytest.raises(RolloutError, match="image_url"):
        text_of([{"type": "image_url", "image_url": {"url": "data:"}}])
