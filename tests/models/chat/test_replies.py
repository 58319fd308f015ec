"""Tool calls and thoughts in replies."""

import json
import time

import pytest

from slimrl.models.chat.thoughts import begins_in_thoughts, opens_thoughts, without_thoughts
from slimrl.models.chat.tool_calls import ToolCall, read_calls

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "<x>"}}\n</tool_call>'
SUM = {"a": 1, "b": "<x>"}  # the arguments of CALL
TAG, QUOTE = "what the tag </tool_call> is for", 'a quoted "</tool_call>" and \\'
BACKSLASH = '<tool_call>{\\"broken": "\\""}</tool_call>'


def call_of(query: str) -> str:
    return f"<tool_call>{json.dumps({'name': 'search_pages', 'arguments': {'query': query}})}</tool_call>"


DRAFT, MEANT = call_of("draft"), call_of("meant")
# Replies -> their text, and the arguments or queries of their calls.
REPLIES: dict[str, tuple[str, list[object]]] = {
    "": ("", []),
    "just text < and more <tool": ("just text < and more <tool", []),
    "  spaces stay  ": ("  spaces stay  ", []),
    CALL: ("", [SUM]),
    f"Let me see. \n{CALL}\n": ("Let me see.", [SUM]),
    f"{CALL}\n{CALL}\n\n": ("", [SUM, SUM]),
    f"{CALL} and so on": (" and so on", [SUM]),
    # Tags in arguments.
    call_of(TAG): ("", [TAG]),
    call_of("</tool_call></tool_call>"): ("", ["</tool_call></tool_call>"]),
    call_of(QUOTE): ("", [QUOTE]),
    call_of("<tool_call>{}</tool_call>"): ("", ["<tool_call>{}</tool_call>"]),
    f"First {call_of(TAG)} then {call_of('plain')}": ("First then", [TAG, "plain"]),
    call_of("what is </think>?"): ("", ["what is </think>?"]),
    call_of("what is <think>?") + call_of("b"): ("", ["what is <think>?", "b"]),
    # Calls that are malformed or only mentioned.
    '<tool_call>{"name": "f", "arguments": "{}"}</tool_call><tool_call>{"name": "g"}</tool_call>': ("", [{}, {}]),
    '<tool_call>{"name": "f", "arguments": {"x": "\\ud83d\\ude42"}}</tool_call>': ("", [{"x": "🙂"}]),
    **{
        broken: (broken, [])
        for broken in (
            "<tool_call>broken</tool_call>",
            '<tool_call>{"broken": 1}</tool_call>',
            '<tool_call>{"name": "broken", "arguments": {"x": "\\ud83d"}}</tool_call>',
            '<tool_call>{"name": "broken", "arguments": "\\ude42"}</tool_call>',
            '<tool_call>{"name": "broken\\udfff"}</tool_call>',
            '<tool_call>{"name": "broken", "arguments": 3}</tool_call>!',
            'text <tool_call>{"name": "broken", "argu',
            '<tool_call>{"name": "f", "arguments": {"x": "an end without </tool_call> b',
            f"<think>perhaps {DRAFT}",
        )
    },
    f'<tool_call>say "hi</tool_call>{MEANT}': ('<tool_call>say "hi</tool_call>', ["meant"]),
    f"I write <tool_call> and then: {MEANT}": ("I write <tool_call> and then:", ["meant"]),
    f"{BACKSLASH}{CALL}": (BACKSLASH, [SUM]),
    # Thoughts, some of which the prompt has opened.
    **{
        f"{thoughts}\n{MEANT}": (thoughts, ["meant"])
        for thoughts in (
            f"<think>\nI could call {DRAFT} first, but no.\n</think>",
            f"I could call {DRAFT}{call_of('other')} first, but no.\n</think>",
            f"<think>{DRAFT}</think>Then I <think>{call_of('again')}</think>",
            "<think><tool_call>no call</think>",
            "In <tool_call> I write {} and </think>",
        )
    },
}


@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_is_its_text_and_its_calls(reply: str) -> None:
    text, calls = REPLIES[reply]
    parts = read_calls(reply)
    found = [part for part in parts if isinstance(part, ToolCall)]
    assert "".join(part for part in parts if isinstance(part, str)) == text
    arguments = [json.loads(call.arguments) for call in found]
    assert [one.get("query", one) for one in arguments] == calls
    assert len({call.id for call in found}) == len(calls)
    assert all(not call.arguments.isascii() for call in found if "🙂" in str(calls))


@pytest.mark.parametrize("end", ["", '"', '"</tool_call>', '" < </tool_call>'])
@pytest.mark.parametrize("mark", ['"', '\\"'])
def test_many_quotation_marks_do_not_slow_the_reader_down(mark: str, end: str) -> None:
    text = f"<tool_call>{{{mark}" * 4000 + end
    began = time.thread_time()
    assert read_calls(text) == [text]
    assert without_thoughts(text) == text
    assert time.thread_time() - began < 2


@pytest.mark.parametrize(
    ("reply", "visible"),
    [
        ("A", "A"),
        ("<think>a</think>B", "B"),
        ("a</think>B", "B"),
        ("<think>a <think> b</think> c</think>D", "D"),
        ("X<think>a</think>B", "B"),
        ("<think>a</think>B<think>c", "B"),
        ("B <think>c\n", "B "),
        ("<think>a\n", ""),
        ("", ""),
        (f"<think>{DRAFT}</think>{MEANT}", MEANT),
        (f"{DRAFT}</think>{MEANT}", MEANT),
        (call_of("what is </think>?"), call_of("what is </think>?")),
        (call_of("what is <think>?"), call_of("what is <think>?")),
        (f"<think>hm</think>{call_of('</think> <think>')}", call_of("</think> <think>")),
        (f"I use <tool_call> tags.</think>{MEANT}", MEANT),
        (f'I use <tool_call>" tags.</think>{MEANT}', MEANT),
        ("<tool_call>{ is how it begins</think>B", "B"),
        (f"<tool_call>{{ is how it begins</think>{MEANT}", MEANT),
    ],
)
def test_the_visible_part_stands_behind_the_thoughts(reply: str, visible: str) -> None:
    assert without_thoughts(reply) == visible


def test_a_reply_or_a_prompt_may_begin_in_thoughts() -> None:
    assert begins_in_thoughts(f"{DRAFT}</think>A")
    assert not any(map(begins_in_thoughts, ("A", "<think>a</think>", "<think>a", call_of("</think>"), "")))
    assert opens_thoughts("<|im_start|>assistant\n<think>\n")
    assert not any(map(opens_thoughts, ("<think> is a tag", "<think>\n\n</think>\n\n", "")))
