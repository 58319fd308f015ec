"""Runs that mostly wait for their environment get a note."""

from pathlib import Path

import pytest

from slimrl.cli import run
from slimrl.monitor.sinks import read_metrics

NOTE = "of a step, in which nothing is sampled or trained"


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 1])
def test_a_run_reports_the_large_share_of_its_environment(
    level: int, tiny_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = Path(__file__).parents[2] / "benchmarks" / "harness" / "slow_reverse.py"
    env = f'[{{id = "{slow}:SlowReverseText", args = {{ delay_s = 0.5 }} }}]'
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
    assert (NOTE in capsys.readouterr().out) == (level == 0)
    steps = [metrics for _, metrics in read_metrics(tmp_path / "run" / "metrics.jsonl") if "time/env_wait_s" in metrics]
    assert all(0 <= one["time/env_wait_s"] <= one["time/rollout_s"] for one in steps) and len(steps) == 3
