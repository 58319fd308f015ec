"""Rows of a file become tasks of disjoint splits, or the row that cannot be meant is named."""

import json
import os
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from slimrl.environments.find import is_builtin, load_taskset, prepare_taskset, tasks_of
from slimrl.environments.scripts import demonstrate
from slimrl.environments.splits import shared_tasks
from slimrl.errors import UserError
from tests.environments.dataset.files import SUMS, TOOLS, answered, functions, made, opened


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


def test_a_column_splits_the_rows(tmp_path):
    rows = [{**row, "split": split} for row, split in zip(SUMS, ("train", "validation", "test"), strict=False)]
    taskset = made(tmp_path, rows)
    assert [len(taskset.tasks(split)) for split in ("train", "validation", "test")] == [1, 1, 1]


REFUSED = [json.loads(line) for line in Path(__file__).with_name("refused.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("one", REFUSED, ids=lambda one: one["fault"])
def test_a_file_a_row_and_args_that_cannot_be_meant_are_refused_with_the_reason(tmp_path, one):
    path = tmp_path / f"rows.{one.get('ending', 'jsonl')}"
    text = one.get("text", '{"question": "x", "answer": "y"}\n')
    os.mkfifo(path) if text is None else path.write_text(text, encoding="latin-1")
    tools = functions(tmp_path, TOOLS)
    args = json.loads(json.dumps(one.get("args", {})).replace("TOOLS", str(tools)))
    with pytest.raises(UserError, match=one["message"]):
        prepare_taskset(load_taskset("dataset", {"path": str(path), "test_share": 0.0, **args}))


@pytest.mark.parametrize(
    "row", [{"answer": ["Rome", None]}, {"answers": [], "reference": "Rome"}, {"answer": [None], "answers": ["Rome"]}]
)
def test_what_is_null_or_empty_is_no_right_answer(tmp_path, row):
    taskset = made(tmp_path, [{"question": "q", **row}], test_share=0.0)
    assert [answered(taskset, reply).reward for reply in ("Rome", "null", "None")] == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "row", [one for one in REFUSED if "as an object" in one["fault"]], ids=lambda one: one["fault"]
)
def test_an_object_is_a_right_answer_of_a_function_alone(tmp_path, row):
    own = functions(tmp_path, "def own(reply, task):\n    return 1.0")
    taskset = made(tmp_path, [json.loads(row["text"])], test_share=0.0, reward=f"{own}:own")
    assert answered(taskset, "Rome").reward == 1.0


def test_messages_keep_their_own_system(tmp_path):
    chat = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello?"}]
    taskset = made(tmp_path, [{"prompt": chat, "answer": "Hi"}], test_share=0.0, answer="whole")
    assert opened(taskset) == chat
    taskset = made(tmp_path, [{"prompt": chat[1:], "answer": "Hi"}], test_share=0.0, system="Greet.")
    assert opened(taskset)[0] == {"role": "system", "content": "Greet."}


def test_the_expert_earns_everything_in_every_form(tmp_path):
    assert not is_builtin("dataset")  # code of the user's runs in a worker
    for form in ("lenient", "tag", "whole"):
        taskset = made(tmp_path, answer=form)
        said = demonstrate(taskset, taskset.tasks("train")[0])[-1]["content"]
        assert answered(taskset, said).reward == 1.0


@pytest.mark.slow
def test_columns_of_types_that_json_lacks_are_written_otherwise_or_left_out(tmp_path, capsys):
    pandas = pytest.importorskip("pandas", reason="needs the package pandas")
    pytest.importorskip("datasets", reason="needs the package datasets")
    moment = datetime(2024, 1, 2, 3, 4, 5)
    row = {
        **{"question": "q", "answer": Decimal("1.5"), "whole": Decimal("2"), "seen": moment, "day": moment.date()},
        **{"picture": b"\x00", "parts": [{"at": moment}], "bytes": [{"x": [b"a"]}]},
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
