"""The command `launch`: the script of a run, or a refusal before anything is written."""

from pathlib import Path

import pytest

from slimrl.cli import run

FILE = str(Path(__file__).parents[4] / "examples/reverse_text/rl.toml")
LAUNCH = ["launch", "--slurm", "@", FILE, "--gpus_per_node", "8", "--time", "04:00:00"]


def launch(*words: str) -> int:
    """The exit status of a command line; argparse exits by itself."""
    try:
        return run(list(words))
    except SystemExit as error:
        return int(error.code or 0)


@pytest.fixture
def output_dir(tmp_path: Path) -> str:
    return str(tmp_path / "run")


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        (["--nodes=2"], ["gpus_per_node=8", "#SBATCH --nodes=2"]),
        (["--gpus-per-node", "4"], ["gpus_per_node=4", "#SBATCH --gpus-per-node=4"]),
        (["--gpus_per_node", "0", "--deployment.num_trainers", "2"], ["gpus_per_node=0"]),
    ],
)
def test_the_script_is_printed(
    more: list[str], lines: list[str], output_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(*LAUNCH, "--output_dir", output_dir, "--max_steps", "7", *more) == 0
    out = capsys.readouterr().out
    words = f"@ {FILE} --output_dir {output_dir} --max_steps 7"  # the settings of the run stay its own
    assert f"command=(slimrl rl {words}" in out and set(lines) <= set(out.splitlines())
    assert (" --deployment.type ray --deployment.address auto)\n") in out
    assert ("--gpus-per-node" in out) == ("gpus_per_node=0" not in lines)


def test_a_directory_with_a_run_is_gone_on_with_only_when_told(
    tmp_path: Path, output_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("{}\n")
    assert launch(*LAUNCH, "--output_dir", output_dir) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert launch(*LAUNCH, "--output_dir", output_dir, "--resume") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*LAUNCH, "--max_stps", "3"], "--max_stps: there is no such setting. Did you mean `max_steps`?"),
        ([*LAUNCH, "--nodes", "0"], "launch needs --nodes of 1 or more"),
        ([*LAUNCH, "--gpus-per-node", "x"], "invalid int value: 'x'"),
        (
            [*LAUNCH, "--deployment.num_trainers", "6", "--deployment.num_samplers", "3"],
            "need 9 GPUs, and the job has 8 (--nodes 1, --gpus_per_node 8)",
        ),
        (["launch", "@", FILE, "--gpus_per_node", "8", "--time", "9"], "deploy/kubernetes/rayjob.yaml"),
        (["launch", "--slurm", "@", FILE, "--gpus_per_node", "8"], "arguments are required: --time"),
    ],
    ids=lambda value: value[-40:] if isinstance(value, str) else "",
)
def test_a_mistake_is_told_and_no_script_is_printed(
    words: list[str], message: str, output_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(*words, "--output_dir", output_dir) == 2
    out, err = capsys.readouterr()
    assert message in err and not out
