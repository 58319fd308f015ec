"""Commands as the original designs and other trainers' guides write them: each works, or says why not in a line."""

from pathlib import Path

import pytest

from slimrl.cli import run

ROOT = Path(__file__).parents[2]
RL = ["rl", "@", "examples/reverse_text/rl.toml"]
DISTILL = ["rl", "@", "experiments/context_distill/rl.toml"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv",
    [
        ["trainer", "@", "configs/debug/rl/train.toml"],
        ["sft", "@", "configs/debug/sft/train.toml"],
        ["eval", "@", "configs/debug/eval.toml"],
        ["sft", "@", "examples/reverse_text/sft.toml", "--output-dir", "outputs/sft"],
        [*RL, "--trainer_gpu_ids", "0", "--inference_gpu_ids", "1"],
        [*DISTILL, "--inference_gpu_ids", "0", "--teacher_gpu_ids", "1", "--trainer_gpu_ids", "2,3"],
        [*DISTILL, *(f"--trainer.loss.{tau}=0.5" for tau in ("adv_tau", "teacher_tau", "student_tau"))],
        [*RL, "--trainer.loss.adv_tau", "0.5"],
        [*RL, *["--trainer.model.lora.rank", "32", "--trainer.model.lora.alpha", "64"]],
        [*RL, "--trainer.model.lora.target_modules", '["q_proj", "v_proj"]', "--trainer.model.lora.rank", "8"],
        [*RL, "--max_async_level", "2", "--wandb.project", "my-project"],
        [*RL, "--orchestrator.batch_size", "128", "--orchestrator.rollouts_per_example", "8", "--seq-len", "2048"],
    ],
    ids=" ".join,
)
def test_a_documented_command_is_understood(argv, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert run([*argv, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("# slimrl ")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([*RL, "--model.name", "outputs/sft/weights/step_100"], "there is no such file or directory"),
        ([*RL, "--trainer.loss.teacher_tau", "0.5"], "cannot act without a teacher"),
        ([*RL, "--teacher_gpu_ids", "2,3"], 'cannot act with teacher.type = "none"'),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_documented_command_that_is_not_here_says_so(argv, message, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(ROOT)
    assert run([*argv, "--output_dir", str(tmp_path / "new")]) == 2  # the recipe's own may hold a run already
    assert message in capsys.readouterr().err
