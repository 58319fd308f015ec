"""The losses of one's own in CONTRIBUTING.md and docs/algorithms/README.md, followed literally."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from slimrl.cli import run
from slimrl.monitor.sinks import read_metrics

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "CONTRIBUTING.md", "## Add a loss", "## Add a metric"
PAGE = ROOT / "docs" / "algorithms" / "README.md", "## A loss of your own", "## Our curves"
FILE = "my_loss.py"


def snippet(place: tuple[Path, str, str], language: str) -> str:
    """The only piece of code in this language between two headings, without the indentation of a list."""
    path, begin, end = place
    text = path.read_text(encoding="utf-8")
    section = text[text.index(begin) : text.index(end)]
    (code,) = re.findall(rf"^ *```{language}\n(.*?)^ *```$", section, re.MULTILINE | re.DOTALL)
    return re.sub(r"^   ", "", code, flags=re.MULTILINE) if begin == RECIPE[1] else code


def settings(tmp_path: Path, code: str, loss: str) -> Path:
    """A settings file with these lines of `[trainer.loss]`, beside a file with the functions."""
    (tmp_path / FILE).write_text(code)
    path = tmp_path / "own.toml"
    path.write_text(f"max_steps = 1\noutput_dir = 'run'\nseq_len = 160\n{loss}")
    return path


def test_the_page_s_functions_train_a_step_of_rl(
    tmp_path: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = settings(tmp_path, snippet(PAGE, "python"), snippet(PAGE, "toml"))
    flags = ["--model.name", str(tiny_dir), "--model.dtype", "float32", "--orchestrator.batch_size", "8"]
    flags += ["--orchestrator.rollouts_per_example", "4", "--orchestrator.sampling.max_tokens", "4"]
    flags += ["--orchestrator.env.0.id", "reverse-text", "--eval.num_examples", "4"]
    assert run(["rl", "@", str(path), *flags]) == 0
    metrics = dict(read_metrics(tmp_path / "run" / "metrics.jsonl"))[0]
    # A random model earns nothing, so all rewards are the group's best: the page's function gives each advantage 1.
    assert metrics["loss/policy"] == pytest.approx(-1.0, abs=1e-3) and metrics["optim/grad_norm"] > 0


@pytest.mark.slow
def test_the_recipe_s_function_trains_a_step_in_a_trainer_of_its_own(tmp_path: Path, tiny_dir: Path) -> None:
    loss = f'[trainer.loss]\npolicy = "{FILE}:masked"\npolicy_args = {{ delta = 4.0 }}\n'
    path = settings(tmp_path, snippet(RECIPE, "python"), loss)
    command = [sys.executable, "-m", "slimrl", "trainer", "@", str(ROOT / "configs/debug/rl/train.toml"), "@", path]
    flags = ["--model.name", tiny_dir, "--model.dtype", "float32"]
    done = subprocess.run([*command, *flags], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ((_, metrics),) = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert metrics["optim/grad_norm"] > 0 and 0 < metrics["loss/clipped"] <= 1  # made-up samples are improbable


@pytest.mark.parametrize(
    ("loss", "start", "says"),
    [
        ('policy = "my_loss.py:maskd"', "trainer.loss.policy (FILE:5): ", "Did you mean `masked`?"),
        ('policy = "my_loss.py:TEN"', "trainer.loss.policy (FILE:5): ", "is not a function, but the int 10."),
        (
            'policy = "my_loss.py:masked"\npolicy_args = { delta = "4" }',
            "trainer.loss.policy_args.delta (FILE:6): ",
            "`delta` cannot be '4'",
        ),
        (
            'advantage = "my_loss.py:masked"\nadvantage_args = { margin = 1 }',
            "trainer.loss.advantage_args.margin (FILE:6): ",
            "unexpected keyword argument",
        ),
    ],
)
def test_a_mistake_has_its_file_and_line(
    loss: str,
    start: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = settings(tmp_path, f"TEN = 10\n{snippet(RECIPE, 'python')}", f"[trainer.loss]\n{loss}\n")
    assert run(["rl", "@", str(path), "--orchestrator.env.0.id", "reverse-text", "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert start.replace("FILE", str(path)) in error and says in error
