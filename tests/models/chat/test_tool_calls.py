"""Tool calls in growing text: the text and calls do not depend on how it is cut."""

import json
import time

import pytest

from slimrl.models.chat.thoughts import without_thoughts
from slimrl.models.chat.tool_calls import ToolCall, ToolReader

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "<x>"}}\n</tool_call>'


def read(text: str, step: int) -> tuple[str, list[tuple[str, object]]]:
    reader, said, calls = ToolReader(), "", []
    for end in range(step, len(text) + step, step):
        for part in reader.read(text[:end], closed=end >= len(text)):
            if isinstance(part, ToolCall):
                calls.append((part.name, json.loads(part.arguments)))
            else:
                said += part
                assert "<tool_call>" not in said or "broken" in text
    assert reader.num_calls == len(calls)
    return said, calls


@pytest.mark.parametrize("step", [1, 2, 5, 13, 1000])
@pytest.mark.parametrize(
    ("text", "said", "num_calls"),
    [
        ("just text < and more <tool", "just text < and more <tool", 0),
        (CALL, "", 1),
        (f"Let me see. \n{CALL}\n", "Let me see.", 1),
        (f"{CALL}\n{CALL}\n\n", "", 2),
        (f"{CALL} and so on", " and so on", 1),
        ("  spaces stay  ", "  spaces stay  ", 0),
        ("<tool_call>broken</tool_call>", "<tool_call>broken</tool_call>", 0),
        ('<tool_call>{"broken": 1}</tool_call>', '<tool_call>{"broken": 1}</tool_call>', 0),
        ('<tool_call>{"name": "broken", "arguments": {"x": "\\ud83d"}}</tool_call>', None, 0),
        ('<tool_call>{"name": "broken", "arguments": "\\ude42"}</tool_call>', None, 0),
        ('<tool_call>{"name": "broken\\udfff"}</tool_call>', None, 0),
        ('<tool_call>{"name": "broken", "arguments": 3}</tool_call>!', None, 0),
        ('text <tool_call>{"name": "broken", "argu', 'text <tool_call>{"name": "broken", "argu', 0),
        ("", "", 0),
    ],
)
def test_calls_are_found_and_everything_else_is_text(text: str, said: str | None, num_calls: int, step: int) -> None:
    found, calls = read(text, step)
    assert found == (text if said is None else said)
    assert calls == [("add", {"a": 1, "b": "<x>"})] * num_calls


def test_arguments_may_be_written_as_text_or_left_out() -> None:
    text = '<tool_call>{"name": "f", "arguments": "{}"}</tool_call><tool_call>{"name": "g"}</tool_call>'
    first, second = ToolReader().read(text, closed=True)
    assert isinstance(first, ToolCall)
    assert isinstance(second, ToolCall)
    assert (first.name, first.arguments, second.name, second.arguments) == ("f", "{}", "g", "{}")
    assert first.id != second.id


def test_a_whole_surrogate_pair_is_a_character() -> None:
    (call,) = ToolReader().read(
        '<tool_call>{"name": "f", "arguments": {"x": "\\ud83d\\ude42"}}</tool_call>', closed=True
    )
    assert isinstance(call, ToolCall)
    assert call.arguments == '{"x": "🙂"}'


QUERY = "what the tag </tool_call> is for"


def call_of(query: str) -> str:
    return f"<tool_call>{json.dumps({'name': 'search_pages', 'arguments': {'query': query}})}</tool_call>"


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "queries"),
    [
        (call_of(QUERY), [QUERY]),
        (call_of("</tool_call></tool_call>"), ["</tool_call></tool_call>"]),
        (call_of('a quoted "</tool_call>" and \\'), ['a quoted "</tool_call>" and \\']),
        (call_of("<tool_call>{}</tool_call>"), ["<tool_call>{}</tool_call>"]),
        (f"First {call_of(QUERY)} then {call_of('plain')}", [QUERY, "plain"]),
        (f'<tool_call>say "hi</tool_call>{call_of("good")}', ["good"]),
        (f"I write <tool_call> and then: {call_of('good')}", ["good"]),
        (call_of("what is </think>?"), ["what is </think>?"]),
        (call_of("what is <think>?") + call_of("b"), ["what is <think>?", "b"]),
    ],
)
def test_a_tag_in_an_argument_is_part_of_the_argument(text: str, queries: list[str], step: int) -> None:
    reader = ToolReader()
    parts = [part for end in range(step, len(text) + step, step) for part in reader.read(text[:end], end >= len(text))]
    calls = [part for part in parts if isinstance(part, ToolCall)]
    assert [json.loads(call.arguments)["query"] for call in calls] == queries


def test_an_argument_that_never_ends_is_text_up_to_its_first_tag() -> None:
    cut = '<tool_call>{"name": "f", "arguments": {"x": "a </tool_call> b'
    assert ToolReader().read(cut, closed=True) == [cut.partition(" b")[0], " b"]


@pytest.mark.parametrize("end", ["", '"', '"</tool_call>', '" < </tool_call>'])
@pytest.mark.parametrize("mark", ['"', '\\"'])
def test_many_quotation_marks_do_not_slow_the_reader_down(mark: str, end: str) -> None:
    text = f"<tool_call>{{{mark}" * 4000 + end
    began = time.thread_time()
    assert "".join(map(str, ToolReader().read(text, closed=True))) == text
    assert without_thoughts(text) == text
    assert time.thread_time() - began < 2


def test_a_long_argument_is_not_read_again_for_each_piece() -> None:
    argument = "a" * 20_000
    text, reader = call_of(argument), ToolReader()
    began = time.thread_time()
    assert not any(reader.read(text[:end], closed=False) for end in range(0, len(text), 10))
    (call,) = reader.read(text, closed=True)
    assert isinstance(call, ToolCall) and argument in call.arguments
    assert time.thread_time() - began < 1


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_a_backslash_outside_of_texts_makes_no_call(step: int) -> None:
    broken = '<tool_call>{\\"broken": "\\""}</tool_call>'
    assert read(f"{broken}{CALL}", step) == (broken, [("add", {"a": 1, "b": "<x>"})])


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    ("thoughts", "in_thoughts"),
    [
        (f"<think>\nI could call {call_of('draft')} first, but no.\n</think>", False),
        (f"I could call {call_of('draft')}{call_of('other')} first, but no.\n</think>", True),
        (f"<think>{call_of('draft')}</think>Then I <think>{call_of('again')}</think>", False),
        ("<think><tool_call>no call</think>", False),
        ("In <tool_call> I write {} and </think>", True),
    ],
)
def test_calls_within_thoughts_are_text(thoughts: str, in_thoughts: bool, step: int) -> None:
    text = f"{thoughts}\n{call_of('meant')}"
    reader = ToolReader(in_thoughts)
    parts = [part for end in range(step, len(text) + step, step) for part in reader.read(text[:end], end >= len(text))]
    calls = [part for part in parts if isinstance(part, ToolCall)]
    assert [json.loads(call.arguments)["query"] for call in calls] == ["meant"]
    assert "".join(part for part in parts if isinstance(part, str)) == thoughts


def test_a_whole_reply_may_end_thoughts_that_the_prompt_began() -> None:
    text = f"I could call {call_of('draft')} or not.</think>{call_of('meant')}"
    said, call = ToolReader().read(text, closed=True)
    assert said == text.removesuffix(call_of("meant"))
    assert isinstance(call, ToolCall) and "meant" in call.arguments


def test_thoughts_without_an_end_hold_no_call() -> None:
    text = f"<think>perhaps {call_of('draft')}"
    assert "".join(map(str, ToolReader().read(text, closed=True))) == text
