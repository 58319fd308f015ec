"""A run at level 0 notes a large share of its steps that passes in waiting for the environment."""

from pathlib import Path

import pytest

from slimrl.cli import run
from slimrl.launch.advice import EnvironmentShare
from slimrl.monitor.sinks import read_metrics

NOTE = "of a step, in which nothing is sampled or trained"


def test_the_first_steps_are_looked_at_and_one_line_is_said() -> None:
    said: list[str] = []
    sink = EnvironmentShare(said.append)
    for wait_s in (2.0, 1.0, 3.0, 9.0, 9.0):
        sink.write(0, {"time/env_wait_s": wait_s, "time/step_s": 10.0})
        sink.write(0, {"held_out/reward_greedy": 0.5})
    (line,) = said
    assert line.startswith(f"the environment takes 20% {NOTE}: `--max_async_level 1`")


@pytest.mark.parametrize(
    ("delay_s", "level", "is_said"),
    [
        pytest.param(0.5, 0, True, marks=pytest.mark.slow),
        pytest.param(0.0, 0, False, marks=pytest.mark.nightly),
        pytest.param(0.5, 1, False, marks=pytest.mark.nightly),
    ],
)
def test_a_run_says_what_its_environment_takes(
    delay_s: float, level: int, is_said: bool, tiny_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = Path(__file__).parents[2] / "benchmarks" / "harness" / "slow_reverse.py"
    env = f'[{{id = "{slow}:SlowReverseText", args = {{ delay_s = {delay_s} }} }}]'
    settings = {
        "orchestrator.env": env,
        "model.name": tiny_dir,
        "model.dtype": "float32",
        "model.num_threads": 1,
        "max_steps": 3,
        "max_async_level": level,
        "seq_len": 160,
        "output_dir": tmp_path / "run",
        "orchestrator.batch_size": 8,
        "orchestrator.rollouts_per_example": 4,
        "orchestrator.sampling.max_tokens": 24,
        "trainer.loss.type": "reinforce",
        "eval.num_examples": 1,
    }
    assert run(["rl", *(text for key, value in settings.items() for text in (f"--{key}", str(value)))]) == 0
    assert (NOTE in capsys.readouterr().out) == is_said
    steps = [metrics for _, metrics in read_metrics(tmp_path / "run" / "metrics.jsonl") if "time/env_wait_s" in metrics]
    assert all(0 <= one["time/env_wait_s"] <= one["time/rollout_s"] for one in steps) and len(steps) == 3
