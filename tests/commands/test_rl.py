"""The real commands on a tiny random model: a whole run, exact resumption after kill -9, every kind of bad input."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slimrl.cli import run
from slimrl.launch import parts
from slimrl.monitor.rollouts import read_rollouts
from slimrl.monitor.sinks import read_metrics
from slimrl.trainer.checkpoint import read_progress
from tests.commands.killed import kill_and_resume
from tests.reproducible import is_reproducible

STEPS = 5


def rl_flags(model: Path, output_dir: Path, *more: str) -> list[str]:
    settings = {
        "max_steps": STEPS,
        "seq_len": 160,
        "output_dir": output_dir,
        "model.name": model,
        "model.dtype": "float32",
        "model.num_threads": 1,
        "orchestrator.env": '[{id="reverse-text", args={num_train=200, num_test=20}}]',
        "orchestrator.batch_size": 8,
        "orchestrator.rollouts_per_example": 4,
        "orchestrator.sampling.max_tokens": 4,
        "trainer.loss.type": "reinforce",  # a random model never earns a reward: its baseline still gives a signal
        "trainer.micro_batch_tokens": 256,
        "trainer.optim.lr": 0.01,
        "warmup.max_steps": 2,
        "warmup.batch_size": 4,
        "eval.num_examples": 4,
        "eval.interval_steps": 2,
        "ckpt.interval_steps": 2,
    }
    flags = [text for key, value in settings.items() for text in (f"--{key}", str(value))]
    return ["rl", *flags, *more]


def reproducible(output_dir: Path) -> list[tuple[int, dict[str, float]]]:
    lines = read_metrics(output_dir / "metrics.jsonl")
    return [(step, {k: v for k, v in metrics.items() if is_reproducible(k)}) for step, metrics in lines]


@pytest.fixture(scope="module")
def finished(tiny_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    output_dir = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert run(rl_flags(tiny_dir, output_dir)) == 0
    return output_dir


SHOUT = """
from slimrl.types import Task, Turn

class Shout:
    def tasks(self, split):
        return [Task(f"{split}/{n}", {}) for n in range(4)]

    def environment(self, task):
        return self

    async def start(self):
        return [{"role": "user", "content": "Shout."}]

    async def step(self, reply):
        return Turn(True, reward=1.0)
"""


def test_a_warm_up_without_an_expert_is_refused_before_the_model_is_loaded(tiny_dir, tmp_path, monkeypatch, capsys):
    (tmp_path / "shout.py").write_text(SHOUT, encoding="utf-8")
    monkeypatch.setattr(parts, "open_policy", lambda *_: pytest.fail("the model is loaded"))
    env = f'[{{id="{tmp_path / "shout.py"}:Shout", worker="none"}}]'
    assert run(rl_flags(tiny_dir, tmp_path / "run", "--orchestrator.env", env)) == 2
    said = capsys.readouterr().err
    assert 'Shout has no script "expert"' in said and "--warmup.max_steps 0" in said and "--data" not in said


def test_a_run_leaves_everything_that_it_promises(finished):
    steps = [step for step, _ in read_metrics(finished / "metrics.jsonl")]
    assert steps == [*range(STEPS), STEPS]  # the last line is the evaluation after training
    names = {path.name for path in finished.iterdir()}
    assert {"config.toml", "summary.json", "eval.toml", "reward.png", "training.png", "rollouts", "weights"} <= names
    records = read_rollouts(finished / "rollouts" / "step_000003.jsonl")
    assert len(records) == 8
    assert all(record.rollout.num_sampled and record.text for record in records)
    held_out = read_rollouts(finished / "held_out" / "final_greedy.jsonl")
    assert all(record.rollout.task_data["text"] in record.text for record in (*records, *held_out))
    stages = [stage["name"] for stage in json.loads((finished / "summary.json").read_text())["stages"]]
    assert stages == ["base model", "after warm-up", "after RL"]


def test_a_checkpoint_counts_the_time_of_what_came_before_the_first_step(finished):
    directories = [finished, finished / "warmup"]
    steps = [metrics for run in directories for _, metrics in read_metrics(run / "metrics.jsonl")]
    in_steps = sum(metrics.get("time/step_s", 0.0) for metrics in steps)
    spent = read_progress(finished)
    assert spent and spent.seconds > in_steps
    assert json.loads((finished / "summary.json").read_text())["duration_s"] > spent.seconds


def all_are_counted(metrics: dict[str, float]) -> bool:
    """Return True if every rollout that started was trained or dropped."""
    dropped = sum(value for name, value in metrics.items() if name.startswith("drop/"))
    return metrics["rollout/num"] == metrics["rollout/num_trained"] + dropped


def test_every_step_counts_its_rollouts_and_sampler_and_trainer_agree(finished):
    for _, metrics in read_metrics(finished / "metrics.jsonl")[:STEPS]:
        assert all_are_counted(metrics)
        assert metrics["guard/max_logprob_gap"] < 1e-3
        assert metrics["loss/ratio_max"] == pytest.approx(1.0, abs=1e-3)


def test_plain_transformers_loads_the_weights(finished):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    directory = finished / "weights" / f"step_{STEPS}"
    model = AutoModelForCausalLM.from_pretrained(directory)
    ids = AutoTokenizer.from_pretrained(directory).encode("reverse")
    assert len(ids) > 0
    assert model.config.use_cache


def test_eval_gives_the_final_numbers_again(finished, tmp_path):
    assert run(["eval", "@", str(finished / "eval.toml"), "--output_dir", str(tmp_path / "eval")]) == 0
    again = json.loads((tmp_path / "eval" / "held_out" / "eval.json").read_text())["held_out"]
    final = json.loads((finished / "held_out" / "final.json").read_text())["held_out"]
    assert again == final


@pytest.mark.slow
def test_supervised_weights_are_trained_by_rl_and_evaluated(tiny_dir, tmp_path, monkeypatch):
    """The chain of the guides: sft, rl on its weights, eval of the result. W&B is configured, and off."""
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setitem(sys.modules, "wandb", None)  # it is not imported
    sft, rl, evaluated = (tmp_path / name for name in ("sft", "rl", "eval"))
    learn = ["sft", "@", "configs/debug/sft/train.toml", "--model.name", str(tiny_dir), "--max_steps", "2"]
    assert run([*learn, "--output_dir", str(sft), "--wandb.project", "p"]) == 0
    last = {"--max_steps": "1", "--warmup.max_steps": "0", "--eval.interval_steps": "0", "--wandb.project": "p"}
    assert run(rl_flags(sft / "weights" / "step_2", rl, *(word for pair in last.items() for word in pair))) == 0
    assert run(["eval", "@", str(rl / "eval.toml"), "--output_dir", str(evaluated)]) == 0
    of_rl, again = (
        json.loads(path.read_text()) for path in (rl / "held_out/final.json", evaluated / "held_out/eval.json")
    )
    assert again["held_out"] == of_rl["held_out"]


LEFT = ["metrics.jsonl", "held_out/base_greedy.jsonl", "warmup/metrics.jsonl", "checkpoints/step_1/progress.json"]


@pytest.mark.parametrize("left_nothing_but", LEFT)
def test_an_interrupted_run_is_never_taken_for_a_fresh_directory(tiny_dir, tmp_path, capsys, left_nothing_but):
    file = tmp_path / "run" / left_nothing_but
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")
    assert run(rl_flags(tiny_dir, tmp_path / "run")) == 2
    assert "--resume" in capsys.readouterr().err and file.read_text() == "{}\n"


@pytest.mark.slow
def test_what_was_refused_before_it_began_is_not_in_the_way(tiny_dir, tmp_path, capsys):
    output_dir = tmp_path / "run"
    assert run(rl_flags(tiny_dir, output_dir, "--orchestrator.env", '[{id="reverse-text", args={min_words=-1}}]')) == 2
    assert not output_dir.exists() and "min_words" in capsys.readouterr().err
    (output_dir / "held_out").mkdir(parents=True)
    (output_dir / "held_out" / "base_greedy.jsonl").touch()
    assert run(rl_flags(tiny_dir, output_dir, "--warmup.max_steps", "0", "--max_steps", "1")) == 0


def test_an_evaluation_does_not_replace_a_training_run(finished, capsys):
    before = (finished / "config.toml").read_bytes()
    assert run(["eval", "@", str(finished / "eval.toml"), "--output_dir", str(finished)]) == 2
    assert "--output_dir" in capsys.readouterr().err
    assert (finished / "config.toml").read_bytes() == before


@pytest.mark.slow
def test_a_run_with_more_steps_than_wanted_is_not_resumed(finished, tiny_dir, capsys):
    metrics = (finished / "metrics.jsonl").read_bytes()
    assert run(rl_flags(tiny_dir, finished, "--resume", "--max_steps", str(STEPS - 1))) == 2
    assert (finished / "metrics.jsonl").read_bytes() == metrics
    assert f"has made {STEPS} steps, and max_steps is {STEPS - 1}. Set `--max_steps" in capsys.readouterr().err


@pytest.mark.slow
def test_a_resumed_run_points_out_what_was_changed(finished, tiny_dir, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "run")
    assert run(rl_flags(tiny_dir, tmp_path / "run", "--resume", "--trainer.optim.weight_decay", "0.5")) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "trainer.optim.weight_decay: 0.0 -> 0.5" in out


@pytest.mark.parametrize(
    ("watched", "lines"),
    [
        pytest.param("warmup/metrics.jsonl", 1, marks=pytest.mark.nightly),
        pytest.param("metrics.jsonl", 1, marks=pytest.mark.nightly),
        pytest.param("metrics.jsonl", 4, marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_resumes_bit_for_bit(finished, tiny_dir, tmp_path, watched, lines):
    output_dir = tmp_path / "run"
    flags = rl_flags(tiny_dir, output_dir)
    kill_and_resume(flags, output_dir / watched, lines)
    assert reproducible(output_dir) == reproducible(finished)
    final = f"weights/step_{STEPS}/model.safetensors"
    assert (output_dir / final).read_bytes() == (finished / final).read_bytes()


BAD_ENVIRONMENT = """
from slimrl.types import Turn
from slimrl.types import Task
import asyncio

class Bad:
    def __init__(self, how="raise"):
        self.how = how
    def tasks(self, split):
        return [Task(id=f"{split}/{n}", data={"n": n}) for n in range(20)]
    def environment(self, task):
        return Episode(self.how, task.data["n"])

class Episode:
    def __init__(self, how, n):
        self.how, self.n, self.turns = how, n, 0
    async def start(self):
        return [{"role": "user", "content": f"task {self.n}"}]
    async def step(self, reply):
        self.turns += 1
        bad = self.n % 3 == 0
        if bad and self.how == "raise":
            raise RuntimeError("the dice rolled away")
        if bad and self.how == "nan":
            return Turn(done=True, reward=float("nan"))
        if bad and self.how == "hang":
            await asyncio.sleep(3600)
        if bad and self.how == "loop":
            while True:
                pass
        if self.how == "endless":
            return Turn(done=False, messages=[{"role": "user", "content": "again"}])
        if self.how == "always":
            raise RuntimeError("broken for good")
        return Turn(done=True, reward=float(len(reply)))
"""


@pytest.fixture
def bad_environment(tmp_path: Path) -> str:
    path = tmp_path / "bad.py"
    path.write_text(BAD_ENVIRONMENT)
    return f"{path}:Bad"


def flags_for(tiny_dir: Path, tmp_path: Path, env: str, how: str) -> list[str]:
    return rl_flags(
        tiny_dir,
        tmp_path / "run",
        "--orchestrator.env",
        json.dumps([{"id": env, "args": {"how": how}}]),
        *("--warmup.max_steps", "0", "--max_steps", "2", "--orchestrator.episode_timeout_s", "0.3"),
        *("--orchestrator.max_turns", "3", "--trainer.loss.baseline", "0.1", "--eval.interval_steps", "0"),
    )


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raise", "environment_error"),
        pytest.param("nan", "nonfinite_reward", marks=pytest.mark.slow),
        pytest.param("hang", "timeout", marks=pytest.mark.slow),
        pytest.param("loop", "timeout", marks=pytest.mark.nightly),
    ],
)
def test_a_bad_episode_is_dropped_and_the_run_goes_on(tiny_dir, tmp_path, bad_environment, how, reason):
    assert run(flags_for(tiny_dir, tmp_path, bad_environment, how)) == 0
    lines = [metrics for _, metrics in read_metrics(tmp_path / "run" / "metrics.jsonl")][:2]
    assert sum(metrics.get(f"drop/{reason}", 0.0) for metrics in lines) > 0
    assert all(map(all_are_counted, lines))


@pytest.mark.slow
def test_an_endless_environment_ends_at_max_turns_and_a_broken_one_stops_the_run(
    tiny_dir, tmp_path, bad_environment, capsys
):
    assert run(flags_for(tiny_dir, tmp_path / "a", bad_environment, "endless")) == 0
    metrics = read_metrics(tmp_path / "a" / "run" / "metrics.jsonl")[0][1]
    assert metrics["env/unfinished"] == 1.0
    assert metrics["rollout/turns_mean"] <= 3.0
    assert run(flags_for(tiny_dir, tmp_path / "b", bad_environment, "always")) == 2
    assert "broken for good" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "said"), [("empty", "config.json"), ("model.gguf", "model.gguf")])
def test_a_model_without_weights_or_truncated_is_named(name, said, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "model.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    assert run(rl_flags(tmp_path / name, tmp_path / "run")) == 2
    assert said in capsys.readouterr().err


@pytest.mark.nightly
def test_a_full_disk_stops_the_run_and_space_lets_it_resume(finished, tiny_dir, tmp_path):
    """A real limit on file sizes stands in for the full disk: the first checkpoint does not fit."""
    output_dir = tmp_path / "run"
    flags = rl_flags(tiny_dir, output_dir)
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000)); "
        "from slimrl.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    # With the limit, Python would leave the first part of a compiled module, which then can never be imported.
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-c", code, *flags]
    starved = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=120)
    assert starved.returncode == 2, starved.stderr
    assert "--resume" in starved.stderr
    assert "Traceback" not in starved.stderr
    assert run([*flags, "--resume"]) == 0
    assert reproducible(output_dir) == reproducible(finished)
