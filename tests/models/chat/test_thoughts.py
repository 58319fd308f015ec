"""What others see of a reply: what stands behind its thoughts."""

import json

import pytest

from slimrl.models.chat.thoughts import begins_in_thoughts, opens_thoughts, without_thoughts


def call_of(query: str) -> str:
    return f"<tool_call>{json.dumps({'name': 'search_pages', 'arguments': {'query': query}})}</tool_call>"


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
        (f"<think>{call_of('draft')}</think>{call_of('meant')}", call_of("meant")),
        (f"{call_of('draft')}</think>{call_of('meant')}", call_of("meant")),
        (call_of("what is </think>?"), call_of("what is </think>?")),
        (call_of("what is <think>?"), call_of("what is <think>?")),
        (f"<think>hm</think>{call_of('</think> <think>')}", call_of("</think> <think>")),
        (f"I use <tool_call> tags.</think>{call_of('meant')}", call_of("meant")),
        (f'I use <tool_call>" tags.</think>{call_of("meant")}', call_of("meant")),
        ("<tool_call>{ is how it begins</think>B", "B"),
        (f"<tool_call>{{ is how it begins</think>{call_of('meant')}", call_of("meant")),
    ],
)
def test_the_visible_part_stands_behind_the_thoughts(reply: str, visible: str) -> None:
    assert without_thoughts(reply) == visible


def test_a_reply_that_only_ends_thoughts_began_in_them() -> None:
    assert begins_in_thoughts(f"{call_of('draft')}</think>A")
    assert not any(map(begins_in_thoughts, ("A", "<think>a</think>", "<think>a", call_of("</think>"), "")))


def test_a_prompt_may_open_the_thoughts() -> None:
    assert opens_thoughts("<|im_start|>assistant\n<think>\n")
    assert not any(map(opens_thoughts, ("<think> is a tag", "<think>\n\n</think>\n\n", "")))
