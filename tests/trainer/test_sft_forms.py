"""The forms in which data for supervised training comes: what is learnt of each, and what is refused."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from slimrl import cli
from slimrl.config.data import FileDataConfig
from slimrl.errors import UserError
from slimrl.launch.supervised import encode_row
from slimrl.models.chat.template import ChatFormat
from slimrl.trainer.sft.data import load_conversations
from slimrl.trainer.sft.rows import Conversation, RowReader
from tests.models.chat import hub_templates
from tests.models.chat.templates import LLAMA3
from tests.models.chat.templates import TOOLS as TOOLS_TEMPLATE
from tests.tiny import tiny_model_dir, tiny_tokenizer
from tests.trainer import sft_shapes
from tests.trainer.sft_shapes import ADD, ADD_SCHEMA, assistant, share, system, user

CHATML = ChatFormat(tiny_tokenizer())
QWEN25 = ChatFormat(tiny_tokenizer(chat_template=TOOLS_TEMPLATE))
QWEN3 = ChatFormat(tiny_tokenizer(chat_template=hub_templates.QWEN3))


def marked(row: dict[str, Any], chat: ChatFormat = CHATML) -> str:
    """The text that the model reads, with `[[` and `]]` around what is learnt."""
    token_ids, mask = encode_row(RowReader().read(row, "row"), chat)
    parts = [
        (trained, [token_ids[n] for n in places]) for trained, places in groupby(range(len(mask)), mask.__getitem__)
    ]
    return "".join(f"[[{chat.full_text(ids)}]]" if trained else chat.full_text(ids) for trained, ids in parts)


def notes(*rows: dict[str, Any]) -> list[str]:
    reader = RowReader()
    for row in rows:
        reader.read(row, "row")
    return reader.notes


@pytest.mark.parametrize("name", [*sft_shapes.CHATS, *sft_shapes.TEXTS])
def test_the_replies_of_every_shape_are_learnt(name: str) -> None:
    row, expected = (sft_shapes.CHATS | sft_shapes.TEXTS)[name]
    assert marked(row) == expected


@pytest.mark.parametrize("chat", [QWEN25, QWEN3], ids=["qwen2.5", "qwen3"])
@pytest.mark.parametrize("name", sft_shapes.TOOLS)
def test_calls_of_every_shape_are_learnt_and_functions_offered(name: str, chat: ChatFormat) -> None:
    row, expected = sft_shapes.TOOLS[name]
    offer, _, rest = marked(row, chat).partition("<|im_start|>user")
    assert "<|im_start|>user" + rest == expected
    assert json.dumps(ADD) in offer and "[[" not in offer


def test_tools_that_the_system_message_describes_are_not_offered_again() -> None:
    text = marked(sft_shapes.HERMES, QWEN25)
    assert text.count('"description": "Adds two numbers."') == 1
    assert text.count("[[") == 2
    assert "`tools` is not offered where the system message describes tools in <tools> already" in notes(
        sft_shapes.HERMES
    )


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("messages, as tulu-3-sft-mixture", "`messages`: every reply is learnt"),
        (
            "prompt and completion, as messages",
            "`prompt` and `completion` as messages: the replies of the completion are",
        ),
        ("conversations, as ShareGPT", "ShareGPT conversations (`from`, `value`): every reply is learnt"),
        ("alpaca, as alpaca-cleaned", "Alpaca's `instruction`, `input` and `output`, as a question and its reply: the"),
        ("alpaca, with input and text", "the reply is learnt; `--data.form text` takes another column that is there"),
        ("text, as TinyStories", "`text`, written without the chat template: all of it is learnt, and an end token"),
        (
            "prompt and completion, as texts",
            "as texts, written without the chat template: the completion is learnt, and",
        ),
    ],
)
def test_the_form_is_said_in_one_line(name: str, line: str) -> None:
    (said, *_) = notes((sft_shapes.CHATS | sft_shapes.TEXTS)[name][0])
    assert said.startswith("rows are ") and line in said


def test_columns_of_a_form_that_is_not_taken_are_named_once() -> None:
    row = sft_shapes.CHATS["alpaca, with input and text"][0]
    assert len(notes(row, row)) == 1
    taken = RowReader("text").read(row, "row")
    assert not isinstance(taken, Conversation) and taken.completion == row["text"]


def test_a_system_prompt_of_its_own_column_comes_first() -> None:
    row = {"system_prompt": "Be brief.", "conversations": [share("human", "q"), share("gpt", "A")]}
    assert marked(row).startswith("<|im_start|>system\nBe brief.<|im_end|>\n")
    again = {"system": "Be brief.", "messages": [system("Be brief."), user("q"), assistant("A")]}
    assert marked(again).count("Be brief.") == 1
    offering = {"system": "Be brief.", "messages": [{**user("q"), "tools": [ADD]}, assistant("A")]}
    assert "Be brief." in marked(offering, QWEN25).partition("Adds two numbers.")[0]


def test_a_text_begins_as_the_tokenizer_begins_it_and_ends_once() -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = tiny_tokenizer(chat_template=LLAMA3)
    bos, number = tokenizer.bos_token, tokenizer.bos_token_id
    tokenizer._tokenizer.post_processor = TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, number)])
    chat = ChatFormat(tokenizer)
    assert marked({"text": "ab"}, chat) == f"{bos}[[ab<|im_end|>]]"
    assert marked({"text": f"{bos}ab<|im_end|>"}, chat) == f"{bos}[[ab<|im_end|>]]"
    assert marked({"prompt": "a", "completion": "b"}, chat) == f"{bos}a[[b<|im_end|>]]"


def test_the_tokens_of_a_prompt_are_those_of_sampling() -> None:
    """`The` is one token of the tiny tokenizer, and a prompt that ends in `T` is read as that letter."""
    assert CHATML.encode_plain("T", "he")[0][0] == CHATML.encode_plain("T", "x")[0][0]
    assert marked({"prompt": "T", "completion": "he"}) == "T[[he<|im_end|>]]"


MESSAGES = {"messages": [user("q"), assistant("A")]}
IMAGE = {"type": "image_url", "image_url": {"url": "data:"}}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({}, "expected the columns `messages`, or `prompt` and `completion`.*found no columns"),
        (sft_shapes.XLAM, "expected the columns .*found `id`, `query`, `answers`, `tools`"),
        ({"question": "q", "answer": "A"}, "found `question`, `answer`"),
        ({"messages": None}, "found no columns"),
        ({"messages": []}, "`messages`: expected a list of messages"),
        ({"messages": [[user("q")], assistant("A")]}, "`messages`: expected a list of messages"),
        ({"messages": {"role": "user"}}, "`messages`: expected a list of messages"),
        ({"messages": [user(None), assistant("A")]}, "`messages`, message 1: expected text contents"),
        ({"messages": [user("q"), assistant(None)]}, "`messages`, message 2: expected text contents"),
        ({"messages": [user(5), assistant("A")]}, "message 1: expected text contents"),
        ({"messages": [user({"text": "q"}), assistant("A")]}, "message 1: expected text contents"),
        ({"messages": [user(["q"]), assistant("A")]}, "message 1: expected text contents"),
        (
            {"messages": [user([{"type": "text", "text": "q"}, IMAGE]), assistant("A")]},
            'part 2 of `content`.*"?image_url',
        ),
        ({"messages": [user([{"type": "text", "text": None}]), assistant("A")]}, "part 1 of `content` is no text"),
        ({"messages": [user([{"type": "image"}]), assistant("A")]}, "part 1 of `content` is no text"),
        ({"messages": [user("q"), assistant("")]}, "the assistant says nothing"),
        ({"messages": [user("q"), assistant("  \n")]}, "the assistant says nothing"),
        ({"messages": [user("q")]}, "ends with an assistant message.*roles: user"),
        ({"messages": [user("q"), assistant("A"), user("r")]}, "roles: user, assistant, user"),
        ({"messages": [user("q"), assistant("A", tool_calls=[{"id": "1"}])]}, "message 2: a call is"),
        ({"messages": [user("q"), {"role": "tool", "content": "x"}, assistant("A")]}, "result of a tool stands behind"),
        ({"messages": [user("q"), {"role": "wizard", "content": "x"}]}, 'message 2: .*and `role` is "?wizard'),
        ({"messages": [user("q"), {"role": 5, "content": "x"}]}, "`role` is 5"),
        ({"messages": [user("q"), {"content": "x"}]}, "message 2: .*it has no `role`"),
        ({"messages": [user("q"), {**assistant("A"), "from": "gpt"}]}, "message 2: has both `role` and `from`"),
        ({"messages": [user("q"), {**assistant("A"), "value": "B"}]}, "message 2: has both `content` and `value`"),
        ({"messages": [user("\ud800"), assistant("A")]}, "lone surrogate"),
        ({**MESSAGES, "tools": [{"description": "x"}]}, "a function of `tools` has no `name`"),
        ({**MESSAGES, "tools": [5]}, "`tools` is a list of functions"),
        ({**MESSAGES, "tools": "add"}, "`tools` is a list of functions"),
        ({**MESSAGES, "images": ["a.png"]}, "`images` would be left out"),
        ({"conversations": "q"}, "`conversations`: expected a list of messages"),
        ({"conversations": [share("gpt", "A")]}, "begins with a system or user message"),
        ({"conversations": [share("bot", "q"), share("gpt", "A")]}, 'message 1: `from` is "?bot'),
        ({"conversations": [share("human", "q"), {"from": "gpt"}]}, "message 2: expected text contents"),
        ({"conversations": [share("human", "q"), {"value": "A"}]}, "message 2: `from` is null"),
        ({"conversations": [share("human", "q"), share("function_call", "add(2, 3)")]}, "JSON of a call, found: add"),
        ({"conversations": [share("human", "q"), share("function_call", '{"name": "f"}')]}, "message 2: a call is"),
        ({"conversations": [share("human", "q"), share("function_call", "[]")]}, "JSON of a call"),
        ({"prompt": "q", "completion": 5}, "`prompt` is a text and `completion` is none"),
        ({"prompt": 5, "completion": 5}, "`prompt`: expected a list of messages"),
        ({"prompt": "", "completion": "A"}, "`prompt` is empty"),
        ({"prompt": "q", "completion": ""}, "`completion` is empty"),
        ({"prompt": "q", "completion": "A", "label": True}, "`label` would be left out.*marks good"),
        ({"prompt": "q", "completion": "A", "tools": [ADD_SCHEMA]}, "`tools` would be left out"),
        ({"prompt": [user("q")], "completion": [user("A")]}, "roles: user, user"),
        ({"prompt": "q", "chosen": "A", "rejected": "B"}, "expected the columns.*found `prompt`, `chosen`"),
        ({"instruction": "q", "output": ""}, "the assistant says nothing"),
        ({"instruction": "", "input": "", "output": "A"}, "`instruction` is empty"),
        ({"instruction": "q", "input": ["x"], "output": "A"}, "`input` is to be a text"),
        ({"instruction": 5, "output": "A"}, "`instruction` is to be a text"),
        ({"instruction": "q", "output": "A", "history": [["a", "b"]]}, "`history` would be left out"),
        ({"text": ""}, "`text` is empty"),
        ({"text": ["a"]}, "`text` is to be a text"),
        ({"text": "a", "system": "b"}, "`system` would be left out"),
        ({"text": "\udfff"}, "lone surrogate"),
    ],
)
def test_a_row_that_cannot_be_meant_is_refused_with_its_column(row: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=rf"(?s)^a\.jsonl:7: ?.*{why}"):
        RowReader().read(row, "a.jsonl:7")


@pytest.mark.parametrize("row", [None, 5, "not json", [], [MESSAGES], True])
def test_a_row_that_is_no_object_is_refused(row: Any) -> None:
    with pytest.raises(UserError, match=r"a\.jsonl:7: expected an object"):
        RowReader().read(row, "a.jsonl:7")


def test_a_text_of_one_token_is_refused() -> None:
    with pytest.raises(UserError, match="row: the text is a single token"):
        marked({"text": "<|im_end|>"})


@pytest.mark.parametrize(
    "other",
    [
        {"text": "a"},
        {"prompt": "q", "completion": "A"},
        {"instruction": "q", "output": "A"},
        {"conversations": [share("human", "q"), share("gpt", "A")]},
    ],
)
def test_the_rows_of_a_file_are_of_one_kind(other: dict[str, Any]) -> None:
    reader = RowReader()
    reader.read(MESSAGES, "a.jsonl:1")
    with pytest.raises(UserError, match=r"a\.jsonl:2: this row is .*those before it are `messages`.*`data\.form`"):
        reader.read(other, "a.jsonl:2")
    # Where the form is named, the columns of others do not matter.
    chosen = RowReader("messages")
    assert all(isinstance(chosen.read(row, "row"), Conversation) for row in (MESSAGES, {**other, **MESSAGES}))


def test_a_form_that_is_asked_for_and_not_there_is_told() -> None:
    with pytest.raises(UserError, match=r"expected the columns `text` \(`data\.form` is text\), found `messages`"):
        RowReader("text").read(MESSAGES, "row")


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_bad_rows_are_left_out_and_counted_where_that_is_asked_for(tmp_path: Path) -> None:
    rows = [{"instruction": "q", "output": text} for text in ("", "A", "", "B")]
    path, said = write(tmp_path / "a.jsonl", rows), list[str]()
    with pytest.raises(UserError, match=r"a\.jsonl:1: the assistant says nothing"):
        load_conversations(FileDataConfig(path=path, val_path=path), said.append)
    train, _ = load_conversations(FileDataConfig(path=path, val_path=path, skip_bad_rows=True), said.append)
    assert len(train) == 2
    assert f"{path}: left out 2 rows that cannot be learnt from; the first is {path}:1: the assistant says" in said[1]
    nothing = write(tmp_path / "b.jsonl", rows[:1])
    with pytest.raises(UserError, match=r"no rows to learn from\. .*b\.jsonl:1: the assistant says nothing"):
        load_conversations(FileDataConfig(path=nothing, skip_bad_rows=True), said.append)


@pytest.mark.parametrize("own", [True, False], ids=["own template", "stand-in"])
def test_a_dry_run_shows_what_is_learnt(own: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import tomllib

    rows = [sft_shapes.CHATS["conversations, as ShareGPT"][0]] * 5
    path = write(tmp_path / "a.jsonl", rows)
    model = ["--model.name", str(tiny_model_dir(tmp_path, "llama"))] if own else []
    assert cli.run(["sft", "--data.type", "file", "--data.path", path, *model, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert tomllib.loads(out)["data"]["path"] == path
    shown = "\n".join(line.removeprefix("# ") for line in out.splitlines() if line.startswith("#"))
    assert f"{path}: rows are ShareGPT conversations (`from`, `value`): every reply is learnt" in shown
    assert ("ChatML, in place of" in shown) != own
    assert "<|im_start|>assistant\n⟦Hello.<|im_end|>⟧\n<|im_start|>user\nAnd now?<|im_end|>" in shown
    assert f"{path}:3: " in shown and f"{path}:4: " not in shown


def test_a_dry_run_refuses_a_bad_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.jsonl", [MESSAGES, {"messages": [user("q")]}])
    assert cli.run(["sft", "--data.type", "file", "--data.path", path, "--dry-run"]) == 2
    assert "a.jsonl:2: a conversation to learn from" in capsys.readouterr().err


def test_a_dry_run_writes_rows_with_control_characters_as_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.jsonl", [{"text": "a\x1b[2Jb\rc\u202e"}])
    assert cli.run(["sft", "--data.type", "file", "--data.path", path, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\\x1b[2Jb" in out


@pytest.mark.slow
def test_texts_are_trained_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"text": f"story {number}"} for number in range(40)])
    model = str(tiny_model_dir(tmp_path, "llama"))
    words = ["--max_steps", "2", "--batch_size", "4", "--model.device", "cpu", "--output_dir", str(tmp_path / "run")]
    assert cli.run(["sft", "--data.type", "file", "--data.path", path, "--model.name", model, *words]) == 0


def test_a_null_in_the_schema_of_a_tool_is_kept() -> None:
    schema = {"type": "object", "properties": {"limit": {"type": ["integer", "null"], "default": None}}}
    tool = {"type": "function", "function": {"name": "search", "parameters": schema}}
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    read = RowReader().read({"messages": messages, "tools": [tool]}, "a.jsonl:1")
    assert read.messages[0]["tools"] == [tool]
