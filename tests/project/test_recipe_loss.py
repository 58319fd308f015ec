"""The recipe "Add a loss" of CONTRIBUTING.md, followed literally on a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slimrl.monitor.sinks import read_metrics

ROOT = Path(__file__).parents[2]
LOSSES, TABLE = "trainer/losses.py", "config/loss.py"
TABLE_HEAD = "POLICIES: dict[str, Hyperparameters] = {\n"


def snippets() -> list[str]:
    """The two pieces of code in the recipe, without the indentation of the list that they stand in."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text[text.index("## Add a loss") : text.index("## Add a metric")]
    blocks = re.findall(r"^   ```python\n(.*?)^   ```$", section, re.MULTILINE | re.DOTALL)
    return [re.sub(r"^   ", "", block, flags=re.MULTILINE) for block in blocks]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a slimrl with the recipe's loss."""
    parent = tmp_path_factory.mktemp("with-a-loss")
    package = parent / "slimrl"
    shutil.copytree(ROOT / "src" / "slimrl", package, ignore=shutil.ignore_patterns("__pycache__"))
    function, line = snippets()
    with (package / LOSSES).open("a", encoding="utf-8") as file:
        file.write(f"\n\n{function}")
    table = (package / TABLE).read_text(encoding="utf-8")
    assert table.count(TABLE_HEAD) == 1
    (package / TABLE).write_text(table.replace(TABLE_HEAD, TABLE_HEAD + line), encoding="utf-8")
    return parent


def slimrl(package: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-m", "slimrl", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_new_loss_is_a_choice_like_any_other(package: Path) -> None:
    recipe = ["@", "examples/reverse_text/rl.toml", "--trainer.loss.policy", "masked"]
    shown = slimrl(package, "rl", "--dry-run", *recipe, "--trainer.loss.delta", "4.0")
    assert shown.returncode == 0, shown.stderr
    assert 'policy = "masked"' in shown.stdout and "delta = 4.0" in shown.stdout
    refused = slimrl(package, "rl", "--dry-run", *recipe, "--trainer.loss.eps_low", "0.1")
    assert refused.returncode == 2
    assert "trainer.loss.eps_low cannot act: it is for the policy clip or" in refused.stderr
    assert 'with trainer.loss.type = "aipo" trainer.loss.policy is here "masked"' in refused.stderr


@pytest.mark.nightly
def test_the_new_loss_makes_a_training_step(package: Path, tiny_dir: Path, tmp_path: Path) -> None:
    flags = ["--model.name", str(tiny_dir), "--model.dtype", "float32", "--max_steps", "1", "--trainer.loss.policy"]
    output = ["--output_dir", str(tmp_path / "run")]
    done = slimrl(package, "trainer", "@", "configs/debug/rl/train.toml", *flags, "masked", *output)
    assert done.returncode == 0, done.stderr
    ((_, metrics),) = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert metrics["optim/grad_norm"] > 0
