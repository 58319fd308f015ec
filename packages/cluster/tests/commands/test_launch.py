"""`slimrl launch --slurm`: what it writes, and what it refuses before it writes anything."""

from pathlib import Path

import pytest

from slimrl.cli import run

FILE = str(Path(__file__).parents[4] / "examples/reverse_text/rl.toml")
LAUNCH = ["launch", "--slurm", "@", FILE, "--gpus_per_node", "8", "--time", "04:00:00"]


def launch(tmp_path: Path, *more: str) -> int:
    return run([*LAUNCH, "--output_dir", str(tmp_path / "run"), *more])


def test_the_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["launch", "--help"]) == 0
    out = capsys.readouterr().out
    assert "slimrl launch --slurm @ examples/reverse_text/rl.toml --nodes 4" in out and "sbatch job.sh" in out


def test_the_script_is_printed_and_the_settings_of_the_run_stay_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(tmp_path, "--nodes=2", "--max_steps", "7", "--setup", "module load cuda") == 0
    out = capsys.readouterr().out
    words = f"@ {FILE} --output_dir {tmp_path / 'run'} --max_steps 7 --deployment.type ray --deployment.address auto"
    assert f"command=(slimrl rl {words})" in out.splitlines()
    assert "module load cuda" in out.splitlines() and "#SBATCH --nodes=2" in out.splitlines()


def test_a_file_is_overwritten_only_when_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "job.sh"
    script.write_text("mine")
    assert launch(tmp_path, "-o", str(script)) == 2
    assert script.read_text() == "mine"
    assert "overwrite it with --force" in capsys.readouterr().err
    assert launch(tmp_path, "-o", str(script), "--force") == 0
    assert script.read_text().startswith("#!/bin/bash\n")
    assert f"sbatch {script}" in capsys.readouterr().out


def test_a_directory_with_a_run_is_gone_on_with_only_when_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("{}\n")
    assert launch(tmp_path) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert launch(tmp_path, "--resume") == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--max_stps", "3"], "--max_stps: there is no such setting. Did you mean `max_steps`?"),
        (["--nodes", "0"], "--nodes: found 0, expected a whole number of 1 or more"),
        (["--gpus-per-node", "x"], "--gpus_per_node: found x"),
        (["--nodes="], "--nodes: one line must follow"),
        (["--setup", "a\nb"], "--setup: one line must follow"),
        (
            ["--deployment.num_trainers", "6", "--deployment.num_samplers", "3"],
            "need 9 GPUs, and the job has 8 (--nodes 1, --gpus_per_node 8)",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_told_before_anything_is_written(
    more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "job.sh"
    assert launch(tmp_path, *more, "-o", str(script)) == 2
    assert message in capsys.readouterr().err
    assert not script.exists()


def test_a_node_without_gpus_is_asked_for_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(tmp_path, "--gpus_per_node", "0", "--deployment.num_trainers", "2") == 0
    out = capsys.readouterr().out
    assert "--gpus-per-node" not in out and "gpus_per_node=0" in out.splitlines()


def test_what_kind_and_how_long_must_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["launch", "@", FILE]) == 2
    assert "deploy/kubernetes/rayjob.yaml" in capsys.readouterr().err
    assert run(["launch", "--slurm", "@", FILE, "--gpus_per_node", "8"]) == 2
    assert "--time: a time limit is needed" in capsys.readouterr().err
