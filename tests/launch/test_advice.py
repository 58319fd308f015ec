"""Runs that cannot learn, or that wait for their environment, get a note."""

from pathlib import Path
from typing import cast

import pytest

from slimrl.cli import run
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.launch.advice import EnvironmentShare, advise
from slimrl.monitor.console import RunConsole
from slimrl.monitor.sinks import read_metrics
from slimrl.types import Script, Taskset


class Noting:
    """A console that keeps its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str, style: str = "") -> None:
        self.notes.append(text)


class Tasks(Taskset):
    """A taskset with the scripts of the given names."""

    def __init__(self, *scripts: str) -> None:
        self._names = scripts

    @property
    def scripts(self) -> dict[str, Script]:
        return dict.fromkeys(self._names, lambda task, seed: [])


HIGH = "held_out/reward_greedy_high"  # the interval's end, which is above 0 where nothing was earned
ZERO = {"reward/max": 0.0}


@pytest.mark.parametrize(
    ("flags", "script", "metrics", "said"),
    [
        ("", "expert", ZERO, "--warmup.max_steps 20"),
        ("", "expert", {"reward/max": -0.5, "held_out/reward_greedy": 0.0, HIGH: 0.16}, "--warmup.max_steps 20"),
        ("", "expert", {**ZERO, "held_out/reward_form_greedy": 1.0}, "--warmup.max_steps 20"),  # one of several rewards
        ("--warmup.max_steps 7", "expert", ZERO, "raise --warmup.max_steps, which is 7"),
        ("", "random", ZERO, "slimrl sft"),
        ("", "expert", {"reward/max": 0.1}, ""),
        ("", "expert", {**ZERO, "held_out/reward_greedy": 0.05}, ""),  # two rollouts may well fail
    ],
)
def test_a_model_that_earns_nothing_gets_advice_on_its_warm_up(
    flags: str, script: str, metrics: dict[str, float], said: str
) -> None:
    config = load(RLConfig, ["--orchestrator.env.0.id", "reverse-text", *flags.split()], {}).config
    console = Noting()
    advise(config, [Tasks(script)], metrics, cast(RunConsole, console))
    assert len(console.notes) == bool(said) and said in "".join(console.notes)


NOTE = "of a step, in which nothing is sampled or trained"


def test_one_line_reports_the_environments_share_of_the_first_steps() -> None:
    said: list[str] = []
    sink = EnvironmentShare(said.append)
    for wait_s in (2.0, 1.0, 3.0, 9.0, 9.0):
        sink.write(0, {"time/env_wait_s": wait_s, "time/step_s": 10.0})
        sink.write(0, {"held_out/reward_greedy": 0.5})
    (line,) = said
    assert line.startswith(f"the environment takes 20% {NOTE}: `--max_async_level 1`")


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
