"""Conversations become prompts by the model's template; tools become text if it does not support them."""

import pytest

from slimrl.inference.server.bodies import ChatMessage, Tool
from slimrl.inference.server.conversation import PromptWriter
from slimrl.inference.server.errors import ApiError
from tests.tiny import tiny_tokenizer

GENERATE = {"add_generation_prompt": True, "continue_final_message": False}
TOOL = Tool.model_validate({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}})
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
WITH_TOOLS = (
    "{% if tools %}TOOLS {{ tools | tojson }}\n{% endif %}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}"
    "{% for c in m['tool_calls'] or [] %}CALL {{ c['function']['name'] }} {{ c['function']['arguments'] | tojson }}"
    "{% endfor %}\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
)
REFUSING = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}{% endfor %}"
)


def messages(*given: dict[str, object]) -> list[ChatMessage]:
    return [ChatMessage.model_validate(message) for message in given]


CONVERSATION = messages(
    {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "1+1?"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL, CALL], "reasoning_content": None},
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "3"}]},
)


def test_a_template_that_knows_tools_gets_them_as_they_are() -> None:
    text = PromptWriter(tiny_tokenizer(chat_template=WITH_TOOLS)).write(CONVERSATION, [TOOL], GENERATE)
    assert text.startswith('TOOLS [{"type": "function", "function": {"name": "add"')
    assert '[assistant] CALL add {"a": 1}CALL add {"a": 1}[tool] 2[tool] 3[assistant] ' in text


def test_a_template_that_does_not_gets_them_as_text() -> None:
    text = PromptWriter(tiny_tokenizer()).write(CONVERSATION, [TOOL], GENERATE)
    system, user, assistant, results, rest = text.split("<|im_start|>")[1:]
    assert system.startswith("system\n")
    assert '<tools>\n{"name": "add", "parameters": {"type": "object"}}\n</tools>' in system
    assert user == "user\nWhat is 1+1?<|im_end|>\n"
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    assert assistant == f"assistant\n{call}\n{call}<|im_end|>\n"
    assert results == ("user\n<tool_response>\n2\n</tool_response>\n<tool_response>\n3\n</tool_response><|im_end|>\n")
    assert rest == "assistant\n"


def test_tools_join_the_system_message_that_is_there() -> None:
    given = messages({"role": "developer", "content": "Be kind."}, {"role": "user", "content": "hi"})
    text = PromptWriter(tiny_tokenizer()).write(given, [TOOL], GENERATE)
    assert text.count("<|im_start|>system") == 1
    assert "<|im_start|>system\nBe kind.\n\nYou may call functions" in text


def test_a_conversation_may_begin_with_the_assistant_and_a_call_without_content() -> None:
    given = messages(
        {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "2"}
    )
    writer = PromptWriter(tiny_tokenizer())
    whole = writer.write(given, [], GENERATE)
    assert whole.startswith(writer.write(given[:1], [], {**GENERATE, "add_generation_prompt": False}))


def test_a_final_message_can_be_continued() -> None:
    given = messages({"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well,"})
    settings = {"add_generation_prompt": False, "continue_final_message": True}
    assert PromptWriter(tiny_tokenizer()).write(given, [], settings).endswith("<|im_start|>assistant\nWell,")


@pytest.mark.parametrize(
    ("template", "given", "complaint"),
    [
        (REFUSING, {"role": "system", "content": "x"}, "no system"),
        (REFUSING, {"role": "user"}, "has no content"),
        ("{{ messages[7]['content'] }}", {"role": "user", "content": "x"}, "refuses"),
    ],
)
def test_what_the_template_refuses_is_the_clients_mistake(
    template: str, given: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ApiError, match=complaint) as caught:
        PromptWriter(tiny_tokenizer(chat_template=template)).write(messages(given), [], GENERATE)
    assert caught.value.status_code == 400


def test_settings_that_are_not_the_templates_are_refused() -> None:
    with pytest.raises(ApiError, match="chat_template_kwargs cannot set chat_template"):
        PromptWriter(tiny_tokenizer()).check_settings({"chat_template": "x"})


@pytest.mark.parametrize("template", [WITH_TOOLS, None])
def test_arguments_with_half_of_a_surrogate_pair_stay_as_they_are_spelt(template: str | None) -> None:
    arguments = '{"x": "\\ud800"}'
    call = {"type": "function", "function": {"name": "add", "arguments": arguments}}
    tokenizer = tiny_tokenizer(chat_template=template) if template else tiny_tokenizer()
    text = PromptWriter(tokenizer).write(messages({"role": "assistant", "tool_calls": [call]}), [], GENERATE)
    assert "ud800" in text
    assert tokenizer.encode(text)
