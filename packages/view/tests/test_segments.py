import time

import pytest

from slimrl_view.segments import segments_of

CHATML = [
    "<im>",
    "system\n",
    "be",
    " good",
    "</im>",
    "\n",
    "<im>",
    "user\n",
    "2+2",
    "?",
    "</im>",
    "\n",
    "<im>",
    "assistant\n",
]
ASKED = [{"role": "system", "content": "be good"}, {"role": "user", "content": "2+2?"}]


def spans(segments):
    return [(segment["kind"], segment["role"], segment["begin"], segment["end"]) for segment in segments]


def segments(pieces, mask, messages):
    return segments_of(pieces, mask, messages, [piece in ("<im>", "</im>", "<eot>") for piece in pieces])


def test_messages_and_replies_are_parted():
    pieces = [
        *CHATML,
        "five",
        "</im>",
        "\n",
        "<im>",
        "user\n",
        "no",
        "</im>",
        "\n",
        "<im>",
        "assistant\n",
        "4",
        "</im>",
    ]
    mask = [0] * 14 + [1, 1] + [0] * 8 + [1, 1]
    messages = [
        *ASKED,
        {"role": "assistant", "content": "five"},
        {"role": "user", "content": "no"},
        {"role": "assistant", "content": "4"},
    ]
    assert spans(segments(pieces, mask, messages)) == [
        ("prompt", "system", 0, 5),
        ("prompt", "user", 5, 11),
        ("prompt", "assistant", 11, 14),
        ("reply", "assistant", 14, 16),
        ("observation", "user", 16, 21),
        ("observation", "assistant", 21, 24),
        ("reply", "assistant", 24, 26),
    ]


def test_solved_examples_in_a_prompt_are_no_replies():
    example = ["1+1", "</im>", "\n", "<im>", "assistant\n", "two", "</im>", "\n", "<im>", "user\n"]
    pieces = ["<im>", "user\n", *example, "2+2", "</im>", "\n", "<im>", "assistant\n", "four"]
    messages = [
        {"role": "user", "content": "1+1"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "2+2"},
        {"role": "assistant", "content": "four"},
    ]
    assert spans(segments(pieces, [0] * 17 + [1], messages)) == [
        ("prompt", "user", 0, 4),
        ("prompt", "assistant", 4, 9),
        ("prompt", "user", 9, 14),
        ("prompt", "assistant", 14, 17),
        ("reply", "assistant", 17, 18),
    ]


def test_segments_cover_all_tokens_whatever_the_template_did():
    pieces = ["something", " else", "<eot>", "yes"]
    found = segments(
        pieces, [0, 0, 0, 1], [{"role": "user", "content": "not in it"}, {"role": "assistant", "content": "yes"}]
    )
    assert spans(found) == [("prompt", "user", 0, 3), ("reply", "assistant", 3, 4)]
    assert spans(segments(pieces, [0, 0, 0, 0], [])) == [("prompt", "assistant", 0, 4)]
    assert segments([], [], []) == []


def test_a_system_message_before_the_first_reply_and_tools_have_their_roles():
    pieces = ["ask", "<eot>", "call", "<eot>", "found it", "<eot>", "done"]
    messages = [
        {"role": "user", "content": "ask"},
        {"role": "assistant", "content": "call"},
        {"role": "tool", "content": "found it"},
        {"role": "assistant", "content": "done"},
    ]
    assert spans(segments(pieces, [0, 0, 1, 1, 0, 0, 1], messages)) == [
        ("prompt", "user", 0, 2),
        ("reply", "assistant", 2, 4),
        ("observation", "tool", 4, 6),
        ("reply", "assistant", 6, 7),
    ]


@pytest.mark.parametrize(
    ("reply", "kinds"),
    [
        ("just words", ["text"]),
        ("<think>so</think>then", ["thought", "text"]),
        ("<think>never closed", ["thought"]),
        ("a thought that the template opened</think>42", ["thought", "text"]),
        ('I look: <tool>find("x")</tool>', ["text", "tool_call"]),
        (
            '<tool_call>{"name": "f"}</tool_call>\n<tool_call>{"name": "g"}</tool_call>',
            ["tool_call", "text", "tool_call"],
        ),
        ("<code>print(1)", ["tool_call"]),
        ("see ```python\nprint(1)\n``` and", ["text", "tool_call", "text"]),
        ("<think>a <tool>b</tool></think><answer>4</answer>!", ["thought", "answer", "text"]),
        ("<reversed_text>cba</reversed_text", ["answer"]),
        ("3 < 4 and <b> is not closed", ["text"]),
        ("", []),
    ],
)
def test_a_reply_is_parted_by_its_tags(reply, kinds):
    pieces = ["q", *reply]  # a token for each character
    [*_, last] = (
        segments(pieces, [0, *[1] * len(reply)], [{"role": "user", "content": "q"}]) if reply else [{"parts": []}]
    )
    assert [part["kind"] for part in last["parts"]] == kinds
    edges = [place for part in last["parts"] for place in (part["begin"], part["end"])]
    assert edges[1:-1:2] == edges[2::2]


def test_a_token_that_two_parts_share_belongs_to_the_one_it_begins_in():
    [reply] = segments(["ab<", "think>", "c</think", ">d"], [1] * 4, [])
    assert [(part["begin"], part["end"], part["kind"]) for part in reply["parts"]] == [
        (0, 1, "text"),
        (1, 4, "thought"),
    ]


@pytest.mark.parametrize(
    "reply", ["<a>" * 16_000, "<a>" * 16_000 + "</b>", "<b><a>" * 8_000 + "</b>", "<think" * 9_000, "<" + "a-" * 16_000]
)
def test_tags_without_an_end_are_divided_in_linear_time(reply):
    began = time.thread_time()
    segments = segments_of(["q", reply], [0, 1], [{"role": "user", "content": "q"}], [False, False])
    assert segments[-1]["parts"][-1]["end"] == 2
    assert time.thread_time() - began < 2
