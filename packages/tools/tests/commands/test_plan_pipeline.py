"""`slimrl plan --run`: a run is made, and its pipeline simulated with other numbers of GPUs."""

import shutil
from pathlib import Path

import pytest

from packages.tools.tests.plan.made import make_large
from slimrl.cli import run
from tests.commands.test_rl import rl_flags

pytestmark = pytest.mark.slow
STEPS = 4


@pytest.fixture(scope="module")
def finished(tiny_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output_dir = tmp_path_factory.mktemp("pipeline") / "run"
    more = ["--max_steps", str(STEPS), "--warmup.max_steps", "0", "--ckpt.interval_steps", "0"]
    assert run(rl_flags(tiny_dir, output_dir, *more, "--eval.num_examples", "1", "--eval.interval_steps", "0")) == 0
    return output_dir


@pytest.fixture
def words(finished: Path, tiny_dir: Path) -> list[str]:
    return ["plan", *rl_flags(tiny_dir, finished.with_name("next"))[1:], "--run", str(finished)]


def test_a_recorded_run_is_simulated_with_other_numbers_of_gpus(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--gpus", "1,3,6", "--price", "2.5"]) == 0
    shown = capsys.readouterr().out
    assert "SIMULATED, not measured: 8 rollouts a step in groups of 4" in shown
    assert f"step_000001.jsonl to step_00000{STEPS - 1}.jsonl" in shown
    assert "stretched to the times of the run" in shown
    rows = [line.split() for line in shown.partition("cost of 100 steps")[2].splitlines() if line.startswith(" ")]
    assert [row[0] for row in rows] == ["1", "3", "6"]


def test_other_devices_are_estimated(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--on", "h100x4"]) == 0
    shown = capsys.readouterr().out
    assert "on h100" in shown
    assert "estimated from bandwidth and operations" in shown
    assert "GPU-hours of 100 steps" in shown


def test_a_trainer_that_one_gpu_cannot_hold_gets_more(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = [*words, "--model.name", str(make_large(tmp_path / "large")), "--model.dtype", "bfloat16", "--on", "h100"]
    assert run([*large, "--gpus", "8"]) == 0
    row = next(line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["8"])
    assert int(row[3]) >= 2  # 8 billion weights take 12 bytes each, and a GPU has 80 GB
    assert run([*large, "--gpus", "1"]) == 2
    assert "the trainer alone needs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        (["--gpus", "0,2"], "argument --gpus: 0,2 are not numbers from 1 to 10,000"),
        (["--gpus", "many"], "argument --gpus: invalid gpu_numbers value: 'many'"),
        (["--gpus"], "argument --gpus: expected one argument"),
        (["--price", "free"], "argument --price: invalid price value: 'free'"),
        (["--price", "-2"], "argument --price"),
        (["--run", "nowhere"], "nowhere has no config.toml"),
        (["--on", "h100x2,a100"], "--on names 2 machines"),
        (["--on", "h101"], "Did you mean `h100`?"),
    ],
)
def test_bad_input_is_told(words: list[str], more: list[str], shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, *more]) == 2
    assert shown in capsys.readouterr().err


def test_a_simulation_needs_a_run_with_rollouts_and_settings_of_rl(
    words: list[str], finished: Path, tiny_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "rollouts")
    sft = ["--model.name", str(tiny_dir), "--data.type", "expert", "--data.env", "reverse-text"]
    for argv, shown in (
        ([*words[:-2], "--gpus", "2"], "act only with --run DIR"),
        ([*words, "--run", str(tmp_path / "run")], "rollouts has 0 groups"),
        (["plan", *sft, "--run", str(finished)], "--run simulates the pipeline of `rl`"),
    ):
        assert run(argv) == 2
        assert shown in capsys.readouterr().err
