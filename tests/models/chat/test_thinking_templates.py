"""Replies with and without thoughts, in templates that write the tags: each tag stands once, and is closed."""

import re

import pytest

from slimrl.errors import UserError
from slimrl.models.chat.template import ChatFormat
from tests.models.chat.templates import assistant, user
from tests.tiny import tiny_tokenizer

HISTORY = (
    "{% for m in messages %}{% if m.role != 'assistant' %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% else %}{% set parts = m.content.split('</think>') %}{{ '<|im_start|>assistant\n' }}"
)
END = "{{ '<|im_end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n"
LAST = (
    "{% if loop.last %}{{ '<think>\n' + (parts[0].split('<think>')[-1].strip() if parts|length > 1 else '') + "
    "'\n</think>\n\n' }}{% endif %}{{ parts[-1].strip() }}"
)
TEMPLATES = {
    # The prompt opens thoughts; the template writes them in the last reply (Qwen3 Thinking, QwQ).
    "last": HISTORY + LAST + END + "<think>\n' }}{% endif %}",
    # ... and never writes any (R1 Distill).
    "stripped": HISTORY + "{{ parts[-1].strip() }}" + END + "<think>\n' }}{% endif %}",
    # ... and writes an empty block before each reply.
    "always": HISTORY + "{{ '<think>\n\n</think>\n\n' + parts[-1].strip() }}" + END + "<think>\n' }}{% endif %}",
    # The prompt opens them without a line break (GLM).
    "line": HISTORY + "{{ '<think></think>\n' + parts[-1].strip() }}" + END + "<think>' }}{% endif %}",
    # The prompt opens nothing, and an empty block stands before each reply.
    "block": HISTORY + "{{ '<think></think>\n' + parts[-1].strip() }}" + END + "' }}{% endif %}",
    "plain": HISTORY + "{{ m.content }}" + END + "' }}{% endif %}",
}
CLOSED = HISTORY + "{{ parts[-1].strip() }}" + END + "<think>\n\n</think>\n\n' }}{% endif %}"
REPLIES = {
    "4": ("", "4"),
    "<think>\nDouble 2.\n</think>\n\n4": ("Double 2.", "4"),
    "<think>Double 2.</think>4": ("Double 2.", "4"),
    "\n<think>\n\n</think>\n\n4": ("", "4"),
}


def learnt(template, *replies):
    """The whole text of a conversation with these replies, and the part of each turn that is trained."""
    chat = ChatFormat(tiny_tokenizer(chat_template=template))
    messages = []
    for reply in replies:
        messages += [user("2+2?"), assistant(reply)]
    token_ids, mask = chat.encode_conversation(messages)
    text = "".join("\0" if trained else "\1" for trained in mask)
    runs = [found.span() for found in re.finditer("\0+", text)]
    return chat.full_text(token_ids), [chat.full_text(token_ids[begin:end]) for begin, end in runs]


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("name", TEMPLATES)
def test_each_tag_stands_once_and_is_closed(name, reply):
    thoughts, answer = REPLIES[reply]
    text, turns = learnt(TEMPLATES[name], reply, reply)
    assert len(turns) == 2
    for turn in text.split("<|im_start|>assistant\n")[1:]:
        opened, closed, said = turn.partition("</think>")
        assert turn.count("<think>") == turn.count("</think>") <= 1
        assert opened.strip().removeprefix("<think>").strip() == thoughts if closed else not thoughts
        assert (said if closed else opened).strip().startswith(f"{answer}<|im_end|>")
    for turn in turns:
        assert turn.endswith(f"{answer}<|im_end|>")
        assert thoughts in turn


def test_thoughts_may_be_opened_by_the_prompt_and_are_refused_where_it_closes_them():
    _, turns = learnt(TEMPLATES["last"], "Double 2.\n</think>\n\n4")
    assert turns == ["Double 2.\n</think>\n\n4<|im_end|>"]
    _, turns = learnt(CLOSED, "4", "<think>\n\n</think>\n\n4")
    assert turns == ["4<|im_end|>", "4<|im_end|>"]
    with pytest.raises(UserError, match=r"ends in </think>.*a reply of the data has some"):
        learnt(CLOSED, "<think>\nDouble 2.\n</think>\n\n4")


def test_a_reply_behind_opened_thoughts_is_shown_with_their_tag():
    for name, opened in {"last": "<think>\n", "line": "<think>", "plain": ""}.items():
        chat = ChatFormat(tiny_tokenizer(chat_template=TEMPLATES[name]))
        prompt = chat.opening([user("a <think>")])
        for reply in ("Perhaps <answer>4</answer>", "Double 2.\n</think>\n\n4", ""):
            token_ids = chat._tokenizer.encode(reply, add_special_tokens=False)
            assert chat.text(token_ids, prompt) == opened + reply
            if opened and reply:
                again, _ = chat.encode_conversation([user("a <think>"), assistant(opened + reply)])
                assert again == [*prompt, *token_ids, chat.end_of_turn]


def test_thoughts_whose_end_no_text_shows_are_not_opened():
    tokenizer = tiny_tokenizer(chat_template=TEMPLATES["last"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    chat = ChatFormat(tokenizer)
    prompt = chat.opening([user("2+2?")])
    assert chat.text(tokenizer.encode("Double 2.</think>4", add_special_tokens=False), prompt) == "Double 2.4"
