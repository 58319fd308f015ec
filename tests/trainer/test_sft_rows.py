"""Rows of supervised data, in every form: what is learnt of each, what its user is told, and what is refused."""

import json
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest

from slimrl.errors import UserError
from slimrl.launch.supervised import encode_row
from slimrl.models.chat.template import ChatFormat
from slimrl.trainer.sft.rows import read_row
from slimrl.types import Message
from tests.models.chat import hub_templates
from tests.models.chat.templates import TOOLS as TOOLS_TEMPLATE
from tests.tiny import tiny_tokenizer
from tests.trainer.sft_shapes import ADD, CHATS, TOOLS, XLAM, assistant, user

CHATML = ChatFormat(tiny_tokenizer())
QWEN25 = ChatFormat(tiny_tokenizer(chat_template=TOOLS_TEMPLATE))
QWEN3 = ChatFormat(tiny_tokenizer(chat_template=hub_templates.QWEN3))
LLAMA31 = ChatFormat(tiny_tokenizer(chat_template=hub_templates.LLAMA31))
BOTH = pytest.mark.parametrize("chat", [QWEN25, QWEN3], ids=["qwen2.5", "qwen3"])
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
CALLED = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'


def marked(row: dict[str, Any], chat: ChatFormat = CHATML) -> str:
    """The text that the model reads, with `[[` and `]]` around what is learnt."""
    token_ids, mask = encode_row(read_row(row, "row"), chat)
    parts = [
        (trained, [token_ids[n] for n in places]) for trained, places in groupby(range(len(mask)), mask.__getitem__)
    ]
    return "".join(f"[[{chat.full_text(ids)}]]" if trained else chat.full_text(ids) for trained, ids in parts)


def learnt(row: dict[str, Any], chat: ChatFormat = CHATML) -> str:
    return "".join(re.findall(r"\[\[(.*?)\]\]", marked(row, chat), re.DOTALL))


def messages_of(row: Any) -> list[Message]:
    return read_row(row, "row").messages


def unread(row: dict[str, Any]) -> tuple[str, ...]:
    return read_row(row, "row").unread


def asked(*more: dict[str, Any], **columns: Any) -> dict[str, Any]:
    """A row of messages that begin with a question."""
    return {"messages": [user("q"), *more], **columns}


def replying(**keys: Any) -> dict[str, Any]:
    return asked({**assistant("A"), **keys})


@pytest.mark.parametrize("name", CHATS)
def test_the_replies_of_every_shape_are_learnt(name: str) -> None:
    row, expected = CHATS[name]
    assert marked(row) == expected


@BOTH
@pytest.mark.parametrize("name", TOOLS)
def test_calls_of_every_shape_are_learnt_and_functions_offered(name: str, chat: ChatFormat) -> None:
    row, expected = TOOLS[name]
    offer, _, rest = marked(row, chat).partition("<|im_start|>user")
    assert "<|im_start|>user" + rest == expected
    assert json.dumps(ADD) in offer and "[[" not in offer


def test_keys_that_nothing_is_learnt_from_are_named_but_not_a_rollouts_own() -> None:
    row = {**replying(annotations=["x"]), "id": "7", "source": "web"}
    assert unread(row) == ("id", "source", "messages.annotations")
    rollout = {**replying(), "task_id": "1", "loss_mask": [0, 1], "reward": 1.0, "text": "q A", "failure": ""}
    assert unread(rollout) == ()


def test_thoughts_are_learnt_as_the_template_writes_them_and_in_every_turn() -> None:
    row = asked(
        {**assistant("4"), "reasoning_content": "Hm."}, user("q"), {**assistant("A"), "reasoning_content": "Ah."}
    )
    assert learnt(row, QWEN3) == "<think>\nHm.\n</think>\n\n4<|im_end|><think>\nAh.\n</think>\n\nA<|im_end|>"
    row = asked({**assistant("I add."), "reasoning_content": "hm", "tool_calls": [CALL, CALL]}, tools=[ADD])
    row["messages"] += [{"role": "tool", "content": "3"}, {**assistant("A"), "weight": 0}]
    assert learnt(row, QWEN3) == f"<think>\nhm\n</think>\n\nI add.\n{CALLED}\n{CALLED}<|im_end|>"


@pytest.mark.parametrize(
    ("row", "chat", "why"),
    [
        (replying(reasoning_content="hm"), CHATML, "does not write the `reasoning_content`"),
        (replying(reasoning_content="hm"), LLAMA31, "does not write the `reasoning_content`"),
        (replying(tool_calls=[CALL]), CHATML, "does not write the `tool_calls`"),
        ({**replying(tool_calls=[CALL]), "tools": [ADD]}, CHATML, "does not write tools, calls"),
    ],
)
def test_a_row_that_the_template_does_not_write_is_refused(row: dict[str, Any], chat: ChatFormat, why: str) -> None:
    with pytest.raises(UserError, match=f"^row: .*{why}"):
        marked(row, chat)


@pytest.mark.parametrize("value", [0, False, 0.0])
def test_a_reply_of_weight_0_is_read_and_not_learnt(value: float) -> None:
    row = {"messages": [{**user("q"), "weight": value}, {**assistant("WRONG"), "weight": value}, user("r")]}
    row["messages"].append({**assistant("A"), "weight": 1})
    assert learnt(row) == "A<|im_end|>" and "WRONG" in marked(row) and unread(row) == ()


def test_empty_fields_are_nothing() -> None:
    keys = ("function_call", "refusal", "audio", "tool_calls", "reasoning", "weight", "annotations", "tools", "excerpt")
    row = {**replying(**dict.fromkeys(keys)), "functions": [], "system": ""}
    assert messages_of(row) == [user("q"), assistant("A")]
    pair = {"prompt": [user("q")], "completion": [assistant("B")], "messages": None}
    assert learnt(pair) == "B<|im_end|>"


def test_a_null_in_the_schema_of_a_tool_is_kept() -> None:
    schema = {"type": "object", "properties": {"limit": {"type": ["integer", "null"], "default": None}}}
    tool = {"type": "function", "function": {"name": "search", "parameters": schema}}
    assert messages_of({**replying(), "tools": [tool]})[0]["tools"] == [tool]


def parallel(ids: Sequence[Any], results: Sequence[Any]) -> dict[str, Any]:
    """Calls with these ids, and results of these calls that say so."""
    calls = [{"id": one, "function": {"name": "add", "arguments": {"a": one}}} for one in ids]
    said = [{"role": "tool", "tool_call_id": one, "content": f"of {one}"} for one in results]
    return asked({"role": "assistant", "tool_calls": calls}, *said, assistant("A"), tools=[ADD])


def results_of(row: dict[str, Any]) -> list[str]:
    return [m["content"].removeprefix("of ") for m in messages_of(row) if m["role"] == "tool"]


@BOTH
def test_results_are_read_in_the_order_of_their_calls(chat: ChatFormat) -> None:
    for results in (["b", "a"], ["a", "b"]):
        text = marked(parallel(["a", "b"], results), chat)
        assert text.index('{"a": "a"}') < text.index('{"a": "b"}') < text.index("of a") < text.index("of b")
    one, other = parallel(["0", "1", "2"], ["2", "0", "1"]), parallel(["0", "1"], ["1", "0"])
    text = marked({"messages": one["messages"] + other["messages"], "tools": [ADD]}, chat)
    assert re.findall("of [0-9]", text) == ["of 0", "of 1", "of 2", "of 0", "of 1"]


@pytest.mark.parametrize(("ids", "results"), [(["", ""], ["x", "y"]), (["a", "b"], ["", ""]), (["a", "b"], ["a"])])
def test_results_without_ids_stay_in_their_order(ids: list[str], results: list[str]) -> None:
    assert results_of(parallel(ids, results)) == results


@pytest.mark.parametrize(("calls", "results"), [((0, 1), (1, 0)), ((0, 1), ("1", "0"))])
def test_whole_numbers_are_ids(calls: Sequence[Any], results: Sequence[Any]) -> None:
    read = messages_of(parallel(calls, results))
    assert [call["id"] for call in read[1]["tool_calls"]] == ["0", "1"]
    assert [message["tool_call_id"] for message in read if message["role"] == "tool"] == ["0", "1"]


# What cannot be learnt, and the words for it.
REFUSED: list[tuple[Any, str]] = [
    *((row, "expected an object") for row in (None, 5, "not json", [], [replying()], True)),
    ({}, "expected the columns `messages`, or `prompt` and `completion`.*found no columns"),
    (XLAM, "expected the columns .*found `id`, `query`, `answers`, `tools`"),
    ({"messages": None}, "found no columns"),
    ({"messages": []}, "`messages`: expected a list of messages"),
    ({"messages": [[user("q")], assistant("A")]}, "`messages`: expected a list of messages"),
    (asked(assistant(None)), "`messages`, message 2: expected a text as `content`"),
    *(
        ({"messages": [user(odd), assistant("A")]}, "message 1: expected a text as")
        for odd in (5, {"text": "q"}, ["q"], [{"type": "text", "text": "q"}])
    ),
    *((asked(assistant(silent)), "the assistant says nothing") for silent in ("", "  \n")),
    (asked(), "ends with an assistant message.*roles: user"),
    (asked(assistant("A"), user("r")), "roles: user, assistant, user"),
    (asked({"role": "tool", "content": "x"}, assistant("A")), "result of a tool stands behind"),
    (asked({"role": "wizard", "content": "x"}), 'message 2: .*and `role` is "?wizard'),
    (asked({"role": 5, "content": "x"}), "`role` is 5"),
    (asked({"content": "x"}), "message 2: .*it has no `role`"),
    ({"messages": [user("\ud800"), assistant("A")]}, "lone surrogate"),
    (replying(weight=0.5), "message 2: `weight` is 0.5"),
    *((replying(**{key: 0}), f"`{key}` would be left out.*`weight`") for key in ("train", "train_on_turn", "loss")),
    (replying(weight=0), "every assistant message has a weight of 0"),
    ({"messages": [{**user("q"), "weight": 1}, assistant("A")]}, "message 1: `weight` asks to learn a message of the"),
    (replying(function_call={"name": "f"}), "`function_call` would be left out.*tool_calls"),
    (replying(refusal="I can't."), "`refusal` would be left out.*`content`"),
    (replying(train_detail=[{"begin_offset": 0}]), "`train_detail` would be left out.*`weight`"),
    *((replying(**{key: "a"}), f"`{key}` would be left out.*`reasoning_content`") for key in ("reasoning", "thinking")),
    (replying(reasoning_content=[{"type": "text"}]), "`reasoning_content` is a text"),
    ({"messages": [{**user("q"), "reasoning_content": "a"}, assistant("A")]}, "only an assistant has thoughts"),
    (asked({"role": "tool", "tool_name": "f", "content": "x"}, assistant("A")), "`tool_name` would be left.*`name`"),
    (replying(tool_calls={"name": "f"}), "`tool_calls` is a list"),
    (replying(tool_calls=[{**CALL, "function": {"name": "f", "arguments": '{"a'}}]), "message 2: a call is"),
    ({**replying(), "functions": [{"name": "f"}]}, "`functions` would be left out"),
    ({**replying(), "chat_template_kwargs": {"enable_thinking": False}}, "`chat_template_kwargs` would be left"),
    ({**replying(), "images": ["a.png"]}, "`images` would be left out"),
    *(({**replying(), key: "a"}, f"`{key}` would be left out.*first message") for key in ("system", "system_prompt")),
    *(({**replying(), "tools": odd}, "`tools` is a list of functions") for odd in ([5], "add", "[{", [{"name": "f"}])),
    ({"messages": [{**user("q"), "tools": ["f"]}, assistant("A")]}, "`tools` is a list"),
    ({"messages": [{**user("q"), "tools": [ADD]}, assistant("A")], "tools": [ADD]}, "both the row and its first mess"),
    (replying(tools=[ADD]), "not a later one"),
    (parallel(["a", "b"], ["b", "c"]), "a result is of the call `c`, and the reply before it has only `a`, `b`"),
    (parallel(["a", "b"], ["b", "b"]), "the call `b` has two results"),
    (parallel(["a", "b"], ["b"]), "the call `a` has no result, and a later call"),
    (parallel(["a"], ["b"]), "a result is of the call `b`"),
    ({"prompt": "q", "completion": 5}, "`prompt`: expected a list of messages"),
    ({"prompt": ["q"], "completion": [assistant("A")]}, "`prompt`: expected a list of messages"),
    ({"prompt": [user("q")], "completion": []}, "`completion`: expected a list of messages"),
    ({"prompt": [user("q")], "completion": [assistant("A")], "label": False}, "`label` would be left out.*marks good"),
    ({"prompt": [user("q")], "completion": [user("A")]}, "roles: user, user"),
    ({"prompt": "q", "chosen": "A", "rejected": "B"}, "expected the columns.*found `prompt`, `chosen`"),
]


@pytest.mark.parametrize(("row", "why"), REFUSED)
def test_a_row_that_cannot_be_meant_is_refused_with_its_place_and_column(row: Any, why: str) -> None:
    with pytest.raises(UserError, match=rf"(?s)^a\.jsonl:7: ?.*{why}"):
        read_row(row, "a.jsonl:7")
