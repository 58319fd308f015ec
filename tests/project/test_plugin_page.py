"""The plug-in of docs/plugins.md: its files are taken from the page, installed, and found by the page's commands."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from slimrl import plugins
from slimrl.monitor.sinks import read_metrics

pytestmark = pytest.mark.slow

# Subjects of `slimrl check` that a busy machine may have a note on.
DEPEND_ON_THE_MACHINE = {"time of tasks", "time of a step", "blocking"}
PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
TINY_RUN = """\
max_steps = 1
seq_len = 256
warmup = { max_steps = 1, batch_size = 2 }
eval = { num_examples = 2, temperatures = [0.0] }
orchestrator = { batch_size = 4, rollouts_per_example = 4, sampling = { max_tokens = 4 } }
"""


def files() -> dict[str, str]:
    """The text of each file on the page by its path."""
    return dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def commands() -> list[str]:
    """The commands of slimrl on the page."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [line for line in "".join(blocks).splitlines() if line.startswith("slimrl ")]


def installer() -> list[str]:
    """The words that install a package without a network; empty if there is no program for it."""
    if find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--no-index"]
    uv = shutil.which("uv")
    return [uv, "pip", "install", "--offline", "--python", sys.executable] if uv else []


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for the path of Python, with the plug-in of the page in it."""
    install = installer()
    if not install or not find_spec("setuptools"):
        pytest.skip("needs setuptools, and pip or uv, in this Python")
    package = tmp_path_factory.mktemp("slimrl-theirs")
    for name, text in files().items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    target = tmp_path_factory.mktemp("installed")
    offline = ["--no-build-isolation", "--no-deps", "--target", str(target)]
    done = subprocess.run([*install, *offline, str(package)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def run(command: str, directory: Path, installed: Path | None) -> "subprocess.CompletedProcess[str]":
    """Run a command of the page in a directory, with the plug-in or without it."""
    environment = {**os.environ, "PYTHONPATH": str(installed or "")}
    words = [sys.executable, "-m", *shlex.split(command)]
    return subprocess.run(words, env=environment, cwd=directory, capture_output=True, text=True, check=False)


def test_the_page_has_the_files_and_the_commands() -> None:
    package = "src/slimrl_theirs"
    modules = [f"{package}/{name}.py" for name in ("__init__", "environment", "plugin", "greet")]
    assert list(files()) == ["pyproject.toml", *modules]
    run_of_theirs = """slimrl rl --orchestrator.env '[{id="theirs"}]'"""
    assert commands() == ["slimrl --help", "slimrl greet Ada", "slimrl check theirs", run_of_theirs]


def test_the_page_has_all_groups_and_no_other() -> None:
    groups = {value for value in vars(plugins).values() if isinstance(value, str) and value.startswith("slimrl.")}
    groups -= {plugins.__name__}
    assert set(re.findall(r"^\| `(slimrl\.\w+)` \|", PAGE, re.MULTILINE)) == groups


def test_its_command_is_listed_and_runs(installed: Path, tmp_path: Path) -> None:
    overview, greet, *_ = commands()
    assert "  slimrl greet      say hello to somebody\n" in run(overview, tmp_path, installed).stdout
    greeted = run(greet, tmp_path, installed)
    assert (greeted.returncode, greeted.stdout) == (0, "Hello, Ada!\n")
    refused = run(f"{greet} Lovelace", tmp_path, installed)
    assert (refused.returncode, refused.stderr) == (
        2,
        "slimrl: greet needs one name, as in `slimrl greet Ada`, not 2.\n",
    )


def test_without_it_there_is_neither(tmp_path: Path) -> None:
    _, greet, check, _ = commands()
    for command, complaint in ((greet, "there is no command `greet`"), (check, "there is no environment `theirs`")):
        done = run(command, tmp_path, None)
        assert done.returncode == 2 and complaint in done.stderr


def test_its_environment_is_checked_and_nothing_is_to_be_mended(installed: Path, tmp_path: Path) -> None:
    checked = run(f"{commands()[2]} --json", tmp_path, installed)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    (report,) = json.loads(checked.stdout)
    found = report["findings"]
    bad = {one["subject"] for one in found if one["level"] != "ok"}
    assert len(found) > 15 and bad <= DEPEND_ON_THE_MACHINE, checked.stdout


def test_a_run_trains_on_its_environment(installed: Path, tmp_path: Path, tiny_dir: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY_RUN)
    model = f"--model.name {tiny_dir} --model.dtype float32"
    trained = run(f"{commands()[3]} @ tiny.toml {model} --output_dir {tmp_path / 'run'}", tmp_path, installed)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    ((_, metrics),) = [one for one in read_metrics(tmp_path / "run" / "metrics.jsonl") if "env/exact" in one[1]]
    assert metrics["env/exact"] in (0.0, 0.25, 0.5, 0.75, 1.0)
