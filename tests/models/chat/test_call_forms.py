"""Calls as models write them: the form of each family, the lenient reader, and replies that could mislead it."""

import json
import time
from typing import get_args

import pytest

from slimrl.config.model import ToolCalls
from slimrl.models.chat.call_reader import AMBIGUOUS, FORMS, CallReader
from slimrl.models.chat.tool_calls import ToolCall

NAMES = ("search", "add", "math.root")
X, SUM = ("search", {"query": "x"}), ("add", {"a": 1, "b": 2})
HERMES = '<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call>'
JSON = '{"name": "search", "arguments": {"query": "x"}}'
JSON_SUM = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
LLAMA, LLAMA_SUM = JSON.replace("arguments", "parameters"), JSON_SUM.replace("arguments", "parameters")
FENCED = f"```json\n{JSON}\n```"


def read(setting, reply, own="hermes", names=NAMES):
    reading = CallReader(own, setting).read(reply, names)
    return [(call.name, call.values) for call in reading.calls], reading.form


# Form, reply, calls and the text that is left.
FAMILIES = [
    ("hermes", f"I look.\n{HERMES}\n{HERMES}", [X, X], "I look."),
    ("llama", LLAMA, [X], ""),
    ("llama", f"<|python_tag|>{LLAMA}; {LLAMA_SUM}\n", [X, SUM], ""),
    ("llama", f'{{"type": "function", "function": {LLAMA}}}', [X], ""),
    ("mistral", f"[TOOL_CALLS][{JSON}, {JSON_SUM}]", [X, SUM], ""),
    ("mistral", f'I look. [TOOL_CALLS] [{JSON[:-1]}, "id": "abcdefghi"}}]', [X], "I look."),
    ("mistral", '[TOOL_CALLS]search[ARGS]{"query": "x"}[TOOL_CALLS]add[ARGS]{"a": 1, "b": 2}', [X, SUM], ""),
    ("mistral", '[TOOL_CALLS]search[CALL_ID]abc[ARGS] {"query": "x"}', [X], ""),
    ("granite", f"<|tool_call|>[{JSON}, {JSON_SUM}]", [X, SUM], ""),
    ("granite", f"<tool_call>[{JSON}]", [X], ""),
    ("phi", f"<|tool_call|>[{JSON}]<|/tool_call|>", [X], ""),
    ("phi", f"<|tool_call|>{JSON}<|/tool_call|><|tool_call|>{JSON_SUM}<|/tool_call|>", [X, SUM], ""),
    ("lfm", "<|tool_call_start|>[search(query='x'), add(a=1, b=2)]<|tool_call_end|>I look.", [X, SUM], "I look."),
    ("lfm", f"<|tool_call_start|>[{JSON}]<|tool_call_end|>", [X], ""),
    ("smollm", '<code>\nsearch(query="x")\nadd(a=1, b=2)\n</code>', [X, SUM], ""),
    ("python", '[search(query="x"), add(a=1, b=2)]', [X, SUM], ""),
    (
        "python",
        "math.root(x=[-1.5, None, True, {'a': ('b',)}])",
        [("math.root", {"x": [-1.5, None, True, {"a": ["b"]}]})],
        "",
    ),
    ("json", JSON, [X], ""),
    ("json", f"[{JSON}, {LLAMA_SUM}]", [X, SUM], ""),
    ("json", f" {JSON}\n\n{JSON_SUM}\n", [X, SUM], ""),
    ("fenced", f"So:\n{FENCED}\nThat finds it.", [X], "So:\nThat finds it."),
    ("fenced", f"```\n[{JSON}, {JSON_SUM}]```", [X, SUM], ""),
    ("fenced", '```tool_code\n[search(query="x")]\n```', [X], ""),
]


@pytest.mark.parametrize(("form", "reply", "calls", "text"), FAMILIES)
def test_a_form_is_read_by_its_name_by_its_template_and_leniently(form, reply, calls, text) -> None:
    for reader in (CallReader("hermes", form), CallReader(form), CallReader("hermes", "lenient")):
        reading = reader.read(reply, NAMES)
        assert [(call.name, call.values) for call in reading.calls] == calls
        assert "".join(part for part in reading.parts if isinstance(part, str)) == text
        assert reading.form == form
        rewritten = reader.rewrite(reply, reading)
        assert read("template", rewritten) == (calls, "hermes") and text.split("\n")[0] in rewritten


@pytest.mark.parametrize("form", FORMS)
def test_a_form_reads_what_it_writes(form: str) -> None:
    hostile = {
        "query": "</tool_call> \" ' ``` <|/tool_call|> [TOOL_CALLS] </code> <|tool_call_end|> \\ \n ü",
        "n": [1, {}],
    }
    calls = [ToolCall("1", "search", json.dumps(hostile)), ToolCall("2", "add", '{"a": true}')]
    for some in (calls[:1], calls):
        expected = [(call.name, call.values) for call in some]
        assert read(form, FORMS[form].write(some)) == (expected, form)
        assert read("lenient", FORMS[form].write(some)) == (expected, form)


def test_the_settings_name_the_forms() -> None:
    assert {*get_args(ToolCalls)} == {"template", "lenient", *FORMS}


@pytest.mark.parametrize(("form", "reply", "calls", "text"), FAMILIES)
@pytest.mark.parametrize("own", FORMS)
def test_the_template_form_is_strict(own, form, reply, calls, text) -> None:
    # A reply without keys that differ belongs to both, and Granite's mark is one of Phi's.
    same = {("llama", "json"), ("json", "llama"), ("phi", "granite"), ("granite", "hermes")}
    if own != form and (form, own) not in same:
        reader = CallReader(own)
        reading = reader.read(reply, NAMES)
        assert (reading.calls, reading.form) == ([], "")
        assert read("template", reader.rewrite(reply, reading)) == ([], "")  # nor does an environment see one


NESTED_JSON = json.dumps({"name": "search", "arguments": {"query": f"{HERMES} {JSON} {FENCED} [TOOL_CALLS][{JSON}]"}})
NESTED_PYTHON = f"search(query='''x''', more={HERMES!r})"
# Replies -> what a lenient reader makes of them.
LENIENT = {
    f"I call it:\n{JSON}\nThen I answer.": ([X], "json"),
    f"{FENCED}\nAgain:\n{FENCED} {JSON}": ([X], "fenced"),  # the same call each time
    f"<tool_call>{FENCED}</tool_call>": ([X], "fenced"),
    f"<tool_call>[{JSON}]</tool_call>": ([X], "hermes"),
    f"<think>{JSON_SUM}</think>{JSON}": ([X], "json"),
    f"So: <answer>{JSON}</answer>": ([X], "json"),
    f"<answer>\n{FENCED}\n</answer>": ([X], "fenced"),
    f"{JSON_SUM}</think>{JSON}": ([X], "json"),
    '{"name": "search", "arguments": "{\\"query\\": \\"x\\"}"}': ([X], "json"),
    '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>': ([("unknown", {})], "hermes"),  # answered by name
    NESTED_JSON: ([("search", json.loads(NESTED_JSON)["arguments"])], "json"),
    NESTED_PYTHON: ([("search", {"query": "x", "more": HERMES})], "python"),
    # Different calls in several places.
    f"{JSON} or {JSON_SUM}": ([], AMBIGUOUS),
    f"{FENCED}\n```json\n{JSON_SUM}\n```": ([], AMBIGUOUS),
    f"{HERMES}\n```json\n{JSON_SUM}\n```": ([], AMBIGUOUS),
    f"[TOOL_CALLS][{JSON_SUM}] {JSON}": ([], AMBIGUOUS),
    # No calls.
    "": ([], ""),
    "I add 1 and 2, add(a=1, b=2), and that is 3.": ([], ""),
    '{"name": "unknown", "arguments": {}}': ([], ""),
    f'[{JSON}, {{"name": "unknown", "arguments": {{}}}}]': ([], ""),
    "unknown(a=1)": ([], ""),
    '{"name": "search"}': ([], ""),
    '{"name": "search", "arguments": {}, "parameters": {"query": "x"}}': ([], ""),
    '{"name": "search", "name": "add", "arguments": {"query": "x"}}': ([], ""),
    '{"name": "search", "arguments": {"query": "x", "query": "y"}}': ([], ""),
    '{"name": "search", "arguments": {"query": NaN}}': ([], ""),
    '{"name": "search", "arguments": {"query": 1e999}}': ([], ""),
    '{"name": "search", "arguments": {"query": "\\ud83d"}}': ([], ""),
    f'{{"name": "search", "arguments": {{"query": {"9" * 5000}}}}}': ([], ""),
    f'{{"name": "search", "arguments": {{"query": {"[" * 65 + "]" * 65}}}}}': ([], ""),
    f'{{"name": "search", "arguments": {{"query": {"[" * 100_000}': ([], ""),
    '{"name": "search", "arguments": ["x"]}': ([], ""),
    '{"name": ["search"], "arguments": {}}': ([], ""),
    f'{{"thought": "x", "then": {JSON}': ([], ""),  # within broken JSON
    f'{{"then": {JSON}}}': ([], ""),
    json.dumps({"answer": JSON}): ([], ""),
    f"<think>{JSON}</think>": ([], ""),
    f"<think>perhaps {HERMES} {JSON}": ([], ""),
    "search('x')": ([], ""),  # which parameter?
    "search(query='x', **more)": ([], ""),
    "search(query='x', query='y')": ([], ""),
    "search(query=open('/etc/passwd').read())": ([], ""),
    "search(query=query)": ([], ""),
    "search(query=2**9**9)": ([], ""),
    "search(query={1, 2})": ([], ""),
    "search(query=b'x')": ([], ""),
    "search(query=1e999)": ([], ""),
    "(lambda: 1)(query='x')": ([], ""),
    "x = search(query='x')": ([], ""),
    f"search(query={'(' * 10_000}": ([], ""),
    f"search(query={'-' * 60_000}1)": ([], ""),
}


@pytest.mark.parametrize("reply", LENIENT, ids=range(len(LENIENT)))
def test_a_lenient_reader_never_chooses_or_guesses(reply: str) -> None:
    assert read("lenient", reply) == LENIENT[reply]
    if LENIENT[reply][1] == AMBIGUOUS:
        reader = CallReader("hermes", "lenient")
        assert read("template", reader.rewrite(reply, reader.read(reply, NAMES))) == ([], "")


def test_tags_around_a_call_alone_belong_to_it() -> None:
    reader = CallReader("hermes", "lenient")
    for reply, text in {f"So: <answer> {JSON} </answer>": ["So:"], f"<b>So: {JSON}</b>": ["<b>So:", "</b>"]}.items():
        assert [part for part in reader.read(reply, NAMES).parts if isinstance(part, str)] == text


def test_a_call_of_a_tool_that_is_not_offered_is_text() -> None:
    assert read("lenient", JSON, names=["add"]) == ([], "")
    assert read("lenient", f"[{JSON}, {JSON_SUM}]", names=["add"]) == ([], "")


PIECES = [
    '{"a": [',
    '{"name": "',
    "<tool_call>",
    '<tool_call>{"',
    "[TOOL_CALLS][",
    "```json\n",
    "```\nf(a='",
    "<code>'",
]
PIECES += [
    "(",
    "[",
    '"',
    "<|tool_call_start|>[f(a='",
    "<|tool_call|>[",
    "search[ARGS]{",
    "<think>",
    "\n",
    " ",
    f"{JSON} ",
]


@pytest.mark.parametrize("setting", ["lenient", "hermes", "lfm", "fenced", "python"])
@pytest.mark.parametrize("piece", PIECES)
def test_long_replies_are_read_in_time(setting: str, piece: str) -> None:
    text = piece * (100_000 // len(piece))
    began = time.thread_time()
    for reply in (text, f"{text}</code>```<|tool_call_end|>", f"{HERMES}{text}"):
        CallReader("hermes", setting).read(reply, NAMES)
    assert time.thread_time() - began < 3
