"""The real `eval` and `compare` on a tiny random model: baselines, files to read, going on after kill -9."""

import json
from pathlib import Path

import pytest

from slimrl.cli import run
from slimrl.eval.episodes import read_episodes
from tests.commands.killed import kill_at
from tests.tiny import tiny_model_dir

NUM = 24


def eval_flags(model: Path, output_dir: Path, *more: str) -> list[str]:
    settings = {
        "env": '[{id="tests/eval/episodes.py:Sums", args={num_tasks=24}}]',
        "num_examples": NUM,
        "temperatures": "[0.0, 1.0]",
        "sampling.max_tokens": 4,
        "seq_len": 160,
        "output_dir": output_dir,
        "model.name": model,
        "model.dtype": "float32",
        "model.num_threads": 1,
        "inference.max_slots": 2,
    }
    return ["eval", *(text for key, value in settings.items() for text in (f"--{key}", str(value))), *more]


@pytest.fixture(scope="module")
def finished(tiny_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output_dir = tmp_path_factory.mktemp("eval") / "out"
    assert run(eval_flags(tiny_dir, output_dir, "--baselines", '["random", "expert"]')) == 0
    return output_dir


def test_everything_is_written_to_be_read(finished: Path, tiny_dir: Path):
    results = json.loads((finished / "results.json").read_text())
    assert list(results["evaluations"]) == [str(tiny_dir), "random", "expert"]
    modes = results["evaluations"][str(tiny_dir)]
    assert list(modes) == ["greedy", "sampled"] and modes["greedy"]["scores"]["turns"]["num"] == NUM
    expert = results["evaluations"]["expert"]["scripted"]
    assert expert["reward"]["mean"] == 1.0 and expert["failures"] == {}
    assert sum(modes["greedy"]["failures"].values()) == NUM * (1 - modes["greedy"]["reward"]["mean"])
    (reward,) = [pair for pair in results["pairs"]["greedy"]["expert"] if pair["score"] == "reward"]
    assert reward["wins"] == 0 and reward["second"] == 1.0 and reward["p"] < 0.01
    assert results["tasks"] == {"Sums": {"num": NUM, "of": NUM}}
    report, failures = (finished / "report.md").read_text(), (finished / "failures.md").read_text()
    assert "## test, sampled\n\n- Sums: 24 of 24 tasks" in report and "against expert, 24 tasks one by one" in report
    assert "The answer is: " in failures and "**assistant**" in failures


def test_saved_evaluations_are_compared(finished: Path, capsys: pytest.CaptureFixture[str]):
    files = [str(finished / "held_out" / f"{name}.jsonl") for name in ("eval_greedy", "vs_random_scripted")]
    assert run(["compare", *files]) == 0
    assert "24 tasks one by one" in " ".join(capsys.readouterr().out.split())
    assert run(["compare", str(finished), str(finished)]) == 0
    assert run(["compare", "--help"]) == 0 and "McNemar" in capsys.readouterr().out
    assert run(["compare", str(finished)]) == 2


SEVERAL = (
    '[{id="reverse-text", args={num_test=3}}, {id="tests/eval/episodes.py:Sums", args={num_tasks=5}}, '
    '{id="reverse_text", args={num_test=3, style="word"}}]'
)


@pytest.mark.slow
def test_several_environments_have_a_line_each_and_ids_of_their_own(
    tiny_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    more = ("--env", SEVERAL, "--num_examples", "5", "--temperatures", "[0.0]", "--baselines", '["expert"]')
    assert run(eval_flags(tiny_dir, tmp_path / "all", *more)) == 0
    assert "all together" in capsys.readouterr().out
    report = (tmp_path / "all" / "report.md").read_text().splitlines()
    start = report.index("reward by environment, with 95% intervals:")
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report[start + 2 : start + 8]]
    assert [row[0] for row in table[2:]] == ["reverse-text", "Sums", "reverse-text-2", "all together"]
    assert all(" to " in cell for row in table[2:] for cell in row[1:]) and table[3][2].startswith("1.000 (")
    found = json.loads((tmp_path / "all" / "results.json").read_text())["evaluations"][str(tiny_dir)]["greedy"]
    assert [reward["num"] for reward in found["environments"].values()] == [3, 5, 3] and found["reward"]["num"] == 11
    ids = list(read_episodes(tmp_path / "all" / "held_out" / "eval_greedy.jsonl"))
    assert len(ids) == len(set(ids)) == 11 and ids[0].startswith("reverse-text/") and ids[3].startswith("Sums/")

    # One of them alone is compared with the same one among several, whatever their order.
    alone = ("--env", '[{id="tests/eval/episodes.py:Sums", args={num_tasks=5}}]', "--temperatures", "[0.0]")
    assert run(eval_flags(tiny_dir, tmp_path / "one", *alone, "--num_examples", "5")) == 0
    assert run(["compare", str(tmp_path / "one"), str(tmp_path / "all")]) == 0
    assert "5 tasks one by one" in " ".join(capsys.readouterr().out.split())
    assert run(["compare", str(tmp_path / "all"), str(tmp_path / "all")]) == 0
    pairs = json.loads((tmp_path / "all" / "results.json").read_text())["pairs"]["greedy"]["expert"]
    nums = {pair["score"]: pair["difference"]["num"] for pair in pairs if pair["score"].startswith("reward")}
    assert nums == {"reward": 11, "reward, reverse-text": 3, "reward, Sums": 5, "reward, reverse-text-2": 3}

    assert run(eval_flags(tiny_dir, tmp_path / "all", *more, "--resume")) == 0
    assert list(read_episodes(tmp_path / "all" / "held_out" / "eval_greedy.jsonl")) == ids


@pytest.mark.nightly
def test_killed_and_resumed_it_comes_to_the_same(finished: Path, tiny_dir: Path, tmp_path: Path):
    flags = eval_flags(tiny_dir, tmp_path / "out", "--baselines", '["random", "expert"]')
    file = tmp_path / "out" / "held_out" / "eval_greedy.jsonl"
    kill_at(flags, file, 3)
    with file.open("ab") as torn:
        torn.write(b'{"task_id": "test/')
    kept = read_episodes(file)
    assert run([*flags, "--resume"]) == 0
    for name in ("eval_greedy", "eval_sampled", "vs_random_scripted", "vs_expert_scripted"):
        again, before = (read_episodes(path / "held_out" / f"{name}.jsonl") for path in (tmp_path / "out", finished))
        assert list(again) == list(before)
        assert [r.reward for r in again.values()] == [r.reward for r in before.values()]
    assert all(read_episodes(file)[place] == rollout for place, rollout in kept.items())


@pytest.mark.slow
def test_a_finished_one_is_extended_without_playing_again(tiny_dir: Path, tmp_path: Path, capsys):
    assert run(eval_flags(tiny_dir, tmp_path, "--num_examples", "5")) == 0
    assert f"Sums: 5 of {NUM} held-out tasks, the same every time" in " ".join(capsys.readouterr().out.split())
    assert f"- Sums: 5 of {NUM} tasks" in (tmp_path / "report.md").read_text()
    file = tmp_path / "held_out" / "eval_greedy.jsonl"
    before = read_episodes(file)
    more = ("--num_examples", "30", "--baselines", '["expert"]', "--resume")
    assert run(eval_flags(tiny_dir, tmp_path, *more)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Sums has {NUM} held-out tasks; num_examples = 30 asks for more" in said
    after = read_episodes(file)
    assert len(after) == NUM and all(after[place] == rollout for place, rollout in before.items())
    assert (tmp_path / "held_out" / "vs_expert_scripted.jsonl").exists()


@pytest.mark.slow
def test_another_model_is_a_baseline_in_every_way_of_decoding(tiny_dir: Path, tmp_path: Path):
    other = tiny_model_dir(tmp_path, "qwen3")
    flags = ("--num_examples", "4", "--baselines", json.dumps([str(other), "random"]))
    assert run(eval_flags(tiny_dir, tmp_path / "out", *flags)) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(results["evaluations"][str(other)]) == ["greedy", "sampled"]
    assert [list(pairs) for pairs in results["pairs"].values()] == [[str(other), "random"]] * 2


@pytest.mark.slow
def test_another_evaluation_in_the_directory_is_refused_or_replaces_the_first(tiny_dir: Path, tmp_path: Path, capsys):
    assert run(eval_flags(tiny_dir, tmp_path, "--num_examples", "2")) == 0
    assert run(eval_flags(tiny_dir, tmp_path, "--num_examples", "2", "--resume", "--sampling.max_tokens", "3")) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "was made with other settings (sampling.max_tokens: 4 -> 3)" in error and "Leave `--resume` away" in error
    assert (tmp_path / "results.json").exists()
    assert run(eval_flags(tiny_dir, tmp_path, "--num_examples", "2", "--temperatures", "[0.5]")) == 0
    assert {path.name for path in (tmp_path / "held_out").iterdir()} == {"eval.json", "eval_sampled_0.5.jsonl"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--baselines", '["random"]', "--env", '[{id="reverse-text"}]'), "no script `random`"),
        (("--baselines", '["expert", "expert"]'), "`expert` stands twice"),
        (("--baselines", '["runs/a_1", "runs/a-1"]'), "runs/a_1 and runs/a-1 would have the same files"),
        (("--split", "validation", "--env", '[{id="reverse-text"}]'), "no tasks in the split"),
        (("--split", "dev"), "split"),
    ],
)
def test_mistakes_are_told_before_anything_slow(tiny_dir: Path, tmp_path: Path, capsys, more, said: str):
    assert run(eval_flags(tiny_dir, tmp_path / "out", *more)) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out" / "held_out").exists()
