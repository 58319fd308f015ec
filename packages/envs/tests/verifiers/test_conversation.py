"""A program that asks by itself is played turn by turn, and one that forks its conversation is no episode."""

import asyncio
import contextlib

import pytest

from slimrl.errors import RolloutError
from slimrl.types import Turn
from slimrl_envs.verifiers.conversation import Call, Conversation, Said, read_reply, text_of

USER = Said("user", "question")
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
        said = [USER]
        for _ in range(2):
            said = [*said, await ask(said, []), Said("user", "and?")]
        return Turn(done=True, reward=float(len(said[3].text)))

    opening, second, last = run(program, ["a", "bcd"])
    assert opening == [{"role": "user", "content": "question"}]
    assert second == Turn(done=False, messages=[{"role": "user", "content": "and?"}])
    assert last == Turn(done=True, reward=3.0)


def test_calls_are_read_where_there_are_tools():
    async def program(ask):
        tools = [{"type": "function", "function": {"name": "add"}}]
        reply = await ask([USER], tools)
        assert reply.calls == (Call("call_1_0", "add", '{"a": 1}'),)
        await ask([USER, reply, Said("tool", "2", name="add")], tools)
        return Turn(done=True)

    opening, second, _ = run(program, [f"I add. {CALL}", "2"])
    assert opening[0]["tools"] == [{"type": "function", "function": {"name": "add"}}]
    assert second.messages == [{"role": "tool", "content": "2", "name": "add"}]
    assert read_reply(CALL, has_tools=False, number=1).text == CALL


@pytest.mark.parametrize("ids", [("call_5_1", "call_5_0"), ("", ""), ("other", "call_5_0")])
def test_results_are_read_in_the_order_of_their_calls(ids):
    async def program(ask):
        calls = (Call("a", "add", "{}"), Call("m", "mul", "{}"))
        shots = [
            USER,
            Said("assistant", "", calls),
            Said("tool", "6", call_id="m"),
            Said("tool", "2", call_id="a"),
            USER,
        ]
        tools = [{"type": "function", "function": {"name": "add"}}]
        reply = await ask(shots, tools)
        results = [Said("tool", text, (), name, one) for text, name, one in zip("62", ("mul", "add"), ids, strict=True)]
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
        assert read_reply(reply, has_tools=True, number=1) == Said("assistant", reply)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (lambda reply: [Said("user", "a summary"), reply, USER], "another conversation"),
        (lambda reply: [USER, Said("assistant", "not what it said"), USER], "another conversation"),
        (lambda reply: [USER], "another conversation"),
        (lambda reply: [USER, reply], "second reply in a row"),
        (lambda reply: [USER, reply, USER, Said("assistant", "yes"), USER], "policy's mouth"),
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
        await asyncio.gather(ask([USER], []), ask([Said("user", "another")], []), return_exceptions=True)
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


def test_only_text_is_read():
    assert text_of([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]) == "a\nb"
    with pytest.raises(RolloutError, match="image_url"):
        text_of([{"type": "image_url", "image_url": {"url": "data:"}}])
