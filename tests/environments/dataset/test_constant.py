"""The best constant answer is found, played as a script, and set beside what a run comes to."""

import json

import pytest

from slimrl import cli
from slimrl.environments.scripts import play_script
from tests.environments.dataset.files import answered, functions, made, write_rows
from tests.tiny import tiny_model_dir

MOSTLY_2 = [{"question": f"How many in box {n}?", "answer": 2 if n % 4 else n} for n in range(40)]
OWN = "def length(reply):\n    return len(reply) / 100\n"


def constant(taskset):
    return play_script(taskset, "constant", taskset.tasks("train")[0], 0)[-1]["content"]


def test_the_commonest_answer_is_the_best_constant(tmp_path):
    taskset = made(tmp_path, MOSTLY_2, test_share=0.0)
    assert constant(taskset) == "<answer>2</answer>"
    assert answered(taskset, "<answer>2</answer>", number=1).reward == 1.0
    assert constant(made(tmp_path, MOSTLY_2, test_share=0.0, answer="whole")) == "2"


def test_with_a_reward_of_ones_own_it_is_what_that_pays_most(tmp_path):
    rows = [{"question": f"q{n}", "answer": "a" if n % 2 else "a long answer"} for n in range(41)]
    reward = f"{functions(tmp_path, OWN)}:length"
    assert constant(made(tmp_path, rows, test_share=0.0, reward=reward)) == "<answer>a long answer</answer>"


def test_where_there_is_no_right_answer_or_a_judge_is_asked_there_is_none(tmp_path):
    reward = f"{functions(tmp_path, OWN)}:length"
    without = made(tmp_path, [{"question": f"q{n}"} for n in range(9)], test_share=0.0, reward=reward)
    assert "constant" not in without.scripts
    asks = {"judge": {"base_url": "http://127.0.0.1:9/v1", "model": "m"}, "test_share": 0.0}
    assert "constant" not in made(tmp_path, MOSTLY_2, **asks).scripts


@pytest.mark.nightly
def test_a_run_shows_it_beside_its_stages(tmp_path, capsys):
    path = write_rows(tmp_path / "rows.jsonl", MOSTLY_2)
    model = str(tiny_model_dir(tmp_path, "llama"))
    words = ["--model.name", model, "--model.device", "cpu", "--max_steps", "1", "--seq_len", "300"]
    words += ["--orchestrator.env", json.dumps([{"id": "dataset", "args": {"path": str(path)}}])]
    words += ["--orchestrator.batch_size", "4", "--orchestrator.rollouts_per_example", "2", "--warmup.max_steps", "0"]
    words += ["--orchestrator.sampling.max_tokens", "40", "--eval.num_examples", "8"]
    assert cli.run(["rl", *words, "--output_dir", str(tmp_path / "run")]) == 0
    assert "the same answer to all" in capsys.readouterr().out
    baseline = json.loads((tmp_path / "run" / "summary.json").read_text())["baseline"]
    assert baseline["name"] == "the same answer to all" and 0.3 < baseline["held_out"]["constant"]["mean"] <= 1.0
    assert not list((tmp_path / "run" / "held_out").glob("constant*.jsonl"))


def test_of_a_sorted_file_it_is_not_the_answer_of_the_first_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("slimrl.environments.dataset.taskset.NUM_TASKS", 20)
    rows = [{"question": f"Is {n} big?", "answer": "yes" if n < 20 else "no"} for n in range(100)]
    assert constant(made(tmp_path, rows, test_share=0.0)) == "<answer>no</answer>"
