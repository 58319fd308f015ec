"""Rows of a file become tasks of disjoint splits, or the row that cannot be meant is named."""

import json
import os
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from slimrl.environments.find import is_builtin, load_taskset, tasks_of
from slimrl.environments.scripts import demonstrate
from slimrl.environments.splits import shared_tasks
from slimrl.errors import UserError
from tests.environments.dataset.files import SUMS, answered, functions, made, opened, write_rows


def questions(taskset, split):
    return {task.data["question"] for task in tasks_of(taskset, split)}


def test_a_hash_of_the_question_splits_the_rows(tmp_path):
    one, other = made(tmp_path), made(tmp_path, [*reversed(SUMS)])
    assert questions(one, "test") == questions(other, "test")  # wherever the row stands
    assert 0 < len(questions(one, "test")) < 20
    assert not shared_tasks(one.tasks("train"), one.tasks("test"))
    assert len(one.tasks("train")) + len(one.tasks("test")) == len(SUMS)
    assert not one.tasks("validation")
    assert not made(tmp_path, test_share=0.0).tasks("test")


def test_a_column_or_files_split_the_rows(tmp_path):
    rows = [{**row, "split": split} for row, split in zip(SUMS, ("train", "validation", "test"), strict=False)]
    taskset = made(tmp_path, rows)
    assert [len(taskset.tasks(split)) for split in ("train", "validation", "test")] == [1, 1, 1]
    test = write_rows(tmp_path / "test.jsonl", SUMS[:3])
    taskset = made(tmp_path, SUMS[3:], test_path=str(test))
    assert [len(taskset.tasks(split)) for split in ("train", "test")] == [len(SUMS) - 3, 3]


@pytest.mark.slow
def test_csv_and_parquet_are_read(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('question,answer\n"What is 1 + 1?",2\n"a\nb",3\n', encoding="utf-8")
    taskset = load_taskset("dataset", {"path": str(path), "test_share": 0.0, "reward": "number"})
    assert answered(taskset, "2").reward == 1.0
    datasets = pytest.importorskip("datasets", reason="needs the package datasets")
    datasets.Dataset.from_list(SUMS).to_parquet(tmp_path / "rows.parquet")
    taskset = load_taskset("dataset", {"path": str(tmp_path / "rows.parquet"), "test_share": 0.0})
    assert answered(taskset, "1").reward == 1.0


CSV = "cannot be read as CSV"
BAD_FILES = {
    "a quote that is never closed": ("csv", 'question,answer\nq1,1\nq2,"10\nq3,3\n', f"rows.csv:3 {CSV}"),
    "a quote that ends early": ("csv", 'question,answer\nq1,"8"x"9\n', f"rows.csv:2 {CSV}"),
    "a quote in the first line": ("csv", 'question,"answer\nq1,1\n', f"rows.csv:1 {CSV}"),
    "a column that stands twice": ("csv", "question,answer,answer\nq1,right,wrong\n", "has the column `answer` twice"),
    "another encoding": ("csv", "question,answer\nq\xe9,1\n", f"rows.csv {CSV}: 'utf-8'"),
    "too many cells": ("csv", "question,answer\nq1,1,2\n", "rows.csv:2 has more cells"),
    "a key that stands twice": (
        "jsonl",
        '\n{"question": "q", "answer": "1", "answer": "2"}',
        "jsonl:2 has the key 'answer'",
    ),
    "an inner key that stands twice": (
        "jsonl",
        '\n{"question": "q", "x": {"k": 1, "k": 1}}',
        "jsonl:2 has the key 'k'",
    ),
    "no rows": ("jsonl", "", "has no rows"),
    "a pipe of rows": ("jsonl", None, r"it is a pipe, not a regular file\. Check args.path"),
    "a pipe of cells": ("csv", None, r"it is a pipe, not a regular file\. Check args.path"),
}


@pytest.mark.parametrize("fault", BAD_FILES)
def test_a_file_that_cannot_be_meant_is_refused(tmp_path, fault):
    ending, text, message = BAD_FILES[fault]
    path = tmp_path / f"rows.{ending}"
    os.mkfifo(path) if text is None else path.write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=message):
        load_taskset("dataset", {"path": str(path), "test_share": 0.0}).tasks("train")


def test_quotes_within_a_cell_and_columns_without_names_are_read(tmp_path):
    (tmp_path / "rows.csv").write_text('question,answer,,\na 6" pipe?,"six ""inches""",,\n\nb,2\n')
    tasks = load_taskset("dataset", {"path": str(tmp_path / "rows.csv"), "test_share": 0.0}).tasks("train")
    assert [task.data for task in tasks] == [
        {"question": 'a 6" pipe?', "answer": 'six "inches"'},
        {"question": "b", "answer": "2"},
    ]


@pytest.mark.parametrize(
    "row", [{"answer": ["Rome", None]}, {"answers": [], "reference": "Rome"}, {"answer": [None], "answers": ["Rome"]}]
)
def test_what_is_null_or_empty_is_no_right_answer(tmp_path, row):
    taskset = made(tmp_path, [{"question": "q", **row}], test_share=0.0)
    assert [answered(taskset, reply).reward for reply in ("Rome", "null", "None")] == [1.0, 0.0, 0.0]


OBJECTS = {
    "SQuAD": {"answers": {"text": ["Rome"], "answer_start": [1]}},
    "TriviaQA": {"answer": {"value": "Rome", "aliases": ["Roma"]}},
    "a list": {"answers": [{"text": "Rome"}]},
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_an_object_is_no_right_answer_of_a_scorer(tmp_path, kind):
    row = {"question": "q", **OBJECTS[kind]}
    with pytest.raises(
        UserError, match=r"`answers?` of task `train/1` holds the object .*as a text or a list of texts"
    ):
        made(tmp_path, [row], test_share=0.0).tasks("train")
    own = functions(tmp_path, "def own(reply, task):\n    return 1.0")
    assert answered(made(tmp_path, [row], test_share=0.0, reward=f"{own}:own"), "Rome").reward == 1.0


def test_messages_keep_their_own_system(tmp_path):
    chat = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello?"}]
    taskset = made(tmp_path, [{"prompt": chat, "answer": "Hi"}], test_share=0.0, answer="whole")
    assert opened(taskset) == chat
    taskset = made(tmp_path, [{"prompt": chat[1:], "answer": "Hi"}], test_share=0.0, system="Greet.")
    assert opened(taskset)[0] == {"role": "system", "content": "Greet."}


def test_the_expert_earns_everything_in_every_form(tmp_path):
    assert not is_builtin("dataset")  # code of the user's runs in a worker
    for form in ("lenient", "tag", "last_line", "whole"):
        taskset = made(tmp_path, answer=form)
        said = demonstrate(taskset, taskset.tasks("train")[0])[-1]["content"]
        assert answered(taskset, said).reward == 1.0


BAD_ROWS = {
    "no JSON": ("oops", "rows.jsonl:1 is no JSON object"),
    "no question": ({"text": "x"}, r"rows.jsonl:1 has neither `prompt` nor `question`"),
    "parts": ({"prompt": [{"role": "user", "content": [{"type": "text"}]}]}, "rows.jsonl:1: `prompt` must be"),
    "number": ({"prompt": 3}, "must be a text or a list"),
    "role": ({"prompt": [{"role": "human", "content": "x"}]}, "must be a text or a list"),
    "ends with a reply": ({"prompt": [{"role": "assistant", "content": "x"}]}, "leaves nothing to answer"),
    "split": ({"question": "x", "answer": "y", "split": "tset"}, "Did you mean `test`"),
    "no answer": ({"question": "x"}, "has none: give the row `answer`"),
    "blank answer": ({"question": "x", "answer": " "}, "cannot read the right answer"),
}


@pytest.mark.parametrize("fault", BAD_ROWS)
def test_a_row_that_cannot_be_meant_is_named(tmp_path, fault):
    row, message = BAD_ROWS[fault]
    with pytest.raises(UserError, match=message):
        tasks_of(made(tmp_path, [row], test_share=0.0), "train")


BAD_ARGS = {
    "form": ({"answer": "tags"}, "Did you mean `tag`"),
    "share": ({"test_share": 1.0}, "below 1"),
    "reward": ({"reward": "exactly"}, "Did you mean `exact`"),
    "judge unasked": ({"judge": {"base_url": "http://x", "model": "m"}, "reward": "exact"}, "no reward asks it"),
    "no file": ({"reward": "nowhere.py:f"}, "reward file nowhere.py does not exist"),
    "no number": ({"reward": "number"}, "cannot read the right answer"),
    "twice": ({"reward": ["exact", "exact"]}, "two rewards are called `exact`"),
    "empty list": ({"reward": []}, "exact|empty"),
    "key": ({"reward": {"function": "exact", "wieght": 2}}, "Did you mean `weight`"),
    "type": ({"reward": {"function": "exact", "weight": "2"}}, "cannot be '2'"),
}


@pytest.mark.parametrize("fault", BAD_ARGS)
def test_args_that_cannot_work_say_why(tmp_path, fault):
    args, message = BAD_ARGS[fault]
    with pytest.raises(UserError, match=message):
        made(tmp_path, [{"question": "x", "answer": "y"}], **args).tasks("train")


@pytest.mark.slow
def test_columns_of_types_that_json_lacks_are_written_otherwise_or_left_out(tmp_path, capsys):
    pandas = pytest.importorskip("pandas", reason="needs the package pandas")
    pytest.importorskip("datasets", reason="needs the package datasets")
    moment = datetime(2024, 1, 2, 3, 4, 5)
    row = {
        **{"question": "q", "answer": Decimal("1.5"), "whole": Decimal("2"), "seen": moment, "day": moment.date()},
        **{"picture": b"\x00", "parts": [{"at": moment}], "bytes": [{"x": [b"a"]}], "took": timedelta(seconds=3)},
    }
    path = tmp_path / "types.parquet"
    pandas.DataFrame([{**row, "question": f"q{number}"} for number in range(3)]).to_parquet(path)
    taskset = load_taskset("dataset", {"path": str(path), "test_share": 0.0, "reward": "number"})
    data = taskset.tasks("train")[0].data
    assert json.loads(json.dumps(data)) == data
    assert (data["answer"], data["whole"], data["day"]) == (1.5, 2, "2024-01-02")
    assert data["seen"].startswith("2024-01-02T03:04:05") and data["parts"][0]["at"].startswith("2024-01-02T03:04")
    assert "picture" not in data and "bytes" not in data
    said = capsys.readouterr().err
    assert "the column `picture` is left out: it holds values of the type bytes" in said and "`bytes`" in said
