"""Data of supervised training from files and data sets: what is taken, held out and shown, and which line is wrong."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from slimrl.config.data import FileDataConfig, HubDataConfig
from slimrl.config.run import SFTConfig
from slimrl.errors import UserError
from slimrl.launch.supervised import from_experts, load_demonstrations
from slimrl.models.chat.template import ChatFormat
from slimrl.monitor.console import RunConsole
from slimrl.trainer.sft import data
from tests.environments.dataset.files import made, write_rows
from tests.models.chat import hub_templates
from tests.tiny import tiny_tokenizer
from tests.trainer.sft_shapes import assistant, user

CHATML = ChatFormat(tiny_tokenizer())
QWEN3 = ChatFormat(tiny_tokenizer(chat_template=hub_templates.QWEN3))
THOUGHT = {"messages": [user("q"), assistant("4", reasoning_content="Hm.")]}


def load_conversations(config, note=lambda text: None):
    return tuple([found.messages for found in split] for split in data.load_conversations(config, note))


def conversation(number: int) -> list[dict[str, Any]]:
    return [user(f"question {number}"), assistant(f"answer {number}")]


def chats(*numbers: int) -> list[dict[str, Any]]:
    return [{"messages": conversation(number)} for number in numbers]


def write(path: Path, rows: list[Any], **json_options: Any) -> str:
    path.write_text("".join(json.dumps(row, **json_options) + "\n" for row in rows))
    return str(path)


def twice(path: Any, **settings: Any) -> FileDataConfig:
    """The file to train on, and to validate on too."""
    return FileDataConfig(path=str(path), val_path=str(path), **settings)


def test_a_fraction_is_held_out_by_content(tmp_path):
    path = write(tmp_path / "a.jsonl", chats(*range(200)))
    train, validation = load_conversations(FileDataConfig(path=path, val_fraction=0.2))
    assert 20 <= len(validation) <= 60
    assert sorted(c[0]["content"] for c in [*train, *validation]) == sorted(f"question {n}" for n in range(200))
    reordered = write(tmp_path / "b.jsonl", chats(*range(300))[::-1])
    again_train, again_validation = load_conversations(FileDataConfig(path=reordered, val_fraction=0.2))
    assert all(c in again_validation for c in validation)
    assert all(c in again_train for c in train)


def test_a_second_file_to_validate_on(tmp_path):
    path, val_path = (write(tmp_path / f"{number}.jsonl", chats(number)) for number in (1, 2))
    assert load_conversations(FileDataConfig(path=path, val_path=val_path)) == ([conversation(1)], [conversation(2)])


def test_blank_lines_and_unicode_line_breaks_are_part_of_life(tmp_path):
    odd = [user("a\u2028b\x85c"), assistant("d\u2029e")]
    path = Path(write(tmp_path / "a.jsonl", [{"messages": odd}, *chats(1)], ensure_ascii=False))
    path.write_text("\n" + path.read_text() + "\n  \n")
    assert load_conversations(twice(path))[0] == [odd, conversation(1)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "found: not json"),
        ('{"messages": [', "expected"),
        ("[1]", "expected"),
        ('{"text": "a"}', "expected the columns"),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(tmp_path, line, message):
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(chats(1)[0])}\n\n{line}\n")
    with pytest.raises(UserError, match=rf"a\.jsonl:3: .*{message}"):
        load_conversations(twice(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"a\.jsonl cannot be read.*data\.path"),
        (b"", "no rows to learn from"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (json.dumps(chats(1)[0]).encode(), r"1 conversations leave 1 to train and 0 to validate at `data\.val_fract"),
        (
            b'{"messages": [], "failure": "timeout"}',
            "no rows to learn from, but for 1 rollouts that failed or were cut",
        ),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path, content, message):
    path = tmp_path / "a.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        load_conversations(FileDataConfig(path=str(path)))


def test_rollouts_that_failed_or_were_cut_off_are_passed_over_with_a_note(tmp_path):
    broken = {"messages": [user("q")], "failure": "prompt_too_long"}
    other = {"prompt": [user("q")], "completion": [assistant("A")], "id": 7}
    cut = {**chats(1)[0], "failure": "", "metrics": {"truncated": 1.0}}
    good = {**chats(2)[0], "failure": "", "metrics": {"truncated": 0.0}}
    path, notes = write(tmp_path / "a.jsonl", [broken, cut, good, other]), list[str]()
    assert load_conversations(twice(path), notes.append)[0] == [conversation(2), [user("q"), assistant("A")]]
    assert notes[0] == f"{path}: nothing is learnt from these keys: `id`"
    assert notes[1] == f"{path}: passed over 2 rollouts that failed or were cut off"


def test_parquet_files_and_data_sets_hold_the_same_conversations_as_jsonl(tmp_path):
    import datasets

    path, rows = write(tmp_path / "chats.jsonl", chats(*range(6))), datasets.Dataset.from_list(chats(*range(6)))
    parquet = tmp_path / "hub" / "data" / "train-00000-of-00001.parquet"
    rows.to_parquet(parquet)
    rows.select([0, 1]).to_parquet(tmp_path / "hub" / "data" / "test-00000-of-00001.parquet")
    expected, _ = load_conversations(twice(path))
    assert load_conversations(twice(parquet))[0] == expected
    found = load_conversations(HubDataConfig(name=str(tmp_path / "hub"), val_split="test"))
    assert found == (expected, expected[:2])


def test_data_sets_that_cannot_be_loaded_are_named(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"`train` of .*nowhere"):
        load_conversations(HubDataConfig(name=str(tmp_path / "nowhere")))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="uv sync --inexact --extra data"):
        load_conversations(HubDataConfig(name="owner/name"))


def test_a_data_set_may_have_subsets(tmp_path):
    import datasets

    for number, subset in enumerate(("small", "large")):
        rows = datasets.Dataset.from_list(chats(number))
        rows.to_parquet(tmp_path / "hub" / subset / "train-00000-of-00001.parquet")
    files = "".join(f"- config_name: {subset}\n  data_files: {subset}/*.parquet\n" for subset in ("small", "large"))
    (tmp_path / "hub" / "README.md").write_text(f"---\nconfigs:\n{files}---\n")
    name = str(tmp_path / "hub")
    with pytest.raises(UserError, match=r"(?s)small.*large.*`data\.subset`"):
        load_conversations(HubDataConfig(name=name))
    for number, subset in enumerate(("small", "large")):
        config = HubDataConfig(name=name, subset=subset, val_split="train")
        assert load_conversations(config)[0] == [conversation(number)]


def load(tmp_path, rows, chat, monkeypatch, **settings) -> tuple[Any, list[str]]:
    """The samples of a run on these rows, and its notes."""
    path, notes, console = write(tmp_path / "rows.jsonl", rows), list[str](), RunConsole()
    monkeypatch.setattr(console, "note", lambda text, style="": notes.append(text))
    config = SFTConfig(max_steps=1, output_dir=str(tmp_path), data=twice(path), **settings)
    samples = load_demonstrations(config, (), chat, console)
    return samples, [note for note in notes if not note.startswith("counting tokens")]


def test_the_row_that_the_template_does_not_write_is_named(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"rows\.jsonl:2: .*`reasoning_content`"):
        load(tmp_path, [*chats(1), THOUGHT], CHATML, monkeypatch)
    assert load(tmp_path, [*chats(1), THOUGHT], QWEN3, monkeypatch)[1] == []


def test_names_that_the_template_does_not_write_are_told(tmp_path, monkeypatch):
    rows = [{"messages": [user("q") | {"name": "Ada"}, assistant("A")]}]
    _, notes = load(tmp_path, rows, CHATML, monkeypatch)
    assert notes == ["the chat template does not write the `name` of a message of the user: nothing is learnt from it"]
    named = hub_templates.COUNTING.replace("m['role'] + '\\n'", "m['role'] + (m['name'] or '') + '\\n'")
    assert load(tmp_path, rows, ChatFormat(tiny_tokenizer(chat_template=named)), monkeypatch)[1] == []


@pytest.mark.parametrize("question", ["q", "q{}"])
def test_validation_is_on_rows_from_all_over_a_sorted_file(tmp_path, question, monkeypatch):
    rows = [{"messages": [user(question.format(n)), assistant("easy" if n < 20 else "hard")]} for n in range(60)]
    samples, _ = load(tmp_path, rows, CHATML, monkeypatch, val_num_examples=20)
    texts = [CHATML.full_text(list(sample.token_ids_T)) for sample in samples.validation]
    assert len(texts) == 20 and 1 <= sum("easy" in text for text in texts) <= 12


def test_validation_is_on_demonstrations_from_all_over_a_sorted_split(tmp_path):
    rows = [{"question": f"q{n}", "answer": n} for n in range(50)]
    path = str(write_rows(tmp_path / "test.jsonl", rows))
    marked = [{**row, "split": split} for split in ("train", "test") for row in rows]
    taskset, file = made(tmp_path, marked), FileDataConfig(path=path)
    config = SFTConfig(max_steps=1, output_dir=str(tmp_path), data=file, val_num_examples=10)
    validation = from_experts(config, [taskset], CHATML).validation
    texts = [CHATML.full_text(list(sample.token_ids_T)) for sample in validation]
    assert len(texts) == 10 and any(f"<answer>{n}</answer>" in text for text in texts for n in range(25, 50))
