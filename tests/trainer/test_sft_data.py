"""Conversations from JSONL: what is taken, what is held out, and which line is wrong."""

import json
import sys

import pytest

from slimrl.config.data import FileDataConfig, HubDataConfig
from slimrl.errors import UserError
from slimrl.trainer.sft import data

NOTES: list[str] = []


def load_conversations(config):
    return tuple([found.messages for found in split] for split in data.load_conversations(config, NOTES.append))


def conversation(number: int):
    return [{"role": "user", "content": f"question {number}"}, {"role": "assistant", "content": f"answer {number}"}]


def write(path, conversations, **json_options):
    path.write_text("".join(json.dumps({"messages": c}, **json_options) + "\n" for c in conversations))
    return str(path)


def test_a_fraction_is_held_out_by_content(tmp_path):
    conversations = [conversation(n) for n in range(200)]
    train, validation = load_conversations(
        FileDataConfig(path=write(tmp_path / "a.jsonl", conversations), val_fraction=0.2)
    )
    assert 20 <= len(validation) <= 60
    assert sorted(c[0]["content"] for c in [*train, *validation]) == sorted(c[0]["content"] for c in conversations)
    reordered = write(tmp_path / "b.jsonl", conversations[::-1] + [conversation(n) for n in range(200, 300)])
    again_train, again_validation = load_conversations(FileDataConfig(path=reordered, val_fraction=0.2))
    assert all(c in again_validation for c in validation)
    assert all(c in again_train for c in train)


def test_a_second_file_to_validate_on(tmp_path):
    path = write(tmp_path / "a.jsonl", [conversation(1)])
    val_path = write(tmp_path / "b.jsonl", [conversation(2)])
    config = FileDataConfig(path=path, val_path=val_path)
    assert load_conversations(config) == ([conversation(1)], [conversation(2)])


def test_blank_lines_and_unicode_line_breaks_are_part_of_life(tmp_path):
    odd = [{"role": "user", "content": "a\u2028b\x85c"}, {"role": "assistant", "content": "d\u2029e"}]
    path = tmp_path / "a.jsonl"
    write(path, [odd, conversation(1)], ensure_ascii=False)
    path.write_text("\n" + path.read_text() + "\n  \n")
    assert load_conversations(FileDataConfig(path=str(path), val_path=str(path)))[0] == [odd, conversation(1)]


USER, _ = conversation(1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "found: not json"),
        ('{"messages": [', "expected"),
        ("[1]", "expected"),
        ('{"text": "a"}', "this row is `text`.*those before it are `messages`"),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(tmp_path, line, message):
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps({'messages': conversation(1)})}\n\n{line}\n")
    with pytest.raises(UserError, match=rf"a\.jsonl:3: .*{message}"):
        load_conversations(FileDataConfig(path=str(path), val_path=str(path)))


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, r"a\.jsonl cannot be read.*data\.path"), (b"", "no rows to learn from"), (b"\xff\xfe\x00", "not UTF-8")],
)
def test_a_file_that_cannot_be_used(tmp_path, content, message):
    path = tmp_path / "a.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        load_conversations(FileDataConfig(path=str(path)))


def test_too_few_conversations_to_hold_some_out(tmp_path):
    path = write(tmp_path / "a.jsonl", [conversation(1)])
    with pytest.raises(UserError, match=r"1 conversations leave 1 to train and 0 to validate at `data\.val_fraction`"):
        load_conversations(FileDataConfig(path=path))


def test_parquet_files_and_data_sets_hold_the_same_conversations_as_jsonl(tmp_path):
    import datasets

    conversations = [conversation(n) for n in range(6)]
    path = write(tmp_path / "chats.jsonl", conversations)
    rows = datasets.Dataset.from_list([{"messages": messages} for messages in conversations])
    rows.to_parquet(tmp_path / "hub" / "data" / "train-00000-of-00001.parquet")
    rows.select([0, 1]).to_parquet(tmp_path / "hub" / "data" / "test-00000-of-00001.parquet")
    expected, _ = load_conversations(FileDataConfig(path=path, val_path=path))
    parquet = str(tmp_path / "hub" / "data" / "train-00000-of-00001.parquet")
    assert load_conversations(FileDataConfig(path=parquet, val_path=parquet))[0] == expected
    train, validation = load_conversations(HubDataConfig(name=str(tmp_path / "hub"), val_split="test"))
    assert train == expected
    assert validation == expected[:2]


def test_a_missing_split_or_data_set_is_named(tmp_path):
    with pytest.raises(UserError, match=r"`train` of .*nowhere"):
        load_conversations(HubDataConfig(name=str(tmp_path / "nowhere")))


def test_data_sets_without_the_extra_name_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="uv sync --inexact --extra data"):
        load_conversations(HubDataConfig(name="owner/name"))


def test_rollouts_that_failed_or_were_cut_off_are_passed_over(tmp_path):
    path = tmp_path / "a.jsonl"
    broken = {"messages": [USER], "failure": "prompt_too_long"}
    cut = {"messages": conversation(1), "failure": "", "metrics": {"truncated": 1.0}}
    good = {"messages": conversation(2), "failure": "", "metrics": {"truncated": 0.0}}
    path.write_text("".join(json.dumps(row) + "\n" for row in (broken, cut, good)))
    NOTES.clear()
    assert load_conversations(FileDataConfig(path=str(path), val_path=str(path)))[0] == [conversation(2)]
    assert NOTES[0] == f"{path}: rows are `messages`: every reply is learnt"
    assert NOTES[1] == f"{path}: passed over 2 rollouts that failed or were cut off"
    path.write_text(json.dumps(broken) + "\n")
    with pytest.raises(UserError, match="no rows to learn from, but for 1 rollouts that failed or were cut off"):
        load_conversations(FileDataConfig(path=str(path)))


def test_a_data_set_may_have_subsets(tmp_path):
    import datasets

    for number, subset in enumerate(("small", "large")):
        rows = datasets.Dataset.from_list([{"messages": conversation(number)}])
        rows.to_parquet(tmp_path / "hub" / subset / "train-00000-of-00001.parquet")
    files = "".join(f"- config_name: {subset}\n  data_files: {subset}/*.parquet\n" for subset in ("small", "large"))
    (tmp_path / "hub" / "README.md").write_text(f"---\nconfigs:\n{files}---\n")
    name = str(tmp_path / "hub")
    with pytest.raises(UserError, match=r"(?s)small.*large.*`data\.subset`"):
        load_conversations(HubDataConfig(name=name))
    for number, subset in enumerate(("small", "large")):
        config = HubDataConfig(name=name, subset=subset, val_split="train")
        assert load_conversations(config)[0] == [conversation(number)]
