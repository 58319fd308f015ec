"""Conversations become prompts by the model's template; tools become text if it does not support them."""

from datetime import date
from typing import Any

import pytest

from slimrl_serve.bodies import ChatMessage, Tool
from slimrl_serve.conversation import PromptWriter
from slimrl_serve.errors import ApiError
from tests.models.chat import hub_templates
from tests.models.chat.templates import DEFAULT_SYSTEM, TOOLS
from tests.tiny import CHATML, tiny_tokenizer

GENERATE = {"add_generation_prompt": True, "continue_final_message": False}
TOOL = Tool.model_validate({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}})
HEAD = "{% if tools %}TOOLS {{ tools | tojson }}\n{% endif %}{% for m in messages %}[{{ m['role'] }}] "
CALL = "CALL {{ c['function']['name'] }} {{ c['function']['arguments'] | tojson }}"
TAIL = "{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
EACH_CALL = f"{{% for c in m['tool_calls'] or [] %}}{CALL}{{% endfor %}}"
CONTENT = "{{ m['content'] }}"
WITH_TOOLS = f"{HEAD}{CONTENT}{EACH_CALL}\n{TAIL}"
CALL_TEXT = '<tool_call>\n{"name": "add", "arguments": %s}\n</tool_call>'


def call_of(arguments: Any = '{"a": 1}', id: str = "c1", name: str = "add") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": [*calls]}


def said(role: str, content: Any, **more: str) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def writer_of(template: str | None) -> PromptWriter:
    return PromptWriter(tiny_tokenizer(chat_template=template) if template else tiny_tokenizer())


def write(template: str | None, *given: dict[str, Any], tools: tuple[Tool, ...] = (TOOL,), **settings: Any) -> str:
    text = writer_of(template).write([ChatMessage.model_validate(one) for one in given], tools, GENERATE | settings)
    assert tiny_tokenizer().encode(text)
    return text


QUESTION = said("user", [{"type": "text", "text": "What is "}, {"type": "text", "text": "1+1?"}])
CALLS = {**calling(call_of(), call_of(id="c2")), "reasoning_content": None}
ONE, OTHER = said("tool", "2", tool_call_id="c1"), said("tool", [{"type": "text", "text": "3"}], tool_call_id="c2")
USER, ADDS, DONE = said("user", "q"), calling(call_of(), content=""), said("tool", "2")


def test_a_template_that_knows_tools_gets_them_as_they_are() -> None:
    text = write(WITH_TOOLS, QUESTION, CALLS, ONE, OTHER)
    assert text.startswith('TOOLS [{"type": "function", "function": {"name": "add"')
    assert '[assistant] CALL add {"a": 1}CALL add {"a": 1}[tool] 2[tool] 3[assistant] ' in text.replace("\n", "")


def test_a_template_that_does_not_gets_them_as_text() -> None:
    system, user, assistant, results, rest = write(None, QUESTION, CALLS, ONE, OTHER).split("<|im_start|>")[1:]
    assert system.startswith("system\n")
    assert '<tools>\n{"name": "add", "parameters": {"type": "object"}}\n</tools>' in system
    assert user == "user\nWhat is 1+1?<|im_end|>\n"
    call = CALL_TEXT % '{"a": 1}'
    assert assistant == f"assistant\n{call}\n{call}<|im_end|>\n"
    assert results == "user\n<tool_response>\n2\n</tool_response>\n<tool_response>\n3\n</tool_response><|im_end|>\n"
    assert rest == "assistant\n"


@pytest.mark.parametrize("template", [WITH_TOOLS, None])
def test_results_are_written_in_the_order_of_their_calls(template: str | None) -> None:
    assert write(template, QUESTION, CALLS, OTHER, ONE) == write(template, QUESTION, CALLS, ONE, OTHER)
    for wrong in ([{**ONE, "tool_call_id": "c3"}, OTHER], [OTHER], [ONE, ONE]):
        with pytest.raises(ApiError, match=r"the call `c"):
            write(template, QUESTION, CALLS, *wrong)


MESSAGES_IF = "{%% for m in messages %%}{%% if %s %%}[{{ m['content'] }}]{%% endif %%}{%% endfor %%}"
LEAVES_OUT: dict[str, tuple[str, list[Any], str, list[Any]]] = {
    "a call beside text": (
        f"{HEAD}{{% if m['content'] %}}{CONTENT}{{% else %}}{EACH_CALL}{{% endif %}}{TAIL}",
        [USER, ADDS, DONE],
        "a call",
        [USER, {**ADDS, "content": "I add."}, DONE],
    ),
    "a second call": (
        f"{HEAD}{CONTENT}{EACH_CALL.replace('or []', 'and m.tool_calls[:1] or []')}{TAIL}",
        [USER, ADDS, DONE],
        "a call",
        [USER, calling(call_of(), call_of(), content=""), DONE, DONE],
    ),
    "a tool": (
        WITH_TOOLS.replace("if tools %}", "if tools and messages[0]['role'] != 'system' %}"),
        [USER, ADDS, DONE],
        "a tool",
        [said("system", "Be brief."), USER, ADDS, DONE],
    ),
    **{
        f"{role} unless {kept}": (
            MESSAGES_IF % kept,
            [],
            f"the {role} message",
            [said(role, "p"), said("assistant", "A"), said("user", "r")],
        )
        for role, kept in (
            ("system", "m['role'] != 'system'"),
            ("user", "loop.first or m['role'] != 'user'"),
            ("user", "not loop.last"),
        )
    },
}


@pytest.mark.parametrize("case", LEAVES_OUT)
def test_a_template_that_leaves_out_a_message_a_call_or_a_tool_is_refused(case: str) -> None:
    template, whole, lost, given = LEAVES_OUT[case]
    writer, tools = writer_of(template), [TOOL] if whole else []
    if whole:
        writer.write([ChatMessage.model_validate(one) for one in whole], tools, GENERATE)
    for _ in range(2):
        complaint = f"leaves out {lost} of a conversation with the roles .* Write it into a message"
        with pytest.raises(ApiError, match=complaint):
            writer.write([ChatMessage.model_validate(one) for one in given], tools, GENERATE)


def test_a_template_may_leave_out_thoughts_and_the_text_beside_calls() -> None:
    without_thoughts = "{% for m in messages %}[{{ m['content'].split('</think>')[-1] }}]{% endfor %}"
    assert write(without_thoughts, USER, said("assistant", "<think>hm</think>A"), tools=()) == "[q][A]"
    template = f"{HEAD}{{{{ '' if m['tool_calls'] else m['content'] }}}}{EACH_CALL}{TAIL}"
    text = write(template, USER, calling(call_of(), content="I look it up."))
    assert '[assistant] CALL add {"a": 1}' in text and "look it up" not in text


def test_tools_join_the_system_message_that_is_there() -> None:
    text = write(None, said("developer", "Be kind."), USER)
    assert text.count("<|im_start|>system") == 1
    assert "<|im_start|>system\nBe kind.\n\nYou may call functions" in text


def test_a_conversation_may_begin_with_the_assistant_and_a_call_without_content() -> None:
    whole = write(None, calling(call_of()), ONE, tools=())
    assert whole.startswith(write(None, calling(call_of()), tools=(), add_generation_prompt=False))


@pytest.mark.parametrize(
    ("template", "given", "complaint"),
    [
        (
            "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}",
            "system",
            "no system",
        ),
        (None, "user", "has no content"),
        ("{{ messages[7]['content'] }}", "user", "refuses"),
    ],
)
def test_a_conversation_that_the_template_refuses_is_the_clients_mistake(
    template: str | None, given: str, complaint: str
) -> None:
    with pytest.raises(ApiError, match=complaint) as caught:
        write(template, said(given, "x" if template else None), tools=())
    assert caught.value.status_code == 400


@pytest.mark.parametrize("template", [WITH_TOOLS, None])
def test_arguments_with_half_of_a_surrogate_pair_stay_as_they_are_spelt(template: str | None) -> None:
    assert "ud800" in write(template, calling(call_of('{"x": "\\ud800"}')), tools=())


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
    result = said("tool", "Error: no object", tool_call_id="c1")
    text = write(template, QUESTION, calling(call_of(arguments)), result)
    assert shown in text.replace("CALL add []", "CALL add {}") and "Error: no object" in text and "1+1?" in text
    if shown != "{}":
        assert CALL_TEXT % shown in text and "<tool_response>\nError: no object\n</tool_response>" in text


def test_a_reply_with_a_broken_call_and_its_results_become_text_and_other_replies_do_not() -> None:
    both = calling(call_of(), call_of("[1]", "c2"), content="Both.")
    text = write(WITH_TOOLS, USER, both, ONE, OTHER, USER, calling(call_of({"a": 1})), ONE)
    one, two = CALL_TEXT % '{"a": 1}', CALL_TEXT % "[1]"
    assert f"[assistant] Both.\n{one}\n{two}[user] <tool_response>\n2\n</tool_response>\n<tool_resp" in text.replace(
        "\n[", "["
    )
    assert '[assistant] CALL add {"a": 1}[tool] 2' in text.replace("\n", "")


def test_a_date_that_was_set_is_written() -> None:
    writer = PromptWriter(tiny_tokenizer(chat_template=hub_templates.LLAMA31), date(2026, 3, 5))
    assert "Today Date: 05 Mar 2026" in writer.write([ChatMessage.model_validate(USER)], [], GENERATE)
