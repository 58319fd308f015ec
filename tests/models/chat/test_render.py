"""What stands behind a reply is what the template writes there in the whole conversation."""

from contextlib import nullcontext

import pytest

from slimrl.errors import UserError
from slimrl.models.chat.template import ChatFormat
from slimrl.types import Message
from tests.models.chat import hub_templates
from tests.models.chat.pieces import piece_tokenizer
from tests.models.chat.templates import TOOLS, assistant, result, system, user

SEARCH = {
    "type": "function",
    "function": {"name": "search", "description": "Finds.", "parameters": {"type": "object", "properties": {}}},
}
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call>'
STRUCTURED = {"id": "0", "type": "function", "function": {"name": "search", "arguments": {"query": "x"}}}
WITH_CALLS = {
    "hermes": hub_templates.HERMES,
    "qwen2.5": TOOLS,
    "qwen3": hub_templates.QWEN3,
    "counting": hub_templates.COUNTING,
    "after a call": hub_templates.AFTER_A_CALL,
}


def behind(tokenizer, chat: ChatFormat, messages, tools) -> list[int]:
    """The token ids behind the last reply's end, in the whole conversation as other programs render it."""
    last = max(index for index, message in enumerate(messages) if message["role"] == "assistant")
    shown = [
        {**message, "content": "", "tool_calls": [STRUCTURED] * message["content"].count("<tool_call>")}
        if "</tool_call>" in message["content"]
        else message
        for message in messages
    ]
    text = tokenizer.apply_chat_template(shown, tools=tools, tokenize=False, add_generation_prompt=True)
    up_to_reply = tokenizer.apply_chat_template(shown[: last + 1], tools=tools, tokenize=False)
    # A template may write an earlier turn otherwise than a last one, so the ends of turns are counted.
    whole = tokenizer.encode(text, add_special_tokens=False)
    ends = [index for index, token in enumerate(whole) if token == chat.end_of_turn]
    return whole[ends[up_to_reply.count(tokenizer.convert_ids_to_tokens(chat.end_of_turn)) - 1] + 1 :]


CONVERSATIONS = [
    [user("q"), assistant(CALL), result("1")],
    [user("q"), assistant(CALL), result("1"), assistant(CALL), result("2")],
    [user("q"), assistant(CALL), result("1"), result("2"), assistant("Hm."), user("r")],
    [user("q"), assistant(CALL + CALL), result("1"), result("2"), assistant(CALL), result("3"), result("4")],
    [user("q"), assistant("A"), user("r"), assistant(CALL), result("1"), assistant("B"), user("s")],
]


@pytest.mark.parametrize("messages", CONVERSATIONS, ids=range(len(CONVERSATIONS)))
@pytest.mark.parametrize("name", WITH_CALLS)
@pytest.mark.parametrize("family", ["bytes", "prepend", "metaspace-first"])
def test_results_are_written_as_in_the_whole_conversation(family: str, name: str, messages: list[Message]) -> None:
    tokenizer = piece_tokenizer(family, WITH_CALLS[name])
    chat = ChatFormat(tokenizer)
    offered: list[Message] = [{**messages[0], "tools": [SEARCH]}, *messages[1:]]
    prompt = tokenizer.apply_chat_template(messages[:1], tools=[SEARCH], tokenize=False, add_generation_prompt=True)
    assert chat.opening(offered[:1]) == tokenizer.encode(prompt, add_special_tokens=False)
    expected = behind(tokenizer, chat, messages, [SEARCH])
    assert chat.continuation(offered, after=chat.end_of_turn) == expected


@pytest.mark.parametrize("template", [hub_templates.DEEPSEEK, hub_templates.COUNTING, hub_templates.LLAMA31])
@pytest.mark.parametrize(
    "more", [[result("1")], [result("1"), result("2")], [result("1"), assistant("B"), result("2")]], ids=range(3)
)
def test_results_without_tools_are_written_as_in_the_whole_conversation(template: str, more: list[Message]) -> None:
    tokenizer, messages = piece_tokenizer("bytes", template), [user("q"), assistant("A"), *more]
    chat = ChatFormat(tokenizer)
    assert chat.continuation(messages, after=chat.end_of_turn) == behind(tokenizer, chat, messages, None)


SPELT = "slimrl@marker@ slimrl@marker@0. </tool_call> <tool_call>"


@pytest.mark.parametrize(
    ("reply", "error", "written"),
    [
        pytest.param("<tool_call>{</tool_call>", "Error", "Result 1: Error", id="malformed call, which is text"),
        pytest.param(CALL, "1", "First result: 1", id="call"),
        pytest.param(CALL, SPELT, f"First result: {SPELT}", id="page that spells our markers"),
    ],
)
def test_a_result_follows_a_call_or_a_text(reply: str, error: str, written: str) -> None:
    tokenizer = piece_tokenizer("bytes", hub_templates.AFTER_A_CALL)
    chat = ChatFormat(tokenizer)
    messages: list[Message] = [{**user(error), "tools": [SEARCH]}, assistant(reply), result(error)]
    said = tokenizer.decode(chat.continuation(messages, after=chat.end_of_turn))
    assert said == f"\n<|im_start|>tool\n{written}<|im_end|>\n<|im_start|>assistant\n"


NEEDS_A_CALL = hub_templates.COUNTING.replace(
    "{%- if m['role'] == 'tool' %}",
    "{%- if m['role'] == 'tool' %}{% if loop.previtem['role'] == 'assistant' and not loop.previtem['tool_calls'] %}"
    "{{ raise_exception('a result needs a call') }}{% endif %}",
)
NOT_BESIDE_SYSTEM = (
    "{% if tools and messages[0]['role'] != 'system' %}{{ tools | tojson }}{% endif %}{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] }}{% for c in m['tool_calls'] or [] %}"
    "{{ '<tool_call>' + c['function'] | tojson + '</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "first", "why"),
    [
        (hub_templates.template_with_calls("{{- calls }}"), user("q"), "in a form that slimrl does not know"),
        (hub_templates.HERMES_CHAT, user("q"), "does not write tools, calls of them and their results"),
        (NEEDS_A_CALL, user("q"), "a result needs a call"),
        (NOT_BESIDE_SYSTEM, user("q"), ""),
        (NOT_BESIDE_SYSTEM, system("Be brief."), "leaves out the tool search of a conversation with the roles system"),
    ],
)
def test_what_cannot_be_written_is_refused_at_the_first_episode(template: str, first: Message, why: str) -> None:
    chat = ChatFormat(piece_tokenizer("bytes", template))
    with pytest.raises(UserError, match=why) if why else nullcontext():
        chat.opening([{**first, "tools": [SEARCH]}, user("q")])


def test_a_supervised_conversation_with_tools_is_the_template_for_tools() -> None:
    tokenizer = piece_tokenizer("bytes", hub_templates.HERMES)
    messages = [{**user("q"), "tools": [SEARCH]}, assistant(CALL), result("1"), result("2"), assistant("A")]
    text = tokenizer.decode(ChatFormat(tokenizer).encode_conversation(messages)[0])
    assert text.startswith("<s><|im_start|>system\nYou are a function calling AI model.")
    results = "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>"
    assert text.endswith(f"{CALL}<|im_end|>\n<|im_start|>tool\n{results}<|im_start|>assistant\nA<|im_end|>")
