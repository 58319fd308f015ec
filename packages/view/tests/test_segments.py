import time

import pytest

from slimrl_view.segments import segments_of

CHATML = "<im>|system\n|be| good|</im>|\n|<im>|user\n|2+2|?|</im>|\n|<im>|assistant\n"
SOLVED = "<im>|user\n|1+1|</im>|\n|<im>|assistant\n|two|</im>|\n|<im>|user\n|2+2|</im>|\n|<im>|assistant\n|four"


def segments(pieces, sampled, *messages):
    """The segments of tokens, of which those of these numbers were sampled; messages are a role and a content."""
    mask = [int(number in sampled) for number in range(len(pieces))]
    given = [dict(zip(("role", "content"), message.split(": ", 1), strict=True)) for message in messages]
    return segments_of(pieces, mask, given, [piece in ("<im>", "</im>", "<eot>") for piece in pieces])


@pytest.mark.parametrize(
    ("pieces", "sampled", "messages", "wanted"),
    [
        (
            f"{CHATML}|five|</im>|\n|<im>|user\n|no|</im>|\n|<im>|assistant\n|4|</im>",
            {14, 15, 24, 25},
            ["system: be good", "user: 2+2?", "assistant: five", "user: no", "assistant: 4"],
            "prompt system 0 5, prompt user 5 11, prompt assistant 11 14, reply assistant 14 16, "
            "observation user 16 21, observation assistant 21 24, reply assistant 24 26",
        ),
        (  # solved examples in a prompt are no replies
            SOLVED,
            {17},
            ["user: 1+1", "assistant: two", "user: 2+2", "assistant: four"],
            "prompt user 0 4, prompt assistant 4 9, prompt user 9 14, prompt assistant 14 17, reply assistant 17 18",
        ),
        (  # tools have their roles
            "ask|<eot>|call|<eot>|found it|<eot>|done",
            {2, 3, 6},
            ["user: ask", "assistant: call", "tool: found it", "assistant: done"],
            "prompt user 0 2, reply assistant 2 4, observation tool 4 6, reply assistant 6 7",
        ),
        # Segments cover all tokens, whatever the template did.
        (
            "something| else|<eot>|yes",
            {3},
            ["user: not in it", "assistant: yes"],
            "prompt user 0 3, reply assistant 3 4",
        ),
        ("something| else|<eot>|yes", set(), [], "prompt assistant 0 4"),
        ("", set(), [], ""),
    ],
)
def test_messages_and_replies_are_parted(pieces, sampled, messages, wanted):
    found = segments(pieces.split("|") if pieces else [], sampled, *messages)
    assert ", ".join("{kind} {role} {begin} {end}".format(**one) for one in found) == wanted


@pytest.mark.parametrize(
    ("reply", "kinds"),
    [
        ("just words", ["text"]),
        ("<think>so</think>then", ["thought", "text"]),
        ("<think>never closed", ["thought"]),
        ("a thought that the template opened</think>42", ["thought", "text"]),
        ('I look: <tool>find("x")</tool>', ["text", "tool_call"]),
        ("<tool_call>f</tool_call>\n<tool_call>g</tool_call>", ["tool_call", "text", "tool_call"]),
        ("<code>print(1)", ["tool_call"]),
        ("see ```python\nprint(1)\n``` and", ["text", "tool_call", "text"]),
        ("<think>a <tool>b</tool></think><answer>4</answer>!", ["thought", "answer", "text"]),
        ("<reversed_text>cba</reversed_text", ["answer"]),
        ("3 < 4 and <b> is not closed", ["text"]),
    ],
)
def test_a_reply_is_parted_by_its_tags(reply, kinds):
    pieces = ["q", *reply]  # a token for each character
    parts = segments(pieces, range(1, len(pieces)), "user: q")[-1]["parts"]
    assert [part["kind"] for part in parts] == kinds
    edges = [place for part in parts for place in (part["begin"], part["end"])]
    assert edges[1:-1:2] == edges[2::2]


def test_a_token_that_two_parts_share_belongs_to_the_one_it_begins_in():
    [reply] = segments(["ab<", "think>", "c</think", ">d"], range(4))
    assert [(part["begin"], part["end"], part["kind"]) for part in reply["parts"]] == [
        (0, 1, "text"),
        (1, 4, "thought"),
    ]


@pytest.mark.parametrize(
    "reply", ["<a>" * 16_000, "<a>" * 16_000 + "</b>", "<b><a>" * 8_000 + "</b>", "<think" * 9_000, "<" + "a-" * 16_000]
)
def test_tags_without_an_end_are_divided_in_linear_time(reply):
    began = time.thread_time()
    assert segments(["q", reply], {1}, "user: q")[-1]["parts"][-1]["end"] == 2
    assert time.thread_time() - began < 2
