"""Fields of a row that decide what is learnt: written by the template, masked, or refused with the row named."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from slimrl.config.data import FileDataConfig
from slimrl.config.run import SFTConfig
from slimrl.errors import UserError
from slimrl.launch.supervised import from_experts, load_demonstrations
from slimrl.models.chat.template import ChatFormat
from slimrl.monitor.console import RunConsole
from slimrl.trainer.sft.rows import Conversation, RowReader
from slimrl.types import Message
from tests.environments.dataset.files import made, write_rows
from tests.models.chat import hub_templates
from tests.models.chat.templates import TOOLS
from tests.tiny import tiny_tokenizer

USER, ASSISTANT = {"role": "user", "content": "q"}, {"role": "assistant", "content": "A"}
THOUGHT = {
    "messages": [
        {"role": "user", "content": "What is 2 plus 2?"},
        {"role": "assistant", "reasoning_content": "Doubling 2 gives 4.", "content": "4"},
    ]
}
WEIGHTED = {
    "messages": [
        {"role": "user", "content": "What is 3 plus 3?"},
        {"role": "assistant", "content": "WRONG", "weight": 0},
        {"role": "user", "content": "Again, please."},
        {"role": "assistant", "content": "6", "weight": 1},
    ]
}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
QWEN3 = ChatFormat(tiny_tokenizer(chat_template=hub_templates.QWEN3))
QWEN25 = ChatFormat(tiny_tokenizer(chat_template=TOOLS))
CHATML = ChatFormat(tiny_tokenizer())


def read_messages(row: Any, where: str) -> list[Message]:
    read = RowReader().read(row, where)
    assert isinstance(read, Conversation)
    return read.messages


def unread_keys(row: dict[str, Any]) -> list[str]:
    reader = RowReader()
    reader.read(row, "row")
    return [key for note in reader.notes[1:] for key in note.partition(": ")[2].replace("`", "").split(", ")]


def learnt(row: dict[str, Any], chat: ChatFormat = CHATML) -> str:
    """The text of the tokens that are trained."""
    token_ids, mask = chat.encode_conversation(read_messages(row, "row"))
    return chat.full_text([token for token, trained in zip(token_ids, mask, strict=True) if trained])


def read_text(row: dict[str, Any], chat: ChatFormat) -> str:
    return chat.full_text(chat.encode_conversation(read_messages(row, "row"))[0])


def replying(**keys: Any) -> dict[str, Any]:
    return {"messages": [USER, {**ASSISTANT, **keys}]}


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_are_learnt_as_the_template_writes_them(key: str) -> None:
    row = replying(**{key: "Doubling 2 gives 4."})
    assert learnt(row, QWEN3) == "<think>\nDoubling 2 gives 4.\n</think>\n\nA<|im_end|>"


def test_thoughts_of_every_turn_are_learnt_as_a_rollout_would_have_them() -> None:
    row = {"messages": [*THOUGHT["messages"], USER, {**ASSISTANT, "reasoning_content": "hm"}]}
    assert learnt(row, QWEN3) == (
        "<think>\nDoubling 2 gives 4.\n</think>\n\n4<|im_end|><think>\nhm\n</think>\n\nA<|im_end|>"
    )


def test_thoughts_that_the_template_does_not_write_are_refused() -> None:
    with pytest.raises(UserError, match="does not write the `reasoning_content`"):
        learnt(THOUGHT, CHATML)
    # Llama 3.1's template writes the content of a message alone.
    with pytest.raises(UserError, match="does not write the `reasoning_content`"):
        learnt(THOUGHT, ChatFormat(tiny_tokenizer(chat_template=hub_templates.LLAMA31)))


def test_a_reply_of_weight_0_is_read_and_not_learnt() -> None:
    assert learnt(WEIGHTED) == "6<|im_end|>"
    assert "WRONG" in read_text(WEIGHTED, CHATML)


@pytest.mark.parametrize("key", ["weight", "train", "training", "train_on_turn", "loss"])
@pytest.mark.parametrize("value", [0, False, 0.0])
def test_all_names_of_the_mask_are_known(key: str, value: float) -> None:
    row = {"messages": [{**USER, key: value}, {**ASSISTANT, key: value}, USER, {**ASSISTANT, key: 1}]}
    assert learnt(row) == "A<|im_end|>"


def test_of_a_prompt_and_its_completion_only_the_latter_is_learnt() -> None:
    row = {"prompt": [USER, ASSISTANT, USER], "completion": [{"role": "assistant", "content": "B"}]}
    assert learnt(row) == "B<|im_end|>"
    assert list(unread_keys({**row, "id": 1})) == ["id"]
    assert learnt({**row, "messages": None}) == "B<|im_end|>"


def test_the_form_of_sharegpt_is_read() -> None:
    turns = [("system", "Be brief."), ("human", "q"), ("gpt", "WRONG"), ("human", "r"), ("gpt", "B")]
    row: dict[str, Any] = {"conversations": [{"from": role, "value": text} for role, text in turns]}
    row["conversations"][2]["train"] = False
    assert learnt(row) == "B<|im_end|>"
    assert read_text(row, CHATML).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nq<|im_end|>")
    assert list(unread_keys(row)) == []


@pytest.mark.parametrize("chat", [QWEN25, QWEN3], ids=["qwen2.5", "qwen3"])
@pytest.mark.parametrize("tools", [[ADD], json.dumps([ADD])], ids=["list", "json"])
def test_calls_are_learnt_as_the_template_writes_them(chat: ChatFormat, tools: Any) -> None:
    calling = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "3"}
    row = {"messages": [USER, calling, result, {"role": "assistant", "content": "It is 3."}], "tools": tools}
    written = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    assert learnt(row, chat) == f"{written}<|im_end|>It is 3.<|im_end|>"
    text = read_text(row, chat)
    assert "<tool_response>\n3\n</tool_response>" in text and '"name": "add"' in text.partition("q<|im_end|>")[0]


def test_thoughts_and_text_before_a_call_are_learnt_with_it() -> None:
    calling = {"role": "assistant", "content": "I add.", "reasoning_content": "hm", "tool_calls": [CALL, CALL]}
    row = {"messages": [USER, calling, {"role": "tool", "content": "3"}, {**ASSISTANT, "weight": 0}], "tools": [ADD]}
    written = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    assert learnt(row, QWEN3) == f"<think>\nhm\n</think>\n\nI add.\n{written}\n{written}<|im_end|>"


def parallel(ids: Sequence[Any], results: Sequence[Any]) -> dict[str, Any]:
    """Calls with these ids, and results of these calls that say so."""
    calls = [{"id": one, "function": {"name": "add", "arguments": {"a": one}}} for one in ids]
    said = [{"role": "tool", "tool_call_id": one, "content": f"of {one}"} for one in results]
    return {"messages": [USER, {"role": "assistant", "tool_calls": calls}, *said, ASSISTANT], "tools": [ADD]}


@pytest.mark.parametrize("results", [["b", "a"], ["a", "b"]])
@pytest.mark.parametrize("chat", [QWEN25, QWEN3], ids=["qwen2.5", "qwen3"])
def test_results_are_read_in_the_order_of_their_calls(chat: ChatFormat, results: list[str]) -> None:
    text = read_text(parallel(["a", "b"], results), chat)
    assert text.index('{"a": "a"}') < text.index('{"a": "b"}') < text.index("of a") < text.index("of b")


def test_results_of_three_calls_and_of_later_calls_are_read_in_order() -> None:
    one, other = parallel(["0", "1", "2"], ["2", "0", "1"]), parallel(["0", "1"], ["1", "0"])
    text = read_text({"messages": one["messages"] + other["messages"], "tools": [ADD]}, QWEN25)
    assert re.findall("of [0-9]", text) == ["of 0", "of 1", "of 2", "of 0", "of 1"]


@pytest.mark.parametrize(
    ("ids", "results", "why"),
    [
        (["a", "b"], ["b", "c"], "a result is of the call `c`, and the reply before it has only `a`, `b`"),
        (["a", "b"], ["b", "b"], "the call `b` has two results"),
        (["a", "b"], ["b"], "the call `a` has no result, and a later call"),
        (["a"], ["b"], "a result is of the call `b`"),
    ],
)
def test_a_result_that_belongs_to_no_call_is_refused(ids: list[str], results: list[str], why: str) -> None:
    with pytest.raises(UserError, match=f"^row: {why}"):
        read_messages(parallel(ids, results), "row")


@pytest.mark.parametrize(("ids", "results"), [(["", ""], ["x", "y"]), (["a", "b"], ["", ""]), (["a", "b"], ["a"])])
def test_results_without_ids_stay_in_their_order(ids: list[str], results: list[str]) -> None:
    read = read_messages(parallel(ids, results), "row")
    assert [m["content"] for m in read if m["role"] == "tool"] == [f"of {one}" for one in results]


def by_name(key: str, ids: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Calls of `a` and `b` with these ids, and results that have these names under this key."""
    calls = [{"id": one, "function": {"name": name, "arguments": {}}} for one, name in zip(ids, "ab", strict=True)]
    said = [{"role": "tool", key: name, "content": f"of {name}"} for name in names]
    return {"messages": [USER, {"role": "assistant", "tool_calls": calls}, *said, ASSISTANT]}


def results_of(row: dict[str, Any]) -> list[str]:
    return [message["content"] for message in read_messages(row, "row") if message["role"] == "tool"]


@pytest.mark.parametrize("ids", [(None, None), ("1", "2"), ("1", "1")])
@pytest.mark.parametrize("key", ["name", "tool_name"])
def test_results_that_name_their_tools_are_read_in_the_order_of_the_calls(key: str, ids: tuple[Any, Any]) -> None:
    assert results_of(by_name(key, ids, "ba")) == ["of a", "of b"]
    for doubtful in ("bb", "bc", "cba"):
        assert results_of(by_name(key, ids, doubtful)) == [f"of {name}" for name in doubtful]


def test_results_of_sharegpt_that_name_their_tools_are_read_in_order() -> None:
    calls = json.dumps([{"name": "a", "arguments": {}}, {"name": "b", "arguments": {}}])
    turns = [("human", "q"), ("function_call", calls), ("observation", "of b"), ("observation", "of a"), ("gpt", "A")]
    row = [{"from": role, "value": text} for role, text in turns]
    for turn in row[2:4]:
        turn["name"] = turn["value"][-1]
    assert results_of({"conversations": row}) == ["of a", "of b"]


@pytest.mark.parametrize(("calls", "results"), [((0, 1), (1, 0)), ((0, 1), ("1", "0")), ((0, 1), (1.0, 0.0))])
def test_whole_numbers_are_ids(calls: Sequence[Any], results: Sequence[Any]) -> None:
    read = read_messages(parallel(calls, results), "row")
    assert [call["id"] for call in read[1]["tool_calls"]] == ["0", "1"]
    assert [message["tool_call_id"] for message in read if message["role"] == "tool"] == ["0", "1"]


def test_calls_that_the_template_does_not_write_are_refused() -> None:
    row = replying(tool_calls=[CALL])
    with pytest.raises(UserError, match="does not write the `tool_calls`"):
        learnt(row, CHATML)
    with pytest.raises(UserError, match="does not write tools, calls"):
        learnt({**row, "tools": [ADD]}, CHATML)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (replying(weight=0.5), "message 2: `weight` is 0.5"),
        (replying(weight=1, train=False), "`weight` and `train` contradict each other"),
        (replying(weight=0), "every assistant message has a weight of 0"),
        ({"messages": [{**USER, "train": True}, ASSISTANT]}, "message 1: `train` asks to learn a message of the user"),
        (replying(function_call={"name": "f"}), "`function_call` would be left out.*tool_calls"),
        (replying(refusal="I can't."), "`refusal` would be left out.*`content`"),
        (replying(train_detail=[{"begin_offset": 0}]), "`train_detail` would be left out.*`weight`"),
        (replying(thinking="a", reasoning="b"), "give one text as `reasoning_content`"),
        (replying(thinking=[{"type": "text"}]), "give one text as `reasoning_content`"),
        ({"messages": [{**USER, "reasoning": "a"}, ASSISTANT]}, "only an assistant has thoughts"),
        ({**replying(), "functions": [{"name": "f"}]}, "`functions` would be left out"),
        ({**replying(), "chat_template_kwargs": {"enable_thinking": False}}, "`chat_template_kwargs` would be left"),
        (
            {"messages": [{"role": "system", "content": "a"}, *replying()["messages"]], "system": "b"},
            "another one in a c",
        ),
        ({**replying(), "system": "a", "system_prompt": "b"}, "`system` and `system_prompt` contradict"),
        ({**replying(), "system": ["a"]}, "`system` is to be a text"),
        ({**replying(), "tools": "[{"}, "`tools` is a list"),
        ({"messages": [{**USER, "tools": ["f"]}, ASSISTANT]}, "`tools` is a list"),
        ({"messages": [{**USER, "tools": [ADD]}, ASSISTANT], "tools": [ADD]}, "both the row and its first message"),
        ({"messages": [USER, {**ASSISTANT, "tools": [ADD]}]}, "not a later one"),
        (replying(tool_calls={"name": "f"}), "`tool_calls` is a list"),
        (replying(tool_calls=[{**CALL, "function": {"name": "f", "arguments": '{"a'}}]), "message 2: a call is"),
        (
            {"prompt": [USER], "completion": [ASSISTANT], "label": False},
            "`label` would be left out.*marks good",
        ),
        ({"conversations": [{"from": ["x"], "value": "q"}]}, "message 1: `from` is"),
        ({"prompt": ["q"], "completion": [ASSISTANT]}, "expected"),
        ({"prompt": [USER], "completion": []}, "expected"),
    ],
)
def test_what_cannot_be_learnt_is_refused_with_its_row_and_key(row: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=rf"a\.jsonl:7: .*{why}"):
        read_messages(row, "a.jsonl:7")


def test_empty_fields_are_nothing() -> None:
    keys = ("function_call", "refusal", "audio", "tool_calls", "reasoning", "weight", "annotations", "tools", "excerpt")
    assert read_messages({**replying(**dict.fromkeys(keys)), "functions": [], "system": ""}, "row") == [USER, ASSISTANT]


def load(tmp_path, rows, chat: ChatFormat, monkeypatch) -> list[str]:
    path, notes = tmp_path / "rows.jsonl", list[str]()
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    console = RunConsole()
    monkeypatch.setattr(console, "note", lambda text, style="": notes.append(text))
    config = SFTConfig(max_steps=1, output_dir=str(tmp_path), data=FileDataConfig(path=str(path), val_path=str(path)))
    load_demonstrations(config, (), chat, console)
    return [note for note in notes if not note.startswith("counting tokens") and ": rows are `messages`" not in note]


def test_the_row_with_thoughts_is_named_where_the_template_does_not_write_them(tmp_path, monkeypatch) -> None:
    with pytest.raises(UserError, match=r"rows\.jsonl:2: .*`reasoning_content`"):
        load(tmp_path, [WEIGHTED, THOUGHT], CHATML, monkeypatch)
    assert load(tmp_path, [WEIGHTED, THOUGHT], QWEN3, monkeypatch) == []


def test_a_row_that_would_be_learnt_inside_of_thoughts_is_named(tmp_path, monkeypatch) -> None:
    template = tiny_tokenizer().chat_template.replace("assistant\n", "assistant\n<thought>\n")
    chat = ChatFormat(tiny_tokenizer(chat_template=template))
    assert load(tmp_path, [replying(content="Hm.</thought>A")], chat, monkeypatch) == []
    with pytest.raises(UserError, match=r"rows\.jsonl:2: .*ends in <thought>, and a reply .* has no </thought>"):
        load(tmp_path, [replying(content="Hm.</thought>A"), replying()], chat, monkeypatch)


def test_keys_that_nothing_is_learnt_from_are_told(tmp_path, monkeypatch) -> None:
    rows = [{**replying(annotations=["x"]), "id": "7", "source": "web"}, {**replying(), "id": "8"}]
    (note,) = set(load(tmp_path, rows, CHATML, monkeypatch))
    assert note.endswith("rows.jsonl: nothing is learnt from these keys: `id`, `source`, `messages.annotations`")


def test_a_recorded_rollouts_own_keys_are_not_told(tmp_path, monkeypatch) -> None:
    row = {**replying(), "task_id": "1", "loss_mask": [0, 1], "reward": 1.0, "text": "q A", "failure": ""}
    assert load(tmp_path, [row], CHATML, monkeypatch) == []


def test_names_that_the_template_does_not_write_are_told(tmp_path, monkeypatch) -> None:
    rows = [{"messages": [{**USER, "name": "Ada"}, ASSISTANT]}]
    notes = load(tmp_path, rows, CHATML, monkeypatch)
    assert notes == ["the chat template does not write the `name` of a message of the user: nothing is learnt from it"]
    named = hub_templates.COUNTING.replace("m['role'] + '\\n'", "m['role'] + (m['name'] or '') + '\\n'")
    chat = ChatFormat(tiny_tokenizer(chat_template=named))
    assert load(tmp_path, rows, chat, monkeypatch) == []


@pytest.mark.parametrize("question", ["q", "q{}"])
def test_validation_is_on_rows_from_all_over_a_sorted_file(tmp_path, question) -> None:
    path = tmp_path / "sorted.jsonl"
    rows = [{"prompt": question.format(n), "completion": "easy" if n < 20 else "hard"} for n in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = FileDataConfig(path=str(path), val_path=str(path))
    config = SFTConfig(max_steps=1, output_dir=str(tmp_path), data=data, val_num_examples=20)
    validation = load_demonstrations(config, (), CHATML, RunConsole()).validation
    texts = [CHATML.full_text(list(sample.token_ids_T)) for sample in validation]
    assert len(texts) == 20 and 1 <= sum("easy" in text for text in texts) <= 12


def test_validation_is_on_demonstrations_from_all_over_a_sorted_split(tmp_path) -> None:
    rows = [{"question": f"q{n}", "answer": n} for n in range(50)]
    path = str(write_rows(tmp_path / "test.jsonl", rows))
    taskset, data = made(tmp_path, rows, test_path=path), FileDataConfig(path=path)
    config = SFTConfig(max_steps=1, output_dir=str(tmp_path), data=data, val_num_examples=10)
    validation = from_experts(config, [taskset], CHATML).validation
    texts = [CHATML.full_text(list(sample.token_ids_T)) for sample in validation]
    assert len(texts) == 10 and any(f"<answer>{n}</answer>" in text for text in texts for n in range(25, 50))
