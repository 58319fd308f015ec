"""Conversations become prompts by the model's template; tools become text if it does not support them."""

from datetime import date

import pytest

from slimrl_serve.bodies import ChatMessage, Tool
from slimrl_serve.conversation import PromptWriter
from slimrl_serve.errors import ApiError
from tests.models.chat import hub_templates
from tests.models.chat.templates import DEFAULT_SYSTEM, TOOLS
from tests.tiny import CHATML, tiny_tokenizer

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
    {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}], "reasoning_content": None},
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


@pytest.mark.parametrize("template", [WITH_TOOLS, None])
def test_results_are_written_in_the_order_of_their_calls(template: str | None) -> None:
    writer = PromptWriter(tiny_tokenizer(chat_template=template) if template else tiny_tokenizer())
    question, calls, one, other = CONVERSATION
    assert writer.write([question, calls, other, one], [TOOL], GENERATE) == writer.write(CONVERSATION, [TOOL], GENERATE)
    unknown = one.model_copy(update={"tool_call_id": "c3"})
    for wrong in ([unknown, other], [other], [one, one]):
        with pytest.raises(ApiError, match=r"the call `c"):
            writer.write([question, calls, *wrong], [TOOL], GENERATE)


def test_results_without_ids_are_written_in_the_order_of_the_calls_that_they_name() -> None:
    calls = [{"type": "function", "function": {"name": name, "arguments": "{}"}} for name in "fg"]
    asked = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    results = [{"role": "tool", "name": name, "content": f"of {name}"} for name in "gf"]
    text = PromptWriter(tiny_tokenizer(chat_template=WITH_TOOLS)).write(messages(*asked, *results), [TOOL], GENERATE)
    assert text.index("of f") < text.index("of g")


HEAD = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m['role'] }}]"
WRITTEN = "{{ c['function'] | tojson }}"
LEAVES_OUT_CALLS = {
    "a call": HEAD + "{% if m['content'] %}{{ m['content'] }}{% else %}{% for c in m['tool_calls'] or [] %}"
    f"{WRITTEN}{{% endfor %}}{{% endif %}}{{% endfor %}}",
    "a second call": HEAD
    + f"{{{{ m['content'] }}}}{{% for c in (m['tool_calls'] or [])[:1] %}}{WRITTEN}{{% endfor %}}{{% endfor %}}",
    "a tool": WITH_TOOLS.replace("if tools %}", "if tools and messages[0]['role'] != 'system' %}"),
}


@pytest.mark.parametrize("case", LEAVES_OUT_CALLS)
def test_a_template_that_leaves_out_a_call_or_a_tool_is_refused(case: str) -> None:
    writer = PromptWriter(tiny_tokenizer(chat_template=LEAVES_OUT_CALLS[case]))
    user, result = {"role": "user", "content": "q"}, {"role": "tool", "content": "2"}
    calling = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    writer.write(messages(user, calling, result), [TOOL], GENERATE)
    given = {
        "a call": [user, {**calling, "content": "I add."}, result],
        "a second call": [user, {**calling, "tool_calls": [CALL, CALL]}, result, result],
        "a tool": [{"role": "system", "content": "Be brief."}, user, calling, result],
    }
    lost = case.replace("second ", "")
    with pytest.raises(
        ApiError, match=f"leaves out {lost} of a conversation with the roles .* Write it into a message"
    ):
        writer.write(messages(*given[case]), [TOOL], GENERATE)


@pytest.mark.parametrize(
    ("role", "kept"),
    [("system", "m['role'] != 'system'"), ("user", "loop.first or m['role'] != 'user'"), ("user", "not loop.last")],
)
def test_a_template_that_leaves_out_a_message_is_refused(role: str, kept: str) -> None:
    template = f"{{% for m in messages %}}{{% if {kept} %}}[{{{{ m['content'] }}}}]{{% endif %}}{{% endfor %}}"
    writer = PromptWriter(tiny_tokenizer(chat_template=template))
    given = messages(
        {"role": role, "content": "p"}, {"role": "assistant", "content": "A"}, {"role": "user", "content": "r"}
    )
    for _ in range(2):
        with pytest.raises(ApiError, match=f"leaves out the {role} message"):
            writer.write(given, [], GENERATE)


@pytest.mark.parametrize(
    ("template", "message", "kept", "dropped"),
    [
        (
            "{% for m in messages %}[{{ m['content'].split('</think>')[-1] }}]{% endfor %}",
            {"role": "assistant", "content": "<think>hm</think>A"},
            "[q][A]",
            "hm",
        ),
        (
            WITH_TOOLS.replace("{{ m['content'] }}", "{{ '' if m['tool_calls'] else m['content'] }}"),
            {"role": "assistant", "content": "I look it up.", "tool_calls": [CALL]},
            '[assistant] CALL add {"a": 1}',
            "look it up",
        ),
    ],
    ids=["thoughts", "text beside calls"],
)
def test_a_template_may_leave_out_thoughts_and_the_text_beside_calls(
    template: str, message: dict[str, object], kept: str, dropped: str
) -> None:
    given = messages({"role": "user", "content": "q"}, message)
    text = PromptWriter(tiny_tokenizer(chat_template=template)).write(given, [], {})
    assert kept in text and dropped not in text


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


@pytest.mark.parametrize("template", [WITH_TOOLS, None])
def test_arguments_with_half_of_a_surrogate_pair_stay_as_they_are_spelt(template: str | None) -> None:
    arguments = '{"x": "\\ud800"}'
    call = {"type": "function", "function": {"name": "add", "arguments": arguments}}
    tokenizer = tiny_tokenizer(chat_template=template) if template else tiny_tokenizer()
    text = PromptWriter(tokenizer).write(messages({"role": "assistant", "tool_calls": [call]}), [], GENERATE)
    assert "ud800" in text
    assert tokenizer.encode(text)


def rendered_with(arguments: object, template: str, **more: object) -> str:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    given = [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": None, "tool_calls": [call], **more},
        {"role": "tool", "tool_call_id": "c1", "content": "Error: no object"},
    ]
    return PromptWriter(tiny_tokenizer(chat_template=template)).write(messages(*given), [TOOL], GENERATE)


BY_ITEMS = WITH_TOOLS.replace("| tojson }}{% endfor %}", "| items | list | tojson }}{% endfor %}")


@pytest.mark.parametrize(
    "template", [WITH_TOOLS, BY_ITEMS, TOOLS, hub_templates.QWEN3, hub_templates.HERMES_TOOLS, CHATML, DEFAULT_SYSTEM]
)
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"a": 1, "b', '{"a": 1, "b'),
        ("[1, 2]", "[1, 2]"),
        ([1, 2], "[1, 2]"),
        ("null", "null"),
        (None, "{}"),
        ("", "{}"),
        ('"{\\"a\\": 1}"', '"{\\"a\\": 1}"'),
        ("a = 1", "a = 1"),
        (7, "7"),
        ("[" * 100_000, "[" * 100_000),
    ],
    ids=["cut off", "list", "json list", "null", "json null", "empty", "twice", "no json", "number", "deep"],
)
def test_arguments_that_are_no_object_are_shown(template: str, arguments: object, shown: str) -> None:
    text = rendered_with(arguments, template)
    assert shown in text.replace("CALL add []", "CALL add {}") and "Error: no object" in text and "1+1?" in text
    if shown != "{}":
        call = f'<tool_call>\n{{"name": "add", "arguments": {shown}}}\n</tool_call>'
        assert call in text and "<tool_response>\nError: no object\n</tool_response>" in text


def test_only_the_broken_one_of_several_calls_becomes_text() -> None:
    broken = {"id": "c2", "type": "function", "function": {"name": "add", "arguments": "[1]"}}
    given = messages(
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "Both.", "tool_calls": [CALL, broken]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "tool", "tool_call_id": "c2", "content": "no object"},
        {"role": "user", "content": "r"},
    )
    text = PromptWriter(tiny_tokenizer(chat_template=WITH_TOOLS)).write(given, [TOOL], GENERATE)
    written = '<tool_call>\n{"name": "add", "arguments": [1]}\n</tool_call>'
    assert f'[assistant] Both.\n{written}CALL add {{"a": 1}}[tool] 2[user] <tool_response>\nno object' in text


def test_an_object_in_place_of_its_text_is_taken_as_it_is() -> None:
    assert 'CALL add {"a": 1}[tool]' in rendered_with({"a": 1}, WITH_TOOLS)


def test_a_date_that_was_set_is_written() -> None:
    writer = PromptWriter(tiny_tokenizer(chat_template=hub_templates.LLAMA31), date(2026, 3, 5))
    assert "Today Date: 05 Mar 2026" in writer.write(messages({"role": "user", "content": "q"}), [], GENERATE)
