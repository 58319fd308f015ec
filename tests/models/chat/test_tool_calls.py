"""Tool calls in growing text: the text and calls do not depend on how it is cut."""

import json

import pytest

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
